#include "stowage/ops/localize.h"

#include <algorithm>
#include <set>

namespace stow {

OpShardings shardings_of(const ShardingFactors& factors, const LetterAxes& axes) {
  OpShardings s;
  std::set<int> in_results;
  const auto lists = [&](const std::vector<std::vector<int>>& from, bool results) {
    std::vector<AxisSharding> to;
    for (const std::vector<int>& letters : from) {
      AxisSharding sharding = whole_sharding(static_cast<int>(letters.size()));
      for (size_t i = 0; i < letters.size(); ++i) {
        if (results) in_results.insert(letters[i]);
        if (const auto it = axes.find(letters[i]); it != axes.end()) sharding.axes[i] = it->second;
      }
      to.push_back(std::move(sharding));
    }
    return to;
  };
  s.operands = lists(factors.operands, false);
  s.results = lists(factors.results, true);
  MeshAxes partial;
  ReduceKind kind = ReduceKind::kSum;
  for (const auto& [letter, cut] : axes) {
    if (cut.empty() || in_results.contains(letter)) continue;
    partial.insert(partial.end(), cut.begin(), cut.end());
    kind = factors.kind(letter);
  }
  std::sort(partial.begin(), partial.end());
  for (AxisSharding& result : s.results) {
    result.partial = partial;
    result.kind = kind;
  }
  return s;
}

bool can_cut(const ShardingFactors& factors, const LetterAxes& axes, const MeshShape& mesh,
             std::span<const ArrayType> operands, std::span<const ArrayType> results) {
  std::set<int> seen;
  for (const auto& [letter, cut] : axes)
    for (int axis : cut)
      if (!seen.insert(axis).second) return false;
  const auto divides = [&](const std::vector<std::vector<int>>& lists,
                           std::span<const ArrayType> types) {
    for (size_t k = 0; k < lists.size(); ++k)
      for (size_t i = 0; i < lists[k].size(); ++i)
        if (const auto it = axes.find(lists[k][i]); it != axes.end())
          if (types[k].shape[static_cast<int>(i)] % mesh.extent_of(it->second) != 0) return false;
    return true;
  };
  return divides(factors.operands, operands) && divides(factors.results, results);
}

std::vector<Val> localize(const Node& node, std::span<const ArrayType> operand_types,
                          std::span<const ArrayType> result_types, const OpShardings& shardings,
                          const MeshShape& mesh, GraphBuilder& builder, std::vector<Val> operands,
                          const std::function<Val(const MeshAxes&)>& index) {
  const LocalContext context{.node = node,
                             .builder = builder,
                             .mesh = mesh,
                             .operand_types = operand_types,
                             .result_types = result_types,
                             .operand_shardings = shardings.operands,
                             .result_shardings = shardings.results,
                             .operands = std::move(operands),
                             .index = index};
  std::vector<Val> results = op_def(node.op).local.function(context);
  STOW_CHECK(results.size() == result_types.size(), "the local form of {} gives {} results",
             op_name(node.op), results.size());
  for (size_t i = 0; i < results.size(); ++i)
    STOW_CHECK(results[i].type() == local_type(result_types[i], shardings.results[i], mesh),
               "the local form of {} gives {} for {}", op_name(node.op),
               to_string(results[i].type()), to_string(result_types[i]));
  return results;
}

}  // namespace stow
