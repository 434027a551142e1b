// Pad and Concatenate.
#include <algorithm>

#include "stowage/ops/kind_error.h"
#include "stowage/ops/rule.h"

namespace stow::ops {
namespace {

constexpr int kWhole = ShardingFactors::kUnshardable;

// Extent n with `interior` elements between neighbours; none where it overflows.
std::optional<int64_t> padded_extent(int64_t n, int64_t low, int64_t high, int64_t interior) {
  int64_t gaps = 0, sum = 0;
  if (__builtin_mul_overflow(std::max<int64_t>(n - 1, 0), interior, &gaps) ||
      __builtin_add_overflow(n, gaps, &sum) || __builtin_add_overflow(sum, low, &sum) ||
      __builtin_add_overflow(sum, high, &sum))
    return std::nullopt;
  return sum;
}

std::vector<ArrayType> infer_pad(const InferContext& c) {
  const auto& p = expect<PadParams>(c, 2);
  const ArrayType &x = c.operand(0), &value = c.operand(1);
  if (value.dtype != x.dtype || value.shape.rank() != 0)
    c.error("the value must be {}[], got {}", dtype_name(x.dtype), to_string(value));
  check_per_axis(c, p.low, x, "low");
  check_per_axis(c, p.high, x, "high");
  check_per_axis(c, p.interior, x, "interior");
  Dims dims;
  for (size_t i = 0; i < p.low.size(); ++i) {
    if (p.interior[i] < 0) c.error("interior {} of axis {} is negative", p.interior[i], i);
    const auto extent =
        padded_extent(x.shape[static_cast<int>(i)], p.low[i], p.high[i], p.interior[i]);
    if (!extent || *extent < 0)
      c.error("low {}, high {}, interior {} leave no extent for axis {} of {}", p.low[i], p.high[i],
              p.interior[i], i, to_string(x));
    dims.push_back(*extent);
  }
  ArrayType type = strong_result_type(c, x.dtype, Shape(std::move(dims)));
  type.weak = x.weak && value.weak;
  return {std::move(type)};
}

// Undoes a pad: cuts off what was added, and adds zeros where it was trimmed.
Val unpad(const Val& ct, const PadParams& p) {
  Dims low, high, start, limit, stride;
  for (size_t i = 0; i < p.low.size(); ++i) {
    low.push_back(std::max<int64_t>(-p.low[i], 0));
    high.push_back(std::max<int64_t>(-p.high[i], 0));
    start.push_back(std::max<int64_t>(p.low[i], 0));
    limit.push_back(ct.shape()[static_cast<int>(i)] + low[i] + high[i] -
                    std::max<int64_t>(p.high[i], 0));
    stride.push_back(p.interior[i] + 1);
  }
  const Val zero = constant(ct.builder(), ct.dtype(), 0);
  return slice(pad(ct, zero, low, high, Dims(low.size(), 0)), start, limit, stride);
}

Cotangents vjp_pad(const VjpContext& c) {
  const auto& p = c.node.as<PadParams>();
  return cotangents(
      c, [&] { return unpad(c.ct(), p); },
      [&] {
        // The sum over the added places alone; all minus the operand's would cancel.
        GraphBuilder& b = c.ct().builder();
        const Val inside = full(b, {.dtype = DType::kBool, .shape = c.operands[0].shape()}, 0);
        const Val added = pad(inside, constant(b, DType::kBool, 1), p.low, p.high, p.interior);
        return reduce_sum(select(added, c.ct(), zeros_like(c.ct())), all_axes(c.ct().rank()));
      });
}

// If the value differs between examples, a select puts it at the places that are not the operand's.
Batched batch_pad(const BatchContext& c) {
  const auto& p = c.node.as<PadParams>();
  const bool values = c.batched(1);
  const int64_t axis = values ? 0 : c.axes[0];
  const PadParams wide{inserted(p.low, axis, 0), inserted(p.high, axis, 0),
                       inserted(p.interior, axis, 0)};
  const Val x = batched_at(c, 0, axis);
  if (!values) return rebuilt(c, wide, std::vector{x, c.operands[1]}, axis);
  const Val zero = constant(c.builder, x.dtype(), 0);
  const Val padded = pad(x, zero, wide.low, wide.high, wide.interior);
  const Val outside = pad(full(c.builder, {.dtype = DType::kBool, .shape = x.shape()}, 0),
                          constant(c.builder, DType::kBool, 1), wide.low, wide.high, wide.interior);
  const Val value = broadcast(move_axis(c.operands[1], c.axes[1], 0), padded.shape(), {0});
  return {{select(outside, value, padded)}, {0}};
}

ShardingFactors shard_pad(const InferContext& c, std::span<const ArrayType> results) {
  const auto& p = c.as<PadParams>();
  ShardingFactors f = shard_elementwise(c, results);
  for (size_t i = 0; i < p.low.size(); ++i)
    if (p.low[i] != 0 || p.high[i] != 0 || p.interior[i] != 0)
      f.operands[0][i] = f.results[0][i] = kWhole;
  return f;
}

std::vector<ArrayType> infer_concatenate(const InferContext& c) {
  check_no_graphs(c);
  const auto& p = params_of<AxisParams>(c);
  if (c.operands.empty()) c.error("takes at least 1 operand, got 0");
  if (p.flag) wrong_params(c);
  const ArrayType& first = c.operand(0);
  for (size_t i = 0; i < c.operands.size(); ++i) {
    check_size(c, c.operand(i), fmt::format("operand {}", i));
    if (c.operand(i).kind != first.kind)
      throw KindError(
          fmt::format("[concatenate] operand 0 is on {} and operand {} on {}: {} and {}; "
                      "move them to one memory with device_put first",
                      memory_kind_name(first.kind), i, memory_kind_name(c.operand(i).kind),
                      to_string(first), to_string(c.operand(i))));
  }
  check_axis(c, p.axis, first);
  check_same_dtypes(c);
  const int axis = static_cast<int>(p.axis);
  Shape shape = first.shape;
  for (size_t i = 1; i < c.operands.size(); ++i) {
    Shape other = c.operand(i).shape;
    bool alike = other.rank() == shape.rank();
    if (alike && __builtin_add_overflow(shape[axis], other[axis], &shape[axis]))
      c.error("result is larger than 2^62 bytes");
    if (alike) other[axis] = first.shape[axis];
    if (!alike || other != first.shape)
      c.error("operands differ off axis {}: {} and {}", p.axis, to_string(first),
              to_string(c.operand(i)));
  }
  return {result_type_in_place(c, first.dtype, std::move(shape))};
}

Cotangents vjp_concatenate(const VjpContext& c) {
  const int64_t axis = c.node.as<AxisParams>().axis;
  Cotangents result(c.operands.size());
  int64_t at = 0;
  for (size_t i = 0; i < c.operands.size(); ++i) {
    const int64_t n = c.operands[i].shape()[static_cast<int>(axis)];
    if (c.needed[i]) result[i] = slice_axis(c.ct(), axis, at, at + n);
    at += n;
  }
  return result;
}

}  // namespace

constinit const OpDef kPad = {.op = OpKind::kPad,
                              .infer = infer_pad,
                              .vjp = vjp_pad,
                              .batch = batch_pad,
                              .shard = shard_pad,
                              .local = local_same,
                              .cost = cost_move};
constinit const OpDef kConcatenate = {.op = OpKind::kConcatenate,
                                      .infer = infer_concatenate,
                                      .vjp = vjp_concatenate,
                                      .batch = batch_along_axis,
                                      .shard = shard_but_axis,
                                      .local = local_same,
                                      .cost = cost_move};

}  // namespace stow::ops
