#include "stowage/passes/simplify.h"

#include <unordered_map>

#include "stowage/ir/utilities.h"
#include "stowage/passes/hand_through.h"
#include "stowage/passes/peephole.h"

namespace stow {
namespace {

// Nodes of a graph by what they compute.
class Merger {
 public:
  explicit Merger(const Graph& graph, size_t expected) : graph_(graph) { nodes_.reserve(expected); }

  /// A node of the graph that does what `node` does; else `next`, which is taken to become it.
  NodeId find_or_enter(const Node& node, NodeId next) {
    const size_t hash = hash_of(node);
    const auto [begin, end] = nodes_.equal_range(hash);
    for (auto it = begin; it != end; ++it)
      if (same(graph_.node(it->second), node)) return it->second;
    nodes_.emplace(hash, next);
    return next;
  }

 private:
  static size_t hash_of(const Node& node) {
    size_t h = operation_hash(node) * 2 + node.backward;
    h = h * 0x9e3779b97f4a7c15u + node.region.value;
    for (ValueId operand : node.operands) h = (h ^ (h >> 29)) * 0x9e3779b97f4a7c15u + operand.value;
    return h;
  }
  static bool same(const Node& a, const Node& b) {
    return a.operands == b.operands && a.region == b.region && a.backward == b.backward &&
           same_operation(a, b);
  }

  const Graph& graph_;
  std::unordered_multimap<size_t, NodeId> nodes_;
};

class Simplifier {
 public:
  Graph rewrite(const Graph& from) {
    Graph to;
    ValueMap map(from);
    Merger merger(to, from.n_nodes());
    copy_inputs(from, to, map);
    import_regions(from, to, RegionId());  // with the same numbers
    for (const Node& node : from.nodes()) rewrite_node(from, node, to, map, merger);
    std::vector<ValueId> outputs = from.outputs();
    for (ValueId& output : outputs) output = map[output];
    to.set_outputs(std::move(outputs));
    return to;
  }

 private:
  void rewrite_node(const Graph& from, const Node& node, Graph& to, ValueMap& map, Merger& merger) {
    Node copy = node;
    for (ValueId& operand : copy.operands) operand = map[operand];
    for (GraphPtr& nested : copy.graphs) nested = rewrite_nested(nested);
    if (const int axis = first_axis_of_rows(to, copy); axis > 0) reduce_rows(axis, to, copy, merger);
    if (node.n_results == 1) {
      const ValueId same = peephole(to, copy, from.type(node.first_result));
      if (same.valid()) return map.set(node.first_result, same);
    }
    types_.clear();
    for (int i = 0; i < node.n_results; ++i) types_.push_back(from.type(node.result(i)));
    const std::vector<ValueId> handed = hand_through(copy, types_);
    copy.n_results = static_cast<int>(types_.size());
    if (node.n_results > 0 && types_.empty()) {
      for (int i = 0; i < node.n_results; ++i)
        map.set(node.result(i), handed[static_cast<size_t>(i)]);
      return;
    }
    NodeId id(to.n_nodes());
    if (node.op != OpKind::kOptimizationBarrier) id = merger.find_or_enter(copy, id);
    if (id.index() == to.n_nodes()) to.add_node(std::move(copy), types_);
    int next = 0;
    for (int i = 0; i < node.n_results; ++i)
      map.set(node.result(i), handed[static_cast<size_t>(i)].valid()
                                  ? handed[static_cast<size_t>(i)]
                                  : to.node(id).result(next++));
  }

  // Has the trailing axes of a reduction reduced first; `node` is left the rest.
  static void reduce_rows(int first_axis, Graph& to, Node& node, Merger& merger) {
    const ArrayType& whole = to.type(node.operands[0]);
    const auto first = static_cast<std::ptrdiff_t>(first_axis);
    Node rows = node;
    Dims reduced, left;
    for (int axis = 0; axis < whole.shape.rank(); ++axis)
      (axis < first_axis ? left : reduced).push_back(axis);
    ArrayType type = whole;
    type.shape = Shape(Dims(whole.shape.begin(), whole.shape.begin() + first));
    rows.params = AxesParams{std::move(reduced)};
    NodeId id(to.n_nodes());
    id = merger.find_or_enter(rows, id);
    if (id.index() == to.n_nodes()) to.add_node(std::move(rows), {&type, 1});
    node.operands = {to.node(id).result()};
    node.params = AxesParams{std::move(left)};
  }

  GraphPtr rewrite_nested(const GraphPtr& nested) {
    if (const auto known = nested_.find(nested); known != nested_.end()) return known->second;
    auto rewritten = std::make_shared<const Graph>(rewrite(*nested));
    nested_.emplace(nested, rewritten);
    return rewritten;
  }

  std::unordered_map<GraphPtr, GraphPtr> nested_;  // a body that several nodes share stays shared
  std::vector<ArrayType> types_;
};

}  // namespace

Graph simplify(const Graph& graph) {
  return remove_dead_code(Simplifier().rewrite(graph));
}

}  // namespace stow
