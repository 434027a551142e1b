// The passes that every graph goes through before a plan is searched for, as a list.
// Not those that a search tries and judges; plan_search.h has them.
#pragma once

#include <span>
#include <string_view>

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"
#include "stowage/passes/pass_report.h"

namespace stow {

struct FixedPass {
  std::string_view name;  ///< As in dumps.
  /// `override_policy`, when set, stands in for the policy of every region. `report` gets what the
  /// plan is to say of the pass.
  Graph (*run)(const Graph& graph, const PolicyPtr& override_policy, PassReport& report);
};

/// In order; their graph is flat (autodiff/flatten.h), and over a mesh that of one position. The first
/// kNumResidualPasses of them leave a graph that shows what the backward part finds kept.
std::span<const FixedPass> fixed_passes();
inline constexpr size_t kNumResidualPasses = 3;

}  // namespace stow
