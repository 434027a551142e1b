// The pass that applies checkpoint policies: keeps, recomputes or offloads values.
// Not differentiation, and not the choice of a policy.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"
#include "stowage/passes/pass_report.h"

namespace stow {

/// Rewrites a joint graph of forward and backward so that the backward part (Node::backward) reads
/// only kept values; clones in the backward part recompute all others.
///
/// In a region, the policy says which values may be kept and which must be recomputed; outside any
/// region all values may be kept. Values that enter a region may always be kept. Among the allowed
/// choices, the kept values are a minimum cut by bytes: a value that elementwise work computes from
/// other kept values is recomputed even if it may be kept. Regions nest: an outer region is
/// realised first, and the work that it recomputes then counts as forward work of the inner
/// regions. A pair of a forward scan and its backward scan is treated as one iteration of both; its
/// stacks follow from that.
///
/// `override_policy`, if not null, replaces the policy of every region. An offloaded value is moved
/// right after it is computed and moved back for its first backward reader. A value that the
/// forward part moved to the device is moved to it again instead of being kept.
/// Errors: TraceError if a policy asks for a name that no value in its region has, or that no value
/// of the backward part depends on; or if it offloads a name and no such value is read
/// (policy_requests.h). `report`, if not null, receives limits and notes. `most_kept_in_turn` is a
/// bound of work (passes/rematerialize.h), smaller in tests.
Graph realize_residuals(const Graph& joint, const PolicyPtr& override_policy,
                        PassReport* report = nullptr, int most_kept_in_turn = 64);

}  // namespace stow
