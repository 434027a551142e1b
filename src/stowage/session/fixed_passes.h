// The passes that every graph goes through before a plan is searched for, as a list.
// Not those that a search tries and judges; plan_search.h has them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

struct FixedPass {
  std::string_view name;  ///< As in dumps.
  /// `override_policy`, when set, stands in for the policy of every region. `limits` is told of bounds of
  /// work that took effect, each in a sentence.
  Graph (*run)(const Graph& graph, const PolicyPtr& override_policy, std::vector<std::string>& limits);
};

/// In order; their graph is flat (autodiff/flatten.h), and over a mesh that of one position. The first
/// kNumResidualPasses of them leave a graph that shows what the backward part finds kept.
std::span<const FixedPass> fixed_passes();
inline constexpr size_t kNumResidualPasses = 3;

}  // namespace stow
