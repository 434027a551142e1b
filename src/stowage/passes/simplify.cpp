#include "stowage/passes/simplify.h"

#include <unordered_map>

#include "stowage/core/scalar.h"
#include "stowage/ir/utilities.h"
#include "stowage/ops/effects.h"
#include "stowage/passes/drop_passthrough.h"
#include "stowage/passes/narrowed_slice.h"
#include "stowage/passes/peephole.h"

namespace stow {
namespace {

// True for ops that are not merged with equal ones.
bool is_kept_apart(OpKind op) {
  return op == OpKind::kOptimizationBarrier || has_effect(op);
}

// The nodes of a graph by what they compute.
class Merger {
 public:
  explicit Merger(const Graph& graph, size_t expected) : graph_(graph) { nodes_.reserve(expected); }

  /// Returns a node of the graph that equals `node`, else `next`, which is entered as that node.
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

// True if only `reader` uses `v`, which is computed element by element.
bool is_made_for(const Graph& graph, const std::vector<int>& uses, ValueId v, const Node& reader) {
  if (graph.is_input(v) || uses[v.index()] != 1) return false;
  const Node& maker = graph.def(v);
  return op_class(maker.op) == OpClass::kElementwise && maker.region == reader.region &&
         maker.backward == reader.backward && !maker.escapes_region && !reader.escapes_region;
}

// True if something is computed only for a reverse, here or in a nested graph.
bool reverses_what_is_made_for_it(const Graph& graph) {
  std::vector<int> uses;
  for (const Node& node : graph.nodes()) {
    for (const GraphPtr& nested : node.graphs)
      if (reverses_what_is_made_for_it(*nested)) return true;
    if (node.op != OpKind::kReverse) continue;
    if (uses.empty()) uses = count_uses(graph);
    if (is_made_for(graph, uses, node.operands[0], node)) return true;
  }
  return false;
}

class Simplifier {
 public:
  /// `sinks`: what is computed for a reverse alone is computed from reversed operands.
  explicit Simplifier(bool sinks) : sinks_(sinks) {}

  Graph rewrite(const Graph& from) {
    Graph to;
    ValueMap map(from);
    Merger merger(to, from.n_nodes());
    copy_inputs(from, to, map);
    std::vector<int> uses;
    std::vector<const Node*> turned(from.n_values());
    if (sinks_) find_turned(from, turned);
    import_regions(from, to, RegionId());  // with the same numbers
    for (const Node& node : from.nodes())
      if (node.op == OpKind::kReverse && turned[node.operands[0].index()] != nullptr)
        map.set(node.first_result, map[node.operands[0]]);
      else if (node.n_results > 0 && turned[node.first_result.index()] != nullptr)
        compute_turned(from, node, turned, to, map, merger);
      else
        rewrite_node(from, node, to, map, merger, uses);
    std::vector<ValueId> outputs = from.outputs();
    for (ValueId& output : outputs) output = map[output];
    to.set_outputs(std::move(outputs));
    return to;
  }

 private:
  // For every value, finds the reverse for which it is computed, directly or through other ops.
  static void find_turned(const Graph& graph, std::vector<const Node*>& turned) {
    const std::vector<int> uses = count_uses(graph);
    for (size_t n = graph.n_nodes(); n-- > 0;) {
      const Node& node = graph.node(NodeId(n));
      if (node.n_results != 1) continue;
      const Node* by = node.op == OpKind::kReverse ? &node : turned[node.first_result.index()];
      if (by == nullptr) continue;
      for (ValueId v : node.operands)
        if (is_made_for(graph, uses, v, *by)) turned[v.index()] = by;
    }
  }
  // Computes a value in reversed order. Its operands are reversed where they lie in memory: a
  // kernel reads computed values only at their own place, so others would have to be stored first.
  static void compute_turned(const Graph& from, const Node& node,
                             const std::vector<const Node*>& turned, Graph& to, ValueMap& map,
                             Merger& merger) {
    const auto add = [&](Node made, const ArrayType& type) {
      const ValueId same = peephole(to, made, type);
      return same.valid() ? same : add_or_find(std::move(made), type, to, merger);
    };
    Node copy = node;
    for (ValueId& operand : copy.operands) {
      const ValueId v = operand;
      operand = map[v];
      if (turned[v.index()] != nullptr) continue;
      Node reverse = *turned[node.first_result.index()];
      reverse.operands = {operand};
      operand = add(std::move(reverse), from.type(v));
    }
    map.set(node.first_result, add(std::move(copy), from.type(node.first_result)));
  }

