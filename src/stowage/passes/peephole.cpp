#include "stowage/passes/peephole.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "stowage/core/scalar.h"

namespace stow {
namespace {

using Bytes = std::span<const std::byte>;

constexpr int kMaxSteps = 8;              // from a value to the constant it is a view of
constexpr size_t kMaxCompared = 1 << 12;  // bytes of a dense constant that may be all alike

// Returns the node behind operand 0 if its op, region and direction are the same, so that skipping
// it moves no work into or out of a region or the backward part.
const Node* same_op_before(const Graph& graph, const Node& node) {
  const ValueId x = node.operands[0];
  if (graph.is_input(x)) return nullptr;
  const Node& before = graph.def(x);
  const bool alike =
      before.op == node.op && before.region == node.region && before.backward == node.backward;
  return alike ? &before : nullptr;
}

// Returns the axes of the first of two chained views, renamed by the second.
Dims renamed(const Dims& axes, const Dims& names) {
  Dims result;
  for (int64_t axis : axes) result.push_back(names[static_cast<size_t>(axis)]);
  return result;
}

// Returns the bytes of the one element with which `v` is filled.
std::optional<Bytes> splat(const Graph& graph, ValueId v) {
  for (int step = 0; step < kMaxSteps && !graph.is_input(v); ++step) {
    const Node& node = graph.def(v);
    if (node.op == OpKind::kConstant) {
      const auto& p = node.as<ConstantParams>();
      const auto width = static_cast<size_t>(dtype_bytes(p.type.dtype));
      const Bytes data = p.data;
      if (data.size() < width || data.size() > kMaxCompared) return std::nullopt;
      for (size_t i = width; i < data.size(); i += width)
        if (std::memcmp(data.data(), data.data() + i, width) != 0) return std::nullopt;
      return data.first(width);
    }
    if (op_class(node.op) != OpClass::kView) return std::nullopt;
    v = node.operands[0];
  }
  return std::nullopt;
}

bool is_splat(const Graph& graph, ValueId v, double number) {
  const auto element = splat(graph, v);
  const auto wanted = encode_scalar(graph.type(v).dtype, number);
  return element && wanted && std::equal(element->begin(), element->end(), wanted->begin());
}
bool is_splat_of_ones(const Graph& graph, ValueId v) {  // every bit that the dtype uses
  if (graph.type(v).dtype == DType::kBool) return is_splat(graph, v, 1);
  const auto element = splat(graph, v);
  return element && std::all_of(element->begin(), element->end(),
                                [](std::byte b) { return b == std::byte{0xff}; });
}

bool all_zero(const Dims& list) {
  return std::all_of(list.begin(), list.end(), [](int64_t x) { return x == 0; });
}

// Skips views of views. Afterwards the result may have the very type of operand 0.
void collapse_chain(const Graph& graph, Node& node) {
  if (node.op != OpKind::kReshape && node.op != OpKind::kTranspose && node.op != OpKind::kBroadcast)
    return;
  const Node* before = same_op_before(graph, node);
  if (!before) return;
  if (node.op == OpKind::kTranspose) {
    Dims& axes = std::get<AxesParams>(node.params).axes;
    axes = renamed(axes, before->as<AxesParams>().axes);
  } else if (node.op == OpKind::kBroadcast) {
    Dims& axes = std::get<BroadcastParams>(node.params).axes;
    axes = renamed(before->as<BroadcastParams>().axes, axes);
  }
  node.operands = before->operands;
}

// True if the result is operand 0 itself, given that their types are the same.
bool is_identity(const Node& node) {
  const OpKind op = node.op;
  if (op == OpKind::kTranspose) {
    const Dims& axes = node.as<AxesParams>().axes;
    return std::is_sorted(axes.begin(), axes.end());
  }
  if (op == OpKind::kReverse) return node.as<AxesParams>().axes.empty();
  if (op == OpKind::kConcatenate) return node.operands.size() == 1;
  if (op == OpKind::kPad) {
    const auto& p = node.as<PadParams>();
    return all_zero(p.low) && all_zero(p.high) && all_zero(p.interior);
  }
  return op == OpKind::kConvert || op == OpKind::kBitcast || op == OpKind::kReshape ||
         op == OpKind::kBroadcast || op == OpKind::kSlice || op == OpKind::kStopGradient ||
         op == OpKind::kDevicePut ||
         op == OpKind::kDynamicSlice;  // clamps its starts
}

// True if `test` is x < c, x > c, c < x or c > x and `differs` is x != c, which `test` implies.
bool implies(const Graph& graph, ValueId test, ValueId differs) {
  if (graph.is_input(test) || graph.is_input(differs)) return false;
  const Node &t = graph.def(test), &d = graph.def(differs);
  if ((t.op != OpKind::kLt && t.op != OpKind::kGt) || d.op != OpKind::kNe) return false;
  return (t.operands[0] == d.operands[0] && t.operands[1] == d.operands[1]) ||
         (t.operands[0] == d.operands[1] && t.operands[1] == d.operands[0]);
}

// True if `test` is max(x, c) < c, which is false for every x, NaNs included. An index that is
// bounded from below and then counted from the end gives such tests.
bool is_never(const Graph& graph, ValueId test) {
  if (graph.is_input(test) || graph.def(test).op != OpKind::kLt) return false;
  const std::vector<ValueId>& of = graph.def(test).operands;
  if (graph.is_input(of[0]) || graph.def(of[0]).op != OpKind::kMax) return false;
  const std::vector<ValueId>& bounded = graph.def(of[0]).operands;
  return bounded[0] == of[1] || bounded[1] == of[1];
}

// Returns the other operand of a binary op if one operand is its neutral element.
ValueId without_neutral(const Graph& graph, const Node& node) {
  const ValueId a = node.operands[0], b = node.operands[1];
  const bool floats = is_float(graph.type(a).dtype);
  const auto either = [&](double neutral) {
    return is_splat(graph, b, neutral) ? a : is_splat(graph, a, neutral) ? b : ValueId();
  };
  const auto right = [&](double neutral) { return is_splat(graph, b, neutral) ? a : ValueId(); };
  const OpKind op = node.op;
  if (op == OpKind::kMul) return either(1);
  if (op == OpKind::kAdd) return either(floats ? -0.0 : 0.0);  // -0 + +0 would be +0
  if (op == OpKind::kDiv) return right(1);
  if (op == OpKind::kSub || op == OpKind::kShiftLeft || op == OpKind::kShiftRight) return right(0);
  if (op == OpKind::kOr || op == OpKind::kXor) return either(0);
  if (op == OpKind::kAnd) {
    if (is_splat_of_ones(graph, b) || implies(graph, a, b)) return a;
    return is_splat_of_ones(graph, a) || implies(graph, b, a) ? b : ValueId();
  }
  if (op == OpKind::kNe && graph.type(a).dtype == DType::kBool) return either(0);
  return ValueId();
}

// Returns the original of a value that comes to the device and goes back, such as a parameter that
// nothing changes. A move from the device and back stays: it frees memory in between.
ValueId home_again(const Graph& graph, const Node& node, const ArrayType& type) {
  const Node* before = same_op_before(graph, node);
  if (!before || graph.type(node.operands[0]).kind != MemoryKind::kDevice) return ValueId();
  return graph.type(before->operands[0]) == type ? before->operands[0] : ValueId();
}

ValueId selected(const Graph& graph, const Node& node) {
  if (node.operands[1] == node.operands[2]) return node.operands[1];
  if (is_splat(graph, node.operands[0], 1)) return node.operands[1];
  if (is_splat(graph, node.operands[0], 0) || is_never(graph, node.operands[0]))
    return node.operands[2];
  return ValueId();
}

// An update of the whole array is the update itself. A slice that is put back where it was taken
// changes nothing, since both ops clamp the same starts alike.
ValueId updated(const Graph& graph, const Node& node, const ArrayType& type) {
  const ValueId array = node.operands[0], update = node.operands[1];
  if (graph.type(update) == type) return update;
  if (graph.is_input(update)) return ValueId();
  const Node& taken = graph.def(update);
  const bool is_put_back = taken.op == OpKind::kDynamicSlice && taken.operands[0] == array &&
                           std::equal(taken.operands.begin() + 1, taken.operands.end(),
                                      node.operands.begin() + 2, node.operands.end());
  return is_put_back ? array : ValueId();
}

int64_t integer_of(Bytes element) {
  int64_t value = 0;
  std::memcpy(&value, element.data(), element.size());
  const auto unused = 64 - 8 * static_cast<int>(element.size());
  return value << unused >> unused;
}

// Folds a comparison of two known integers. Constant indices of a program are otherwise compared
// with 0 in every iteration of a loop.
void fold_comparison(const Graph& graph, Node& node, const ArrayType& type) {
  if (type.elems() != 1 || type.kind != MemoryKind::kDevice) return;
  const auto a = known_integer(graph, node.operands[0]), b = known_integer(graph, node.operands[1]);
  if (!a || !b) return;
  std::optional<bool> answer;
  if (node.op == OpKind::kLt) answer = *a < *b;
  if (node.op == OpKind::kEq) answer = *a == *b;
  if (node.op == OpKind::kNe) answer = *a != *b;
  if (!answer) return;
  node.op = OpKind::kConstant;
  node.params = ConstantParams{type, {*answer ? std::byte{1} : std::byte{0}}};
  node.operands.clear();
}

// A reduction of so many elements goes by rows, and rows are of these lengths.
constexpr int64_t kLargeReduction = int64_t{1} << 16;
constexpr int64_t kShortestRow = 64, kLongestRow = int64_t{1} << 18;

}  // namespace

std::optional<int64_t> known_integer(const Graph& graph, ValueId v) {
  const DType dtype = graph.type(v).dtype;
  if (dtype != DType::kI32 && dtype != DType::kI64) return std::nullopt;
  const auto element = splat(graph, v);
  return element ? std::optional(integer_of(*element)) : std::nullopt;
}

int first_axis_of_rows(const Graph& graph, const Node& node) {
  if (op_class(node.op) != OpClass::kReduce) return 0;
  const ArrayType& type = graph.type(node.operands[0]);
  const Dims& dims = type.shape.dims();
  // Low precision rounds what each reduction gives, so one is better than two.
  const bool rounds = is_float(type.dtype) && dtype_bytes(type.dtype) < 4;
  if (rounds || node.as<AxesParams>().axes.size() != dims.size() || type.elems() < kLargeReduction)
    return 0;
  int64_t row = type.elems();
  for (size_t axis = 1; axis < dims.size(); ++axis) {
    row /= dims[axis - 1];
    if (row < kShortestRow) return 0;
    if (row <= kLongestRow && row < type.elems()) return static_cast<int>(axis);
  }
  return 0;
}

ValueId peephole(const Graph& graph, Node& node, const ArrayType& type) {
  if (node.operands.empty()) return ValueId();
  collapse_chain(graph, node);
  if (graph.type(node.operands[0]) == type && is_identity(node)) return node.operands[0];
  if (node.op == OpKind::kSelect) return selected(graph, node);
  if (node.op == OpKind::kDevicePut) return home_again(graph, node, type);
  if (node.op == OpKind::kDynamicUpdateSlice) return updated(graph, node, type);
  if (op_class(node.op) != OpClass::kElementwise || node.operands.size() != 2) return ValueId();
  if (const ValueId same = without_neutral(graph, node); same.valid()) return same;
  fold_comparison(graph, node, type);
  return ValueId();
}

}  // namespace stow
