// Broadcast, Reshape, Transpose, Slice, Reverse: the views.
#include "stowage/ops/rule.h"

namespace stow::ops {
namespace {

constexpr int kWhole = ShardingFactors::kUnshardable;

std::vector<ArrayType> infer_broadcast(const InferContext& c) {
  const auto& p = expect<BroadcastParams>(c, 1);
  const ArrayType& x = c.operand(0);
  ArrayType result = result_type(c, x.dtype, p.shape);
  check_per_axis(c, p.axes, x, "axes");
  check_sorted_axes(c, p.axes, p.shape.rank(), "axis");
  for (int i = 0; i < x.shape.rank(); ++i) {
    const int64_t to = p.shape[static_cast<int>(p.axes[static_cast<size_t>(i)])];
    if (x.shape[i] != 1 && x.shape[i] != to)
      c.error("axis {} of {} is neither 1 nor {}, the extent in {}", i, to_string(x), to,
              to_string(result));
  }
  return {std::move(result)};
}

Cotangents vjp_broadcast(const VjpContext& c) {
  const auto& p = c.node.as<BroadcastParams>();
  return cotangents(c, [&] {
    const Shape& from = c.operands[0].shape();
    Dims summed = other_axes(p.axes, p.shape.rank());
    for (size_t i = 0; i < p.axes.size(); ++i)
      if (from[static_cast<int>(i)] != p.shape[static_cast<int>(p.axes[i])])
        summed.push_back(p.axes[i]);
    return reshape(reduce_sum(c.ct(), summed), from);
  });
}

// The batch stands after the axes that come before it in the operand.
Batched batch_broadcast(const BatchContext& c) {
  const auto& p = c.node.as<BroadcastParams>();
  const int64_t from = c.axes[0], to = from == 0 ? 0 : p.axes[static_cast<size_t>(from - 1)] + 1;
  const BroadcastParams wide{Shape(inserted(p.shape.dims(), to, c.size)),
                             inserted(shifted_for_batch(p.axes, to), from, to)};
  return rebuilt(c, wide, c.operands, to);
}

ShardingFactors shard_broadcast(const InferContext& c, std::span<const ArrayType> results) {
  const auto& p = c.as<BroadcastParams>();
  ShardingFactors f = shard_elementwise(c, results);
  for (size_t i = 0; i < p.axes.size(); ++i) {
    const bool stretched =
        c.operand(0).shape[static_cast<int>(i)] != p.shape[static_cast<int>(p.axes[i])];
    f.operands[0][i] = stretched ? kWhole : static_cast<int>(p.axes[i]);
  }
  return f;
}

std::vector<Val> local_broadcast(const LocalContext& c) {
  return local_with(c, BroadcastParams{c.local_result(), c.node.as<BroadcastParams>().axes});
}

std::vector<ArrayType> infer_reshape(const InferContext& c) {
  const auto& p = expect_view<ShapeParams>(c);
  ArrayType result = result_type_in_place(c, c.operand(0).dtype, p.shape);
  if (result.elems() != c.operand(0).elems())
    c.error("{} has {} elements, {} has {}", to_string(c.operand(0)), c.operand(0).elems(),
            to_string(result), result.elems());
  return {std::move(result)};
}

Cotangents vjp_reshape(const VjpContext& c) {
  return cotangents(c, [&] { return reshape(c.ct(), c.operands[0].shape()); });
}

Batched batch_reshape(const BatchContext& c) {
  const auto& p = c.node.as<ShapeParams>();
  return rebuilt(c, ShapeParams{Shape(inserted(p.shape.dims(), 0, c.size))}, all_batched_at(c, 0),
                 0);
}

// Cuts both shapes into groups of axes of equal size; the outermost axes of a group (extents of 1
// aside) share a letter, the others stay whole.
ShardingFactors shard_reshape(const InferContext& c, std::span<const ArrayType> results) {
  ShardingFactors f = shard_whole(c, results);
  const Dims &from = c.operand(0).shape.dims(), &to = results[0].shape.dims();
  if (results[0].elems() == 0) return f;
  size_t i = 0, j = 0;
  for (int letter = 0;; ++letter) {
    while (i < from.size() && from[i] == 1) ++i;
    while (j < to.size() && to[j] == 1) ++j;
    if (i == from.size() || j == to.size()) return f;
    f.operands[0][i] = f.results[0][j] = letter;
    int64_t a = from[i++], b = to[j++];
    while (a != b) a < b ? a *= from[i++] : b *= to[j++];
  }
}

std::vector<ArrayType> infer_transpose(const InferContext& c) {
  const auto& p = expect_view<AxesParams>(c);
  const ArrayType& x = c.operand(0);
  check_per_axis(c, p.axes, x, "axes");
  check_axes(c, p.axes, x.shape.rank(), "axis");
  Dims dims;
  for (int64_t axis : p.axes) dims.push_back(x.shape[static_cast<int>(axis)]);
  return {result_type_in_place(c, x.dtype, Shape(std::move(dims)))};
}

Cotangents vjp_transpose(const VjpContext& c) {
  return cotangents(c, [&] {
    const Dims& axes = c.node.as<AxesParams>().axes;
    Dims inverse(axes.size());
    for (size_t i = 0; i < axes.size(); ++i)
      inverse[static_cast<size_t>(axes[i])] = static_cast<int64_t>(i);
    return transpose(c.ct(), inverse);
  });
}

Batched batch_transpose(const BatchContext& c) {
  const Dims axes = shifted_for_batch(c.node.as<AxesParams>().axes, c.axes[0]);
  return rebuilt(c, AxesParams{inserted(axes, 0, c.axes[0])}, c.operands, 0);
}

ShardingFactors shard_transpose(const InferContext& c, std::span<const ArrayType> results) {
  ShardingFactors f = shard_elementwise(c, results);
  const Dims& axes = c.as<AxesParams>().axes;
  for (size_t i = 0; i < axes.size(); ++i) f.results[0][i] = static_cast<int>(axes[i]);
  return f;
}

std::vector<ArrayType> infer_slice(const InferContext& c) {
  const auto& p = expect_view<SliceParams>(c);
  const ArrayType& x = c.operand(0);
  check_per_axis(c, p.start, x, "start");
  check_per_axis(c, p.limit, x, "limit");
  check_per_axis(c, p.stride, x, "stride");
  Dims dims;
  for (size_t i = 0; i < p.start.size(); ++i) {
    const int64_t extent = x.shape[static_cast<int>(i)];
    if (p.start[i] < 0 || p.start[i] > p.limit[i] || p.limit[i] > extent)
      c.error("range [{}, {}) of axis {} does not lie in {}", p.start[i], p.limit[i], i,
              to_string(x));
    if (p.stride[i] < 1) c.error("stride {} of axis {} is not positive", p.stride[i], i);
    const int64_t n = p.limit[i] - p.start[i];
    dims.push_back(n == 0 ? 0 : (n - 1) / p.stride[i] + 1);
  }
  return {result_type_in_place(c, x.dtype, Shape(std::move(dims)))};
}

Cotangents vjp_slice(const VjpContext& c) {
  return cotangents(c, [&] {
    const auto& p = c.node.as<SliceParams>();
    const Shape& x = c.operands[0].shape();
    Dims high, interior;
    for (size_t i = 0; i < p.start.size(); ++i) {
      const int64_t n = c.ct().shape()[static_cast<int>(i)];
      const int64_t last = n == 0 ? p.start[i] : p.start[i] + (n - 1) * p.stride[i] + 1;
      high.push_back(x[static_cast<int>(i)] - last);
      interior.push_back(n > 1 ? p.stride[i] - 1 : 0);
    }
    const Val ct = device_put(c.ct(), MemoryKind::kDevice);
    const Val padded = pad(ct, constant(ct.builder(), ct.dtype(), 0), p.start, high, interior);
    return device_put(padded, c.operands[0].type().kind);
  });
}

Batched batch_slice(const BatchContext& c) {
  const auto& p = c.node.as<SliceParams>();
  const int64_t axis = c.axes[0];
  return rebuilt(c,
                 SliceParams{inserted(p.start, axis, 0), inserted(p.limit, axis, c.size),
                             inserted(p.stride, axis, 1)},
                 c.operands, axis);
}

ShardingFactors shard_slice(const InferContext& c, std::span<const ArrayType> results) {
  ShardingFactors f = shard_elementwise(c, results);
  for (size_t i = 0; i < f.results[0].size(); ++i)
    if (c.operand(0).shape[static_cast<int>(i)] != results[0].shape[static_cast<int>(i)])
      f.operands[0][i] = f.results[0][i] = kWhole;
  return f;
}

// Axes that are cut are taken whole.
std::vector<Val> local_slice(const LocalContext& c) {
  SliceParams p = c.node.as<SliceParams>();
  const Shape local = c.local_result();
  for (size_t i = 0; i < p.limit.size(); ++i)
    if (!c.result_axes()[i].empty()) {
      p.limit[i] = local[static_cast<int>(i)];
      p.stride[i] = 1;
    }
  return local_with(c, std::move(p));
}

std::vector<ArrayType> infer_reverse(const InferContext& c) {
  const auto& p = expect<AxesParams>(c, 1);
  check_axes(c, p.axes, c.operand(0).shape.rank(), "axis");
  return {result_type(c, c.operand(0).dtype, c.operand(0).shape)};
}

Cotangents vjp_reverse(const VjpContext& c) {
  return cotangents(c, [&] { return reverse(c.ct(), c.node.as<AxesParams>().axes); });
}

Batched batch_reverse(const BatchContext& c) {
  const Dims& axes = c.node.as<AxesParams>().axes;
  return rebuilt(c, AxesParams{shifted_for_batch(axes, c.axes[0])}, c.operands, c.axes[0]);
}

ShardingFactors shard_reverse(const InferContext& c, std::span<const ArrayType> results) {
  ShardingFactors f = shard_elementwise(c, results);
  for (int64_t axis : c.as<AxesParams>().axes)
    f.operands[0][static_cast<size_t>(axis)] = f.results[0][static_cast<size_t>(axis)] = kWhole;
  return f;
}

}  // namespace

constinit const OpDef kBroadcast = {.op = OpKind::kBroadcast,
                                    .infer = infer_broadcast,
                                    .vjp = vjp_broadcast,
                                    .batch = batch_broadcast,
                                    .shard = shard_broadcast,
                                    .local = local_broadcast,
                                    .cost = cost_free};
constinit const OpDef kReshape = {.op = OpKind::kReshape,
                                  .infer = infer_reshape,
                                  .vjp = vjp_reshape,
                                  .batch = batch_reshape,
                                  .shard = shard_reshape,
                                  .local = local_shaped,
                                  .cost = cost_free};
constinit const OpDef kTranspose = {.op = OpKind::kTranspose,
                                    .infer = infer_transpose,
                                    .vjp = vjp_transpose,
                                    .batch = batch_transpose,
                                    .shard = shard_transpose,
                                    .local = local_same,
                                    .cost = cost_free};
constinit const OpDef kSlice = {.op = OpKind::kSlice,
                                .infer = infer_slice,
                                .vjp = vjp_slice,
                                .batch = batch_slice,
                                .shard = shard_slice,
                                .local = local_slice,
                                .cost = cost_free};
constinit const OpDef kReverse = {.op = OpKind::kReverse,
                                  .infer = infer_reverse,
                                  .vjp = vjp_reverse,
                                  .batch = batch_reverse,
                                  .shard = shard_reverse,
                                  .local = local_same,
                                  .cost = cost_free};

}  // namespace stow::ops
