#include "stowage/passes/dead_code.h"

#include <algorithm>
#include <utility>

namespace stow {
namespace {

// The rules of a custom_vjp node need all of it.
bool is_structure(const Node& node) {
  return op_class(node.op) == OpClass::kStructure && node.op != OpKind::kCustomVjp;
}

// How many carries a node with a nested graph has, and which operand is the first.
int n_carries(const Node& node) {
  return node.op == OpKind::kScan ? node.as<ScanParams>().n_carries : 0;
}
int first_carry(const Node& node) {
  return node.op == OpKind::kScan ? node.as<ScanParams>().n_consts : 0;
}

// Which values of a graph are needed, those of nested graphs in a Liveness of their own. Values
// are marked one at a time as they turn out to be needed, each once: a carry that the body comes
// to read makes one more output of the body needed, and so on until nothing changes.
class Liveness {
 public:
  explicit Liveness(const Graph& graph)
      : graph_(graph), live_(graph.n_values()), bodies_(graph.n_nodes()) {}

  bool live(ValueId v) const { return live_[v.index()]; }
  bool live(const Node& node) const {
    for (int i = 0; i < node.n_results; ++i)
      if (live(node.result(i))) return true;
    return false;
  }
  /// Of a live node with a nested graph.
  const Liveness& body(size_t node) const { return *bodies_[node]; }

  void mark(ValueId v) {
    if (live(v)) return;
    live_[v.index()] = true;
    work_.push_back(v);
  }
  // Marks what the values marked so far need.
  void run() {
    while (!work_.empty()) {
      const Value& value = graph_.value(work_.back());
      work_.pop_back();
      if (!value.node.valid()) {
        reached_inputs_.push_back(value.index);
        continue;
      }
      const Node& node = graph_.node(value.node);
      if (is_structure(node)) {
        reach_result(value.node, value.index);
      } else {
        for (ValueId operand : node.operands) mark(operand);
      }
    }
  }

 private:
  void reach_result(NodeId id, int result) {
    const Node& node = graph_.node(id);
    std::unique_ptr<Liveness>& body = bodies_[id.index()];
    if (!body) body = std::make_unique<Liveness>(*node.graphs[0]);
    // The final value of a carry is its first one where the scan has no iteration.
    if (result < n_carries(node)) mark(operand(node, first_carry(node) + result));
    body->mark(body->graph_.outputs()[static_cast<size_t>(result)]);
    for (body->run(); !body->reached_inputs_.empty(); body->run()) {
      for (const int input : std::exchange(body->reached_inputs_, {})) {
        mark(operand(node, input));
        const int carry = input - first_carry(node);
        if (carry >= 0 && carry < n_carries(node))
          body->mark(body->graph_.outputs()[static_cast<size_t>(carry)]);
      }
    }
  }
  static ValueId operand(const Node& node, int i) { return node.operands[static_cast<size_t>(i)]; }

