#include "stowage/passes/drop_passthrough.h"

#include <algorithm>

namespace stow {
namespace {

// Returns the graph with its inputs in another order and some of its outputs.
GraphPtr rearranged(const Graph& from, const std::vector<size_t>& inputs,
                    const std::vector<ValueId>& outputs) {
  Graph graph;
  ValueMap map(from);
  for (size_t i : inputs)
    copy_input(from, i, graph, map);
  const std::vector<RegionId> regions = import_regions(from, graph, RegionId());
  for (const Node& node : from.nodes()) copy_node(from, node, graph, map, regions);
  std::vector<ValueId> results;
  for (ValueId v : outputs) results.push_back(map[v]);
  graph.set_outputs(std::move(results));
  return std::make_shared<const Graph>(std::move(graph));
}

// Returns the input that output `o` of a graph is, or -1.
int input_of_output(const Graph& graph, size_t o) {
  const ValueId v = graph.outputs()[o];
  return graph.is_input(v) ? graph.value(v).index : -1;
}

std::vector<ValueId> of_cond(Node& node, size_t n_results) {
  std::vector<ValueId> handed(n_results);
  for (size_t o = 0; o < n_results; ++o) {
    const int input = input_of_output(*node.graphs[0], o);
    const bool same =
        input >= 0 && std::all_of(node.graphs.begin(), node.graphs.end(), [&](const GraphPtr& g) {
          return input_of_output(*g, o) == input;
        });
    if (same) handed[o] = node.operands[static_cast<size_t>(input) + 1];
  }
  if (std::none_of(handed.begin(), handed.end(), [](ValueId v) { return v.valid(); }))
    return handed;
  int n_residuals = node.as<CondParams>().n_residuals;
  for (size_t o = n_results - static_cast<size_t>(n_residuals); o < n_results; ++o)
    if (handed[o].valid()) --n_residuals;
  node.params = CondParams{n_residuals};
  std::vector<size_t> inputs;
  for (size_t i = 0; i + 1 < node.operands.size(); ++i) inputs.push_back(i);
  for (GraphPtr& graph : node.graphs) {
    std::vector<ValueId> outputs;
    for (size_t o = 0; o < n_results; ++o)
      if (!handed[o].valid()) outputs.push_back(graph->outputs()[o]);
    graph = rearranged(*graph, inputs, outputs);
  }
  return handed;
}

std::vector<ValueId> of_while(Node& node, size_t n_results) {
  const auto p = node.as<WhileParams>();
  const auto n_cond = static_cast<size_t>(p.n_cond_consts),
             n_body = static_cast<size_t>(p.n_body_consts);
  const Graph& body = *node.graphs[1];
  std::vector<ValueId> handed(n_results);
  std::vector<size_t> still, moving;
  for (size_t k = 0; k < n_results; ++k)
    (input_of_output(body, k) == static_cast<int>(n_body + k) ? still : moving).push_back(k);
  if (still.empty()) return handed;
  const auto operand = [&](size_t carry) { return node.operands[n_cond + n_body + carry]; };
  std::vector<ValueId> operands;
  std::vector<size_t> inputs[2];
  for (size_t g = 0; g < 2; ++g) {
    const size_t n_consts = g == 0 ? n_cond : n_body, first = g == 0 ? 0 : n_cond;
    for (size_t i = 0; i < n_consts; ++i) {
      operands.push_back(node.operands[first + i]);
      inputs[g].push_back(i);
    }
    for (size_t k : still) {
      operands.push_back(operand(k));
      inputs[g].push_back(n_consts + k);
    }
    for (size_t k : moving) inputs[g].push_back(n_consts + k);
  }
  std::vector<ValueId> outputs;
  for (size_t k : moving) {
    operands.push_back(operand(k));
    outputs.push_back(body.outputs()[k]);
  }
  for (size_t k : still) handed[k] = operand(k);
  node.graphs = {rearranged(*node.graphs[0], inputs[0], node.graphs[0]->outputs()),
                 rearranged(body, inputs[1], outputs)};
  node.operands = std::move(operands);
  const auto n_still = static_cast<int>(still.size());
  node.params = WhileParams{p.n_cond_consts + n_still, p.n_body_consts + n_still};
  return handed;
}

}  // namespace

std::vector<ValueId> drop_passthrough(Node& node, std::vector<ArrayType>& types) {
  std::vector<ValueId> handed(types.size());
  if (node.op == OpKind::kCond) handed = of_cond(node, types.size());
  if (node.op == OpKind::kWhile) handed = of_while(node, types.size());
  std::vector<ArrayType> kept;
  for (size_t i = 0; i < types.size(); ++i)
    if (!handed[i].valid()) kept.push_back(types[i]);
  types = std::move(kept);
  return handed;
}

}  // namespace stow
