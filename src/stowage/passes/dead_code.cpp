#include "stowage/passes/dead_code.h"

#include <algorithm>
#include <utility>

namespace stow {
namespace {

// True for nodes with nested graphs that may be pruned. The rules of a custom_vjp need all of it.
bool is_structure(const Node& node) {
  return op_class(node.op) == OpClass::kStructure && node.op != OpKind::kCustomVjp;
}

// Inputs [first, first + n) of a nested graph take as many operands from `operand` on.
struct InputRange {
  size_t first, n, operand;
};
std::vector<InputRange> input_ranges(const Node& node, size_t g) {
  const size_t n = node.graphs[g]->inputs().size();
  if (node.op == OpKind::kCond) return {{0, n, 1}};
  if (node.op != OpKind::kWhile) return {{0, n, 0}};
  const auto& p = node.as<WhileParams>();
  const auto n_cond = static_cast<size_t>(p.n_cond_consts),
             n_body = static_cast<size_t>(p.n_body_consts);
  const size_t n_consts = g == 0 ? n_cond : n_body;
  return {{0, n_consts, g == 0 ? 0 : n_cond}, {n_consts, n - n_consts, n_cond + n_body}};
}
size_t operand_of_input(const Node& node, size_t g, size_t input) {
  for (const InputRange& range : input_ranges(node, g))
    if (input < range.first + range.n) return input - range.first + range.operand;
  STOW_CHECK(false, "input {} of {} has no operand", input, op_name(node.op));
  return 0;
}

// Returns the number of carries of a node with nested graphs.
int n_carries(const Node& node) {
  if (node.op == OpKind::kWhile) return node.n_results;
  return node.op == OpKind::kScan ? node.as<ScanParams>().n_carries : 0;
}
int first_carry(const Node& node) {
  if (node.op == OpKind::kWhile)
    return node.as<WhileParams>().n_cond_consts + node.as<WhileParams>().n_body_consts;
  return node.op == OpKind::kScan ? node.as<ScanParams>().n_consts : 0;
}
// True if the results of a node are the outputs of its graph `g`.
bool gives_results(const Node& node, size_t g) {
  return node.op != OpKind::kWhile || g == 1;
}

// The values of a graph that are needed; each nested graph has a Liveness of its own. Each value is
// marked once, when it is found to be needed. A carry that the body reads makes another output of
// the body needed, and so on until nothing changes.
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
  /// The Liveness of a graph of a live node with nested graphs.
  const Liveness& body(size_t node, size_t graph) const { return *bodies_[node][graph]; }

  void mark(ValueId v) {
    if (live(v)) return;
    live_[v.index()] = true;
    work_.push_back(v);
  }
  // Marks the values that marked values need.
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
    auto& bodies = bodies_[id.index()];
    if (bodies.empty()) {
      for (const GraphPtr& nested : node.graphs)
        bodies.push_back(std::make_unique<Liveness>(*nested));
      if (node.op == OpKind::kCond) mark(node.operands[0]);
      if (node.op == OpKind::kWhile) bodies[0]->mark(node.graphs[0]->outputs()[0]);
    }
    // The final value of a carry is its initial one if the loop has no iteration.
    if (result < n_carries(node)) mark(operand(node, first_carry(node) + result));
    for (size_t g = 0; g < bodies.size(); ++g)
      if (gives_results(node, g))
        bodies[g]->mark(node.graphs[g]->outputs()[static_cast<size_t>(result)]);
    for (bool again = true; again;) {
      again = false;
      for (size_t g = 0; g < bodies.size(); ++g) {
        bodies[g]->run();
        for (const int input : std::exchange(bodies[g]->reached_inputs_, {})) {
          again = true;
          const size_t at = operand_of_input(node, g, static_cast<size_t>(input));
          mark(node.operands[at]);
          const int carry = static_cast<int>(at) - first_carry(node);
          if (carry < 0 || carry >= n_carries(node)) continue;
          for (size_t other = 0; other < bodies.size(); ++other)
            if (gives_results(node, other))
              bodies[other]->mark(node.graphs[other]->outputs()[static_cast<size_t>(carry)]);
        }
      }
    }
  }
  static ValueId operand(const Node& node, int i) { return node.operands[static_cast<size_t>(i)]; }

  const Graph& graph_;
  std::vector<bool> live_;
  std::vector<std::vector<std::unique_ptr<Liveness>>> bodies_;  // of live nodes with nested graphs
  std::vector<ValueId> work_;
  std::vector<int> reached_inputs_;  // since the holder last looked
};

// The inputs and outputs of a graph that stay.
struct Kept {
  std::vector<bool> inputs, outputs;
  bool all() const {
    return std::find(inputs.begin(), inputs.end(), false) == inputs.end() &&
           std::find(outputs.begin(), outputs.end(), false) == outputs.end();
  }
};

