#include "stowage/autodiff/flatten.h"

namespace stow {
namespace {

// Copies the nodes of `from` into `to`, checkpoints inlined, and the functions of custom_vjp nodes
// where `all` says so. The inputs are set in `map` already. Work in a node of the backward part is
// backward work.
void inline_nodes(const Graph& from, Graph& to, ValueMap& map, RegionId parent, bool backward,
                  bool all) {
  const std::vector<RegionId> regions = import_regions(from, to, parent);
  for (const Node& node : from.nodes()) {
    const RegionId around = node.region.valid() ? regions[node.region.index()] : parent;
    const bool is_checkpoint = node.op == OpKind::kCheckpoint;
    if (!is_checkpoint && !(all && node.op == OpKind::kCustomVjp)) {
      Node& copy = to.mutable_node(copy_node(from, node, to, map, regions));
      copy.region = around;
      copy.backward |= backward;
      if (!all) continue;
      for (GraphPtr& nested : copy.graphs)
        nested = std::make_shared<const Graph>(flatten_all(*nested));
      continue;
    }
    RegionId region = around;
    if (is_checkpoint) {
      const auto& params = node.as<CheckpointParams>();
      region = to.add_region({around, params.policy, params.prevent_cse, node.provenance});
    }
    const Graph& body = *node.graphs[0];
    ValueMap inner(body);
    for (size_t i = 0; i < node.operands.size(); ++i)
      inner.set(body.inputs()[i], map[node.operands[i]]);
    inline_nodes(body, to, inner, region, backward || node.backward, all);
    for (int i = 0; i < node.n_results; ++i)
      map.set(node.result(i), inner[body.outputs()[static_cast<size_t>(i)]]);
  }
}

// True when a result of the node may carry a derivative of a varied operand.
bool passes_derivative(OpKind op) {
  return op != OpKind::kStopGradient;
}

}  // namespace

namespace {

Graph flatten(const Graph& graph, bool all) {
  Graph flat;
  ValueMap map(graph);
  copy_inputs(graph, flat, map);
  inline_nodes(graph, flat, map, RegionId(), false, all);
  flat.set_outputs(map.images(graph.outputs()));
  return flat;
}

}  // namespace

Graph flatten_checkpoints(const Graph& graph) {
  return flatten(graph, false);
}
Graph flatten_all(const Graph& graph) {
  return flatten(graph, true);
}

std::vector<ValueId> inline_flat(const Graph& from, std::span<const ValueId> inputs, Graph& to,
                                 RegionId parent, bool backward) {
  const size_t first = to.n_nodes();
  ValueMap map(from);
  for (size_t i = 0; i < inputs.size(); ++i) map.set(from.inputs()[i], inputs[i]);
  inline_nodes(from, to, map, parent, backward, false);
  for (size_t n = first; n < to.n_nodes(); ++n) {
    Node& node = to.mutable_node(NodeId(n));
    node.backward = backward;
    if (backward) node.region = RegionId();
  }
  return map.images(from.outputs());
}

Activity activity(const Graph& flat, const ReverseSpec& spec) {
  Activity a;
  a.varied_.resize(flat.n_values());
  a.useful_.resize(flat.n_values());
  for (int i : spec.wrt) a.varied_[flat.inputs()[static_cast<size_t>(i)].index()] = true;
  for (const Node& node : flat.nodes()) {
    bool varied = false;
    for (ValueId v : node.operands) varied |= a.varied(v);
    if (!varied || !passes_derivative(node.op)) continue;
    for (int i = 0; i < node.n_results; ++i)
      a.varied_[node.result(i).index()] = is_float(flat.type(node.result(i)).dtype);
  }
  for (int i : spec.outputs) a.useful_[flat.outputs()[static_cast<size_t>(i)].index()] = true;
  for (size_t n = flat.n_nodes(); n-- > 0;) {
    const Node& node = flat.nodes()[n];
    bool useful = false;
    for (int i = 0; i < node.n_results; ++i) useful |= a.active(node.result(i));
    if (!useful) continue;
    for (ValueId v : node.operands) a.useful_[v.index()] = true;
  }
  return a;
}

}  // namespace stow
