#include "stowage/autodiff/linear.h"

#include <algorithm>

namespace stow {
namespace {

using Mask = std::vector<bool>;

bool any(const Mask& mask) {
  return std::find(mask.begin(), mask.end(), true) != mask.end();
}

Mask dependent_outputs(const Graph& graph, const Mask& inputs) {
  const Mask values = dependent_values(graph, inputs);
  Mask outputs;
  for (ValueId v : graph.outputs()) outputs.push_back(values[v.index()]);
  return outputs;
}

// An iteration begins with the carry of the one before, so marks of outputs become marks of inputs.
Mask scan_results(const Node& node, Mask inputs) {
  const auto& p = node.as<ScanParams>();
  while (true) {
    Mask outputs = dependent_outputs(*node.graphs[0], inputs);
    bool changed = false;
    for (int k = 0; k < p.n_carries; ++k) {
      const auto in = static_cast<size_t>(p.n_consts + k), out = static_cast<size_t>(k);
      if (outputs[out] && !inputs[in]) inputs[in] = changed = true;
      if (inputs[in]) outputs[out] = true;  // after no iteration the carry is what entered
    }
    if (!changed) return outputs;
  }
}

Mask cond_results(const Node& node, const Mask& operands) {
  const auto n = static_cast<size_t>(node.n_results);
  if (operands[0]) return Mask(n, true);
  const Mask inputs(operands.begin() + 1, operands.end());
  Mask results(n);
  for (const GraphPtr& branch : node.graphs) {
    const Mask outputs = dependent_outputs(*branch, inputs);
    for (size_t i = 0; i < n; ++i) results[i] = results[i] || outputs[i];
  }
  return results;
}

Mask results_of(const Node& node, const Mask& operands) {
  if (!any(operands)) return Mask(static_cast<size_t>(node.n_results));
  if (node.op == OpKind::kScan) return scan_results(node, operands);
  if (node.op == OpKind::kCond) return cond_results(node, operands);
  if (node.op == OpKind::kCheckpoint || node.op == OpKind::kCustomVjp)
    return dependent_outputs(*node.graphs[0], operands);
  return Mask(static_cast<size_t>(node.n_results), true);
}

// Values that the outputs of a graph need.
Mask needed_values(const Graph& graph) {
  Mask needed(graph.n_values());
  for (ValueId v : graph.outputs()) needed[v.index()] = true;
  for (size_t n = graph.n_nodes(); n-- > 0;) {
    const Node& node = graph.nodes()[n];
    bool is_needed = false;
    for (int i = 0; i < node.n_results; ++i) is_needed |= needed[node.result(i).index()];
    if (!is_needed) continue;
    for (ValueId v : node.operands) needed[v.index()] = true;
  }
  return needed;
}

}  // namespace

std::vector<bool> dependent_values(const Graph& graph, const std::vector<bool>& inputs) {
  Mask values(graph.n_values());
  for (size_t i = 0; i < inputs.size(); ++i) values[graph.inputs()[i].index()] = inputs[i];
  for (const Node& node : graph.nodes()) {
    Mask operands;
    for (ValueId v : node.operands) operands.push_back(values[v.index()]);
    const Mask results = results_of(node, operands);
    for (int i = 0; i < node.n_results; ++i)
      values[node.result(i).index()] = results[static_cast<size_t>(i)];
  }
  return values;
}

std::optional<ValueId> find_nonlinear_value(const SplitReverse& split, size_t n_outputs,
                                            const std::vector<bool>& dependent) {
  const Mask needed = needed_values(split.backward);
  const std::span<const ValueId> outputs = split.forward.outputs();
  for (size_t i = n_outputs; i < outputs.size(); ++i) {
    const ValueId input = split.backward.inputs()[i - n_outputs];
    if (needed[input.index()] && dependent[outputs[i].index()]) return outputs[i];
  }
  return std::nullopt;
}

}  // namespace stow