// Returns the operands and results of a node that stay.
Kept kept_parts(const Graph& graph, size_t index, const Liveness& liveness) {
  const Node& node = graph.nodes()[index];
  Kept kept{std::vector<bool>(node.operands.size(), node.op == OpKind::kCond), {}};
  for (size_t i = 1; node.op == OpKind::kCond && i < kept.inputs.size(); ++i)
    kept.inputs[i] = false;
  for (size_t g = 0; g < node.graphs.size(); ++g)
    for (size_t i = 0; i < node.graphs[g]->inputs().size(); ++i)
      if (liveness.body(index, g).live(node.graphs[g]->inputs()[i]))
        kept.inputs[operand_of_input(node, g, i)] = true;
  for (int i = 0; i < node.n_results; ++i) kept.outputs.push_back(liveness.live(node.result(i)));
  for (int i = 0; i < n_carries(node); ++i) {
    const auto in = static_cast<size_t>(first_carry(node) + i), out = static_cast<size_t>(i);
    kept.inputs[in] = kept.outputs[out] = kept.inputs[in] || kept.outputs[out];
  }
  return kept;
}

// Returns the inputs and outputs of graph `g` of the node that stay.
Kept kept_of_graph(const Node& node, size_t g, const Kept& kept) {
  Kept result;
  for (size_t i = 0; i < node.graphs[g]->inputs().size(); ++i)
    result.inputs.push_back(kept.inputs[operand_of_input(node, g, i)]);
  if (gives_results(node, g))
    result.outputs = kept.outputs;
  else
    result.outputs.assign(node.graphs[g]->outputs().size(), true);
  return result;
}

template <typename T>
std::vector<T> filtered(const std::vector<T>& list, const std::vector<bool>& keep, size_t first) {
  std::vector<T> result;
  for (size_t i = 0; i < list.size(); ++i)
    if (keep[first + i]) result.push_back(list[i]);
  return result;
}

int count_kept(const std::vector<bool>& keep, size_t begin, size_t end) {
  return static_cast<int>(std::count(keep.begin() + static_cast<ptrdiff_t>(begin),
                                     keep.begin() + static_cast<ptrdiff_t>(end), true));
}
int count_last(const std::vector<bool>& keep, int n) {
  return count_kept(keep, keep.size() - static_cast<size_t>(n), keep.size());
}

Params trimmed(const Node& node, const Kept& kept) {
  if (node.op == OpKind::kScan) {
    auto p = node.as<ScanParams>();
    const auto n_consts = static_cast<size_t>(p.n_consts),
               n_carries = static_cast<size_t>(p.n_carries);
    p.n_consts = count_kept(kept.inputs, 0, n_consts);
    p.n_carries = count_kept(kept.outputs, 0, n_carries);
    p.in_axes = filtered(p.in_axes, kept.inputs, n_consts + n_carries);
    p.out_axes = filtered(p.out_axes, kept.outputs, n_carries);
    p.n_residuals = count_last(kept.outputs, p.n_residuals);
    return p;
  }
  if (node.op == OpKind::kCond)
    return CondParams{count_last(kept.outputs, node.as<CondParams>().n_residuals)};
  if (node.op == OpKind::kWhile) {
    const auto& p = node.as<WhileParams>();
    const auto n_cond = static_cast<size_t>(p.n_cond_consts),
               n_body = static_cast<size_t>(p.n_body_consts);
    return WhileParams{count_kept(kept.inputs, 0, n_cond),
                       count_kept(kept.inputs, n_cond, n_cond + n_body)};
  }
  return node.params;
}

bool nothing_to_drop(const Graph& graph, const Liveness& liveness) {
  for (size_t i = 0; i < graph.n_nodes(); ++i) {
    const Node& node = graph.nodes()[i];
    if (!liveness.live(node)) return false;
    if (!is_structure(node)) continue;
    const Kept kept = kept_parts(graph, i, liveness);
    if (!kept.all()) return false;
    for (size_t g = 0; g < node.graphs.size(); ++g)
      if (!nothing_to_drop(*node.graphs[g], liveness.body(i, g))) return false;
  }
  return true;
}

Graph keep(const Graph& from, const Liveness& liveness, const Kept& kept);

// Appends the image of a node with nested graphs.
void keep_structure(const Graph& from, size_t index, const Liveness& liveness, Graph& to,
                    ValueMap& map) {
  const Node& node = from.nodes()[index];
  const Kept kept = kept_parts(from, index, liveness);
  Node copy = node;
  for (size_t g = 0; g < node.graphs.size(); ++g) {
    const Kept of_graph = kept_of_graph(node, g, kept);
    const Liveness& body = liveness.body(index, g);
    if (!of_graph.all() || !nothing_to_drop(*node.graphs[g], body))
      copy.graphs[g] = std::make_shared<const Graph>(keep(*node.graphs[g], body, of_graph));
  }
  copy.params = trimmed(node, kept);
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
      copy_input(from, i, to, map);
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
