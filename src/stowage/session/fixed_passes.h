// The list of passes that every graph goes through before the plan search.
// Not the passes that the search tries and compares; plan_search.h has those.
#pragma once

#include <span>
#include <string_view>

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"
#include "stowage/passes/pass_report.h"

namespace stow {

struct FixedPass {
  std::string_view name;  ///< The name in dumps.
  /// Returns the graph after the pass. `override_policy`: if set, replaces the policy of every
  /// region. `report`: gets the pass's limits and notes for the plan.
  Graph (*run)(const Graph& graph, const PolicyPtr& override_policy, PassReport& report);
};

/// Returns the passes in order. The first pass takes a flat graph (autodiff/flatten.h), over a mesh
/// that of one position. After the first kNumResidualPasses passes, the graph shows the values that
/// the forward part keeps for the backward part. The pass of index kResidualsPass chooses them.
std::span<const FixedPass> fixed_passes();
inline constexpr size_t kResidualsPass = 2;
inline constexpr size_t kNumResidualPasses = 4;

}  // namespace stow