  const Graph& graph_;
  std::vector<bool> live_;
  std::vector<std::unique_ptr<Liveness>> bodies_;  // one a node that has a nested graph and is live
  std::vector<ValueId> work_;
  std::vector<int> reached_inputs_;  // since the holder last looked
};

// Which operands (inputs of the body) and results (outputs of the body) of a node stay.
struct Kept {
  std::vector<bool> inputs, outputs;
  bool all() const {
    return std::find(inputs.begin(), inputs.end(), false) == inputs.end() &&
           std::find(outputs.begin(), outputs.end(), false) == outputs.end();
  }
};

Kept kept_parts(const Node& node, const Liveness& outer, const Liveness& body) {
  const Graph& graph = *node.graphs[0];
  Kept kept;
  for (ValueId input : graph.inputs()) kept.inputs.push_back(body.live(input));
  for (int i = 0; i < node.n_results; ++i) kept.outputs.push_back(outer.live(node.result(i)));
  for (int i = 0; i < n_carries(node); ++i) {
    const auto in = static_cast<size_t>(first_carry(node) + i), out = static_cast<size_t>(i);
    kept.inputs[in] = kept.outputs[out] = kept.inputs[in] || kept.outputs[out];
  }
  return kept;
}

template <typename T>
std::vector<T> filtered(const std::vector<T>& list, const std::vector<bool>& keep, size_t first) {
  std::vector<T> result;
  for (size_t i = 0; i < list.size(); ++i)
    if (keep[first + i]) result.push_back(list[i]);
  return result;
}

ScanParams trimmed(const ScanParams& p, const Kept& kept) {
  ScanParams result = p;
  const auto n_consts = static_cast<size_t>(p.n_consts),
             n_carries = static_cast<size_t>(p.n_carries);
  const auto count = [](const std::vector<bool>& keep, size_t begin, size_t end) {
    return static_cast<int>(std::count(keep.begin() + static_cast<ptrdiff_t>(begin),
                                       keep.begin() + static_cast<ptrdiff_t>(end), true));
  };
  result.n_consts = count(kept.inputs, 0, n_consts);
  result.n_carries = count(kept.outputs, 0, n_carries);
  result.in_axes = filtered(p.in_axes, kept.inputs, n_consts + n_carries);
  result.out_axes = filtered(p.out_axes, kept.outputs, n_carries);
  result.n_residuals = count(kept.outputs, kept.outputs.size() - static_cast<size_t>(p.n_residuals),
                             kept.outputs.size());
  return result;
}

bool nothing_to_drop(const Graph& graph, const Liveness& liveness) {
  for (size_t i = 0; i < graph.n_nodes(); ++i) {
    const Node& node = graph.nodes()[i];
    if (!liveness.live(node)) return false;
    if (is_structure(node) && (!kept_parts(node, liveness, liveness.body(i)).all() ||
                               !nothing_to_drop(*node.graphs[0], liveness.body(i))))
      return false;
  }
  return true;
}

Graph keep(const Graph& from, const Liveness& liveness, const Kept& kept);

// Appends the image of a node with a nested graph.
void keep_structure(const Graph& from, size_t index, const Liveness& liveness, Graph& to,
                    ValueMap& map) {
  const Node& node = from.nodes()[index];
  const Liveness& body = liveness.body(index);
  const Kept kept = kept_parts(node, liveness, body);
  Node copy = node;
  if (!kept.all() || !nothing_to_drop(*node.graphs[0], body))
    copy.graphs = {std::make_shared<const Graph>(keep(*node.graphs[0], body, kept))};
  if (node.op == OpKind::kScan) copy.params = trimmed(node.as<ScanParams>(), kept);
  copy.operands = filtered(node.operands, kept.inputs, 0);
  for (ValueId& operand : copy.operands) operand = map[operand];
  std::vector<ArrayType> types;
  for (int i = 0; i < node.n_results; ++i)
    if (kept.outputs[static_cast<size_t>(i)]) types.push_back(from.type(node.result(i)));
  const NodeId id = to.add_node(std::move(copy), types);
  int next = 0;
  for (int i = 0; i < node.n_results; ++i)
    if (kept.outputs[static_cast<size_t>(i)]) map.set(node.result(i), to.node(id).result(next++));
}

Graph keep(const Graph& from, const Liveness& liveness, const Kept& kept) {
  Graph to;
  ValueMap map(from);
  for (size_t i = 0; i < from.inputs().size(); ++i)
    if (kept.inputs[i])
      map.set(from.inputs()[i], to.add_input(from.type(from.inputs()[i]), from.input_names()[i]));
  const std::vector<RegionId> regions = import_regions(from, to, RegionId());
  for (size_t i = 0; i < from.n_nodes(); ++i) {
    const Node& node = from.nodes()[i];
    if (!liveness.live(node)) continue;
    if (is_structure(node))
      keep_structure(from, i, liveness, to, map);
    else
      copy_node(from, node, to, map, regions);
  }
  std::vector<ValueId> outputs = filtered(from.outputs(), kept.outputs, 0);
  for (ValueId& output : outputs) output = map[output];
  to.set_outputs(std::move(outputs));
  return to;
}

}  // namespace

Graph remove_dead_code(Graph graph) {
  Liveness liveness(graph);
  for (ValueId output : graph.outputs()) liveness.mark(output);
  liveness.run();
  if (nothing_to_drop(graph, liveness)) return graph;
  return keep(graph, liveness,
              {std::vector<bool>(graph.inputs().size(), true),
               std::vector<bool>(graph.outputs().size(), true)});
}

}  // namespace stow
