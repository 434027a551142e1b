#include "tests/support/evaluate.h"

#include <algorithm>
#include <cstring>

#include "stowage/runtime/cpu/reference/reference.h"

namespace stow::testing {
namespace {

TensorView view(const ArrayType& type, Bytes& bytes) {
  return {bytes.data(), type.dtype, type.shape.dims(), contiguous_strides(type.shape)};
}

// Copies slice `index` along `axis` of a stack out of it, or into it.
void copy_slice(const ArrayType& stack_type, int64_t axis, int64_t index, std::byte* stack,
                std::byte* slice, bool into_stack) {
  int64_t outer = 1, inner = dtype_bytes(stack_type.dtype);
  for (int i = 0; i < stack_type.shape.rank(); ++i)
    (i < axis ? outer : inner) *= i == axis ? 1 : stack_type.shape[i];
  if (inner == 0) return;  // there may be no memory at all
  const int64_t length = stack_type.shape[static_cast<int>(axis)];
  for (int64_t o = 0; o < outer; ++o) {
    std::byte* const at = stack + (o * length + index) * inner;
    std::byte* const part = slice + o * inner;
    std::memcpy(into_stack ? at : part, into_stack ? part : at, static_cast<size_t>(inner));
  }
}

std::vector<Bytes> evaluate_scan(const Graph& graph, const Node& node,
                                 std::vector<Bytes> operands) {
  const auto& p = node.as<ScanParams>();
  const Graph& body = *node.graphs[0];
  const auto n_consts = static_cast<size_t>(p.n_consts),
             n_carries = static_cast<size_t>(p.n_carries);
  std::vector<Bytes> inputs(operands.begin(),
                            operands.begin() + static_cast<ptrdiff_t>(n_consts + n_carries));
  for (size_t i = inputs.size(); i < operands.size(); ++i)
    inputs.emplace_back(static_cast<size_t>(body.type(body.inputs()[i]).bytes()));
  std::vector<Bytes> results;
  for (int i = 0; i < node.n_results; ++i)
    results.emplace_back(static_cast<size_t>(graph.type(node.result(i)).bytes()));
  for (int64_t step = 0; step < p.length; ++step) {
    const int64_t index = p.reverse ? p.length - 1 - step : step;
    for (size_t i = 0; i < p.in_axes.size(); ++i) {
      const size_t at = n_consts + n_carries + i;
      copy_slice(graph.type(node.operands[at]), p.in_axes[i], index, operands[at].data(),
                 inputs[at].data(), false);
    }
    std::vector<Bytes> outputs = evaluate(body, inputs);
    for (size_t i = 0; i < n_carries; ++i) inputs[n_consts + i] = outputs[i];
    for (size_t i = 0; i < p.out_axes.size(); ++i) {
      const size_t at = n_carries + i;
      copy_slice(graph.type(node.result(static_cast<int>(at))), p.out_axes[i], index,
                 results[at].data(), outputs[at].data(), true);
    }
  }
  for (size_t i = 0; i < n_carries; ++i) results[i] = inputs[n_consts + i];
  return results;
}

std::vector<Bytes> evaluate_cond(const Graph& graph, const Node& node,
                                 std::vector<Bytes> operands) {
  int32_t index = 0;
  if (graph.type(node.operands[0]).dtype == DType::kBool)
    index = operands[0][0] != std::byte{0};
  else
    std::memcpy(&index, operands[0].data(), sizeof index);
  const auto last = static_cast<int32_t>(node.graphs.size()) - 1;
  operands.erase(operands.begin());
  return evaluate(*node.graphs[static_cast<size_t>(std::clamp(index, 0, last))], operands);
}

std::vector<Bytes> evaluate_while(const Node& node, const std::vector<Bytes>& operands) {
  const auto& p = node.as<WhileParams>();
  const auto begin = operands.begin();
  const std::vector<Bytes> cond_consts(begin, begin + p.n_cond_consts);
  const std::vector<Bytes> body_consts(begin + p.n_cond_consts,
                                       begin + p.n_cond_consts + p.n_body_consts);
  std::vector<Bytes> carries(begin + p.n_cond_consts + p.n_body_consts, operands.end());
  const auto with = [&](std::vector<Bytes> consts) {
    consts.insert(consts.end(), carries.begin(), carries.end());
    return consts;
  };
  while (evaluate(*node.graphs[0], with(cond_consts))[0][0] != std::byte{0})
    carries = evaluate(*node.graphs[1], with(body_consts));
  return carries;
}

std::vector<Bytes> evaluate_node(const Graph& graph, const Node& node,
                                 std::vector<Bytes> operands) {
  if (node.op == OpKind::kScan) return evaluate_scan(graph, node, std::move(operands));
  if (node.op == OpKind::kCond) return evaluate_cond(graph, node, std::move(operands));
  if (node.op == OpKind::kWhile) return evaluate_while(node, operands);
  if (node.op == OpKind::kCheckpoint || node.op == OpKind::kCustomVjp)
    return evaluate(*node.graphs[0], operands);
  std::vector<TensorView> in, out;
  for (size_t i = 0; i < operands.size(); ++i)
    in.push_back(view(graph.type(node.operands[i]), operands[i]));
  std::vector<Bytes> results;
  for (int i = 0; i < node.n_results; ++i)
    results.emplace_back(static_cast<size_t>(graph.type(node.result(i)).bytes()));
  for (int i = 0; i < node.n_results; ++i)
    out.push_back(view(graph.type(node.result(i)), results[static_cast<size_t>(i)]));
  reference_eval(node.op, node.params, in, out);
  return results;
}

}  // namespace

std::vector<Bytes> evaluate(const Graph& graph, const std::vector<Bytes>& inputs) {
  std::vector<Bytes> values(graph.n_values());
  for (size_t i = 0; i < inputs.size(); ++i) values[graph.inputs()[i].index()] = inputs[i];
  for (const Node& node : graph.nodes()) {
    std::vector<Bytes> operands;
    for (ValueId operand : node.operands) operands.push_back(values[operand.index()]);
    std::vector<Bytes> results = evaluate_node(graph, node, std::move(operands));
    for (int i = 0; i < node.n_results; ++i)
      values[node.result(i).index()] = std::move(results[static_cast<size_t>(i)]);
  }
  std::vector<Bytes> outputs;
  for (ValueId output : graph.outputs()) outputs.push_back(values[output.index()]);
  return outputs;
}

}  // namespace stow::testing
