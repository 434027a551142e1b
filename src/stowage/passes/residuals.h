// The pass that realises checkpoint marks: what the backward part reads is kept or recomputed.
// Not differentiation, and not the choice of a policy.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"
#include "stowage/passes/pass_report.h"

namespace stow {

/// Rewrites a joint graph of forward and backward so that the backward part (Node::backward) reads
/// only kept values, everything else being computed again there by clones.
///
/// In a region, the policy says what may be kept and what must be recomputed; outside any region
/// everything may be kept. Values that enter a region may always be kept. Of the values that may be
/// kept, those of the fewest bytes are: a value that elementwise work gives back from other kept
/// values is recomputed without being asked. Regions nest: an outer region is realised first, then
/// what it recomputes is treated as forward work of the inner ones. A pair of a forward scan and
/// its backward scan is treated as one iteration of both, their stacks following.
///
/// `override_policy`, when set, stands in for the policy of every region.
/// A value that is to be offloaded is moved right after it is computed and brought back for its
/// first backward reader; what was brought from another memory in the forward pass is brought again.
/// Errors: TraceError when a policy asks for a name that no value in its region has, or none that
/// the backward part depends on; when it offloads a name and nothing of it is read (policy_requests.h).
/// `report`, when set, is told of bounds of work that took effect and of requests without effect;
/// `most_kept_in_turn` is a bound (passes/rematerialize.h), smaller in tests.
Graph realize_residuals(const Graph& joint, const PolicyPtr& override_policy,
                        PassReport* report = nullptr, int most_kept_in_turn = 64);

}  // namespace stow
