// DynamicSlice and DynamicUpdateSlice. Starts are clamped so that the window lies within.
#include "stowage/ops/rule.h"

namespace stow::ops {
namespace {

constexpr int kWhole = ShardingFactors::kUnshardable;

// One integer scalar an axis of `x`, from operand `first` on, all of one dtype.
void check_starts(const InferContext& c, size_t first, const ArrayType& x) {
  if (c.operands.size() - first != static_cast<size_t>(x.shape.rank()))
    c.error("takes {} starts, one an axis of {}, got {}", x.shape.rank(), to_string(x),
            c.operands.size() - first);
  for (size_t i = first; i < c.operands.size(); ++i) {
    const ArrayType& start = c.operand(i);
    if (!is_integer(start.dtype) || start.shape.rank() != 0)
      c.error("start {} must be an integer scalar, got {}", i - first, to_string(start));
  }
  check_same_dtypes(c, first);
}

void check_window(const InferContext& c, const Shape& window, const ArrayType& x) {
  if (window.rank() != x.shape.rank())
    c.error("a window of rank {} does not fit {}", window.rank(), to_string(x));
  for (int i = 0; i < window.rank(); ++i)
    if (window[i] < 0 || window[i] > x.shape[i])
      c.error("size {} of axis {} does not fit {}", window[i], i, to_string(x));
}

std::vector<ArrayType> infer_dynamic_slice(const InferContext& c) {
  const auto& p = expect_any_count<ShapeParams>(c);
  if (c.operands.empty()) c.error("takes an operand and its starts, got 0 operands");
  const ArrayType& x = c.operand(0);
  check_starts(c, 1, x);
  check_window(c, p.shape, x);
  ArrayType type = strong(c, x.dtype, p.shape);
  type.weak = x.weak;
  return {std::move(type)};
}

Cotangents vjp_dynamic_slice(const VjpContext& c) {
  Cotangents result(c.operands.size());
  const std::span<const Val> starts = std::span(c.operands).subspan(1);
  if (c.needed[0]) result[0] = dynamic_update_slice(zeros_like(c.operands[0]), c.ct(), starts);
  return result;
}

ShardingFactors shard_dynamic_slice(const InferContext& c, std::span<const ArrayType> results) {
  ShardingFactors f = shard_elementwise(c, results);
  for (size_t i = 0; i < f.results[0].size(); ++i)
    if (c.operand(0).shape[static_cast<int>(i)] != results[0].shape[static_cast<int>(i)])
      f.operands[0][i] = f.results[0][i] = kWhole;
  return f;
}

// Reads and writes the window; the rest is not touched.
Cost cost_dynamic_slice(const InferContext&, std::span<const ArrayType> results) {
  return {0, 2.0 * static_cast<double>(results[0].bytes())};
}

std::vector<ArrayType> infer_dynamic_update_slice(const InferContext& c) {
  expect_any_count<NoParams>(c);
  if (c.operands.size() < 2)
    c.error("takes an operand, an update and starts, got {} operands", c.operands.size());
  const ArrayType &x = c.operand(0), &update = c.operand(1);
  if (update.dtype != x.dtype)
    c.error("operands differ in dtype: {} and {}", to_string(x), to_string(update));
  check_starts(c, 2, x);
  check_window(c, update.shape, x);
  ArrayType type = strong(c, x.dtype, x.shape);
  type.weak = x.weak && update.weak;
  return {std::move(type)};
}

Cotangents vjp_dynamic_update_slice(const VjpContext& c) {
  Cotangents result(c.operands.size());
  const std::span<const Val> starts = std::span(c.operands).subspan(2);
  const Val& update = c.operands[1];
  if (c.needed[0]) {
    const Val zeros = full(c.ct().builder(), {c.ct().dtype(), update.shape()}, 0);
    result[0] = dynamic_update_slice(c.ct(), zeros, starts);
  }
  if (c.needed[1]) result[1] = dynamic_slice(c.ct(), starts, update.shape().dims());
  return result;
}

ShardingFactors shard_dynamic_update_slice(const InferContext& c,
                                           std::span<const ArrayType> results) {
  ShardingFactors f = shard_elementwise(c, results);
  for (size_t i = 0; i < f.results[0].size(); ++i)
    if (c.operand(0).shape[static_cast<int>(i)] != c.operand(1).shape[static_cast<int>(i)])
      f.operands[0][i] = f.operands[1][i] = f.results[0][i] = kWhole;
  return f;
}

// In place: only the window moves.
Cost cost_dynamic_update_slice(const InferContext& c, std::span<const ArrayType>) {
  return {0, 2.0 * static_cast<double>(c.operand(1).bytes())};
}

}  // namespace

constinit const OpDef kDynamicSlice = {.op = OpKind::kDynamicSlice,
                                       .infer = infer_dynamic_slice,
                                       .vjp = vjp_dynamic_slice,
                                       .shard = shard_dynamic_slice,
                                       .cost = cost_dynamic_slice};
constinit const OpDef kDynamicUpdateSlice = {.op = OpKind::kDynamicUpdateSlice,
                                             .infer = infer_dynamic_update_slice,
                                             .vjp = vjp_dynamic_update_slice,
                                             .shard = shard_dynamic_update_slice,
                                             .cost = cost_dynamic_update_slice};

}  // namespace stow::ops
