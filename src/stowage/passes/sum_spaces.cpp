#include "stowage/passes/sum_spaces.h"

#include <algorithm>

namespace stow {
namespace {

// Most elements of a row that one program reads again (fuse.cpp).
constexpr int64_t kMostInOneRow = int64_t{1} << 14;

void add(std::vector<SumReader>& sums, const SumReader& sum) {
  if (std::find(sums.begin(), sums.end(), sum) == sums.end()) sums.push_back(sum);
}

// True for a reduction whose result its own program can read.
bool is_at_hand(const Graph& graph, const Node& reduction) {
  const SumSpace space = space_of(graph, reduction);
  const bool is_long =
      space.n_row_dims == 0 && graph.type(reduction.operands[0]).shape.elems() > kMostInOneRow;
  return space.axes.empty() && space.n_group_dims < 0 && !is_long;
}

}  // namespace

SumSpace space_of(const Graph& graph, const Node& reduction) {
  const int rank = graph.type(reduction.operands[0]).shape.rank();
  std::vector<bool> reduced(static_cast<size_t>(rank));
  int last = -1;
  for (int64_t axis : reduction.as<AxesParams>().axes) {
    reduced[static_cast<size_t>(axis)] = true;
    last = std::max(last, static_cast<int>(axis));
  }
  SumSpace space;
  const auto append = [&](bool of_reduced, int first, int end) {
    for (int a = first; a < end; ++a)
      if (reduced[static_cast<size_t>(a)] == of_reduced) space.axes.push_back(a);
    return static_cast<int>(space.axes.size());
  };
  if (rank == 0 || reduced.back()) {
    space.n_row_dims = append(false, 0, rank);
    append(true, 0, rank);
  } else {
    space.n_group_dims = append(false, 0, std::max(last, 0));
    space.n_row_dims = append(true, 0, rank);
    append(false, std::max(last, 0), rank);
  }
  if (std::is_sorted(space.axes.begin(), space.axes.end())) space.axes.clear();
  return space;
}

bool unite(SumSpace& into, const SumSpace& other) {
  const int groups = common_dims(into.n_group_dims, other.n_group_dims);
  const int rows = common_dims(into.n_row_dims, other.n_row_dims);
  if (into.axes != other.axes || groups == -2 || rows == -2) return false;
  into.n_group_dims = groups;
  into.n_row_dims = rows;
  return true;
}

std::vector<int> find_depths(const Graph& graph) {
  std::vector<int> depths(graph.n_values(), 0);
  for (const Node& node : graph.nodes()) {
    int depth = 0;
    for (ValueId v : node.operands) depth = std::max(depth, depths[v.index()]);
    const OpClass cls = op_class(node.op);
    const bool waits = cls == OpClass::kOther || cls == OpClass::kStructure ||
                       (cls == OpClass::kReduce && !is_at_hand(graph, node));
    for (int i = 0; i < node.n_results; ++i)
      depths[node.result(i).index()] = depth + (waits && !node.operands.empty() ? 1 : 0);
  }
  return depths;
}

std::vector<ValueReaders> find_value_readers(const Graph& graph) {
  std::vector<ValueReaders> readers(graph.n_values());
  const std::vector<int> depths = find_depths(graph);
  for (ValueId v : graph.outputs()) readers[v.index()].in_memory = true;
  const auto pass_on = [&](const ValueReaders& from, ValueId v) {
    ValueReaders& to = readers[v.index()];
    to.in_memory_downstream |= from.in_memory_downstream || from.in_memory;
    if (from.in_memory) return;
    for (const SumReader& sum : from.sums) add(to.sums, sum);
  };
  for (size_t n = graph.n_nodes(); n-- > 0;) {
    const Node& node = graph.nodes()[n];
    const OpClass cls = op_class(node.op);
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const ValueId v = node.operands[i];
      if (cls == OpClass::kElementwise) {
        pass_on(readers[node.first_result.index()], v);
      } else if (cls == OpClass::kIdentity) {
        const ValueReaders& same = readers[node.result(static_cast<int>(i)).index()];
        pass_on(same, v);
        readers[v.index()].in_memory |= same.in_memory;
      } else if (cls == OpClass::kReduce) {
        add(readers[v.index()].sums, {space_of(graph, node), depths[v.index()]});
      } else {
        readers[v.index()].in_memory = true;
      }
    }
  }
  return readers;
}

}  // namespace stow
