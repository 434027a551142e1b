#include "tests/support/evaluate.h"

#include <algorithm>
#include <cstring>

#include "stowage/core/scalar.h"
#include "stowage/runtime/reference/reference.h"

namespace stow::testing {
namespace {

// A source of nudges; none where results are to be as they are.
struct Nudges {
  uint64_t state;
  double sign() {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return state >> 63 ? 1 : -1;
  }
};
std::vector<Bytes> run(const Graph& graph, const std::vector<Bytes>& inputs, Nudges* nudges);

// What two orders of a sum, or two approximations of a function, may round differently.
double rounding_of(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return 0x1p-48;
    case DType::kF32:
      return 0x1p-20;
    case DType::kBF16:
      return 0x1p-8;
    case DType::kF16:
      return 0x1p-11;
    default:
      return 0;
  }
}

void nudge(const ArrayType& type, Bytes& bytes, Nudges& nudges) {
  const double rounding = rounding_of(type.dtype);
  const auto width = static_cast<size_t>(dtype_bytes(type.dtype));
  if (rounding == 0) return;
  for (size_t at = 0; at < bytes.size(); at += width) {
    const double value = decode_scalar(type.dtype, std::span(bytes).subspan(at, width));
    const auto moved = encode_scalar(type.dtype, value * (1 + nudges.sign() * rounding));
    if (moved) std::copy(moved->begin(), moved->end(), bytes.begin() + static_cast<ptrdiff_t>(at));
  }
}

// Ops whose results may be small where what they sum is not: their terms are nudged as well.
bool accumulates(OpKind op) {
  return op_class(op) == OpClass::kReduce || op_class(op) == OpClass::kOther;
}

// Ops whose results are computed, not only moved.
bool computes(OpKind op) {
  switch (op_class(op)) {
    case OpClass::kElementwise:
    case OpClass::kReduce:
      return op != OpKind::kSelect;
    case OpClass::kOther:
      return op != OpKind::kDevicePut && op != OpKind::kConcatenate && op != OpKind::kGather &&
             op != OpKind::kDynamicSlice && op != OpKind::kDynamicUpdateSlice &&
             op != OpKind::kPad && op != OpKind::kSort;
    case OpClass::kLeaf:
    case OpClass::kView:
    case OpClass::kIdentity:
    case OpClass::kStructure:
      return false;
  }
  return false;
}

TensorView view(const ArrayType& type, Bytes& bytes) {
  return {bytes.data(), type.dtype, type.shape.dims(), contiguous_strides(type.shape)};
}

std::vector<Bytes> evaluate_scan(const Graph& graph, const Node& node,
                                 std::vector<Bytes> operands, Nudges* nudges) {
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
    std::vector<Bytes> outputs = run(body, inputs, nudges);
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
                                 std::vector<Bytes> operands, Nudges* nudges) {
  int32_t index = 0;
  if (graph.type(node.operands[0]).dtype == DType::kBool)
    index = operands[0][0] != std::byte{0};
  else
    std::memcpy(&index, operands[0].data(), sizeof index);
  const auto last = static_cast<int32_t>(node.graphs.size()) - 1;
  operands.erase(operands.begin());
  return run(*node.graphs[static_cast<size_t>(std::clamp(index, 0, last))], operands, nudges);
}

std::vector<Bytes> evaluate_while(const Node& node, const std::vector<Bytes>& operands,
                                  Nudges* nudges) {
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
  while (run(*node.graphs[0], with(cond_consts), nudges)[0][0] != std::byte{0})
    carries = run(*node.graphs[1], with(body_consts), nudges);
  return carries;
}

std::vector<Bytes> evaluate_node(const Graph& graph, const Node& node,
                                 std::vector<Bytes> operands, Nudges* nudges) {
  if (node.op == OpKind::kScan) return evaluate_scan(graph, node, std::move(operands), nudges);
  if (node.op == OpKind::kCond) return evaluate_cond(graph, node, std::move(operands), nudges);
  if (node.op == OpKind::kWhile) return evaluate_while(node, operands, nudges);
  if (node.op == OpKind::kCheckpoint || node.op == OpKind::kCustomVjp)
    return run(*node.graphs[0], operands, nudges);
  if (nudges && computes(node.op) && accumulates(node.op))
    for (size_t i = 0; i < operands.size(); ++i)
      if (const ArrayType& type = graph.type(node.operands[i]);
          type.dtype == DType::kF32 || type.dtype == DType::kF64)
        nudge(type, operands[i], *nudges);
  std::vector<TensorView> in, out;
  for (size_t i = 0; i < operands.size(); ++i)
    in.push_back(view(graph.type(node.operands[i]), operands[i]));
  std::vector<Bytes> results;
  for (int i = 0; i < node.n_results; ++i)
    results.emplace_back(static_cast<size_t>(graph.type(node.result(i)).bytes()));
  for (int i = 0; i < node.n_results; ++i)
    out.push_back(view(graph.type(node.result(i)), results[static_cast<size_t>(i)]));
  reference_eval(node.op, node.params, in, out);
  if (nudges && computes(node.op))
    for (int i = 0; i < node.n_results; ++i)
      nudge(graph.type(node.result(i)), results[static_cast<size_t>(i)], *nudges);
  return results;
}

std::vector<Bytes> run(const Graph& graph, const std::vector<Bytes>& inputs, Nudges* nudges) {
  std::vector<Bytes> values(graph.n_values());
  for (size_t i = 0; i < inputs.size(); ++i) values[graph.inputs()[i].index()] = inputs[i];
  for (const Node& node : graph.nodes()) {
    std::vector<Bytes> operands;
    for (ValueId operand : node.operands) operands.push_back(values[operand.index()]);
    std::vector<Bytes> results = evaluate_node(graph, node, std::move(operands), nudges);
    for (int i = 0; i < node.n_results; ++i)
      values[node.result(i).index()] = std::move(results[static_cast<size_t>(i)]);
  }
  std::vector<Bytes> outputs;
  for (ValueId output : graph.outputs()) outputs.push_back(values[output.index()]);
  return outputs;
}

}  // namespace

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

std::vector<Bytes> evaluate_op(const Graph& graph, const Node& node, std::vector<Bytes> operands) {
  return evaluate_node(graph, node, std::move(operands), nullptr);
}

std::vector<Bytes> evaluate(const Graph& graph, const std::vector<Bytes>& inputs) {
  return run(graph, inputs, nullptr);
}

std::vector<Bytes> evaluate_nudged(const Graph& graph, const std::vector<Bytes>& inputs,
                                   uint64_t seed) {
  Nudges nudges{seed * 0x9e3779b97f4a7c15u + 1};
  return run(graph, inputs, &nudges);
}

}  // namespace stow::testing