  // `uses`: of the values of `from`, counted when first needed.
  void rewrite_node(const Graph& from, const Node& node, Graph& to, ValueMap& map, Merger& merger,
                    std::vector<int>& uses) {
    Node copy = node;
    for (ValueId& operand : copy.operands) operand = map[operand];
    for (GraphPtr& nested : copy.graphs) nested = rewrite_nested(nested);
    if (const int axis = first_axis_of_rows(to, copy); axis > 0)
      reduce_rows(axis, to, copy, merger);
    if (node.op == OpKind::kSlice) narrow(from, node, to, map, merger, uses, copy);
    if (node.n_results == 1) {
      const ValueId same = peephole(to, copy, from.type(node.first_result));
      if (same.valid()) return map.set(node.first_result, same);
    }
    types_.clear();
    for (int i = 0; i < node.n_results; ++i) types_.push_back(from.type(node.result(i)));
    const std::vector<ValueId> handed = drop_passthrough(copy, types_);
    copy.n_results = static_cast<int>(types_.size());
    if (node.n_results > 0 && types_.empty()) {
      for (int i = 0; i < node.n_results; ++i)
        map.set(node.result(i), handed[static_cast<size_t>(i)]);
      return;
    }
    NodeId id(to.n_nodes());
    if (!is_kept_apart(node.op)) id = merger.find_or_enter(copy, id);
    if (id.index() == to.n_nodes()) to.add_node(std::move(copy), types_);
    int next = 0;
    for (int i = 0; i < node.n_results; ++i)
      map.set(node.result(i), handed[static_cast<size_t>(i)].valid()
                                  ? handed[static_cast<size_t>(i)]
                                  : to.node(id).result(next++));
  }

  // Returns the result of a node with one result, which the graph may have already.
  static ValueId add_or_find(Node node, const ArrayType& type, Graph& to, Merger& merger) {
    const NodeId id = merger.find_or_enter(node, NodeId(to.n_nodes()));
    if (id.index() == to.n_nodes()) to.add_node(std::move(node), {&type, 1});
    return to.node(id).result();
  }

  // Adds a node that reduces the trailing axes of a reduction; `node` becomes the reduction of the
  // others.
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
    node.operands = {add_or_find(std::move(rows), type, to, merger)};
    node.params = AxesParams{std::move(left)};
  }

  // Adds a slice that takes only the used part of a dynamic_slice; `copy` becomes a reshape of it.
  void narrow(const Graph& from, const Node& node, Graph& to, const ValueMap& map, Merger& merger,
              std::vector<int>& uses, Node& copy) {
    if (uses.empty()) uses = count_uses(from);
    const std::optional<NarrowedSlice> narrowed = narrowed_slice(
        from, uses, node, [&](ValueId v) { return known_integer(to, map[v]); });
    if (!narrowed) return;
    Node taken = *narrowed->wide;
    taken.params = ShapeParams{narrowed->shape};
    for (ValueId& operand : taken.operands) operand = map[operand];
    for (size_t axis = 0; axis < narrowed->starts.size(); ++axis)
      if (const std::optional<int64_t> start = narrowed->starts[axis]) {
        Node constant = taken;
        const ArrayType& type = to.type(taken.operands[1 + axis]);
        constant.op = OpKind::kConstant;
        constant.params = ConstantParams{type, *encode_scalar_int(type.dtype, *start)};
        constant.operands.clear();
        taken.operands[1 + axis] = add_or_find(std::move(constant), type, to, merger);
      }
    ArrayType type = from.type(narrowed->wide->result());
    type.shape = narrowed->shape;
    copy.op = OpKind::kReshape;
    copy.params = ShapeParams{from.type(node.result()).shape};
    copy.operands = {add_or_find(std::move(taken), type, to, merger)};
  }

  GraphPtr rewrite_nested(const GraphPtr& nested) {
    if (const auto known = nested_.find(nested); known != nested_.end()) return known->second;
    auto rewritten = std::make_shared<const Graph>(rewrite(*nested));
    nested_.emplace(nested, rewritten);
    return rewritten;
  }

  bool sinks_;
  std::unordered_map<GraphPtr, GraphPtr> nested_;  // a body that several nodes share stays shared
  std::vector<ArrayType> types_;
};

}  // namespace

Graph simplify(const Graph& graph) {
  Graph simple = remove_dead_code(Simplifier(false).rewrite(graph));
  // Each round leaves fewer ops before a reverse.
  while (reverses_what_is_made_for_it(simple))
    simple = remove_dead_code(Simplifier(true).rewrite(simple));
  return simple;
}

}  // namespace stow
