// Reductions over axes and ArgMax, ArgMin.
#include "stowage/core/scalar.h"
#include "stowage/ops/rule.h"

namespace stow::ops {
namespace {

constexpr int kWhole = ShardingFactors::kUnshardable;

template <Kinds K>
std::vector<ArrayType> infer_reduce(const InferContext& c) {
  const auto& p = expect<AxesParams>(c, 1);
  const ArrayType& x = c.operand(0);
  check_kinds(c, 0, K);
  check_axes(c, p.axes, x.shape.rank(), "axis");
  Dims dims;
  for (int64_t axis : other_axes(p.axes, x.shape.rank()))
    dims.push_back(x.shape[static_cast<int>(axis)]);
  return {strong_result_type(c, x.dtype, Shape(std::move(dims)))};
}

const Dims& axes_of(const VjpContext& c) {
  return c.node.as<AxesParams>().axes;
}

Cotangents vjp_sum(const VjpContext& c) {
  return cotangents(c, [&] { return unreduce(c.ct(), c.operands[0].shape(), axes_of(c)); });
}

// All elements equal to the extreme share alike. By products, so that a NaN stays one.
Cotangents vjp_extreme(const VjpContext& c) {
  return cotangents(c, [&] {
    const Val& x = c.operands[0];
    const Val extreme = unreduce(c.results[0], x.shape(), axes_of(c));
    const Val is_extreme = convert(eq(x, extreme), c.ct().dtype());
    const Val share = c.ct() / reduce_sum(is_extreme, axes_of(c));
    return unreduce(share, x.shape(), axes_of(c)) * is_extreme;
  });
}

// A binary tree of products over the reduced axes laid out last: no division, so zeros are exact.
Cotangents vjp_prod(const VjpContext& c) {
  return cotangents(c, [&] {
    const Val& x = c.operands[0];
    const Dims kept = other_axes(axes_of(c), x.rank());
    Dims order = kept, reduced;
    for (int64_t i = 0; i < x.rank(); ++i)
      if (!contains(kept, i)) reduced.push_back(i);
    order.insert(order.end(), reduced.begin(), reduced.end());
    const Val last = transpose(x, order);
    const int64_t rows = c.ct().type().elems();
    const int64_t n = rows == 0 ? 0 : x.type().elems() / rows;
    if (n == 0 || rows == 0) return zeros_like(x);

    int64_t width = 1;
    while (width < n) width *= 2;
    GraphBuilder& b = c.ct().builder();
    std::vector<Val> levels = {
        pad(reshape(last, {rows, n}), constant(b, x.dtype(), 1), {0, 0}, {0, width - n}, {0, 0})};
    for (int64_t w = width / 2; w >= 1; w /= 2) {
      const Val& level = levels.back();
      levels.push_back(slice_axis(level, 1, 0, w) * slice_axis(level, 1, w, 2 * w));
    }
    Val ct = reshape(c.ct(), {rows, 1});
    for (size_t i = levels.size() - 1; i-- > 0;) {
      const int64_t w = levels[i].shape()[1] / 2;
      const Val halves[] = {ct * slice_axis(levels[i], 1, w, 2 * w),
                            ct * slice_axis(levels[i], 1, 0, w)};
      ct = concatenate(halves, 1);
    }
    Dims inverse(order.size());
    for (size_t i = 0; i < order.size(); ++i)
      inverse[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
    return transpose(reshape(slice_axis(ct, 1, 0, n), last.shape()), inverse);
  });
}

// The kind by which parts of a reduction are reduced; none for products, which have no such kind.
constexpr std::optional<ReduceKind> kind_of(OpKind op) {
  if (op == OpKind::kReduceSum) return ReduceKind::kSum;
  if (op == OpKind::kReduceMax) return ReduceKind::kMax;
  if (op == OpKind::kReduceMin) return ReduceKind::kMin;
  if (op == OpKind::kReduceAnd) return ReduceKind::kAnd;
  if (op == OpKind::kReduceOr) return ReduceKind::kOr;
  return std::nullopt;
}

ShardingFactors shard_reduce(const InferContext& c, std::span<const ArrayType>) {
  const Dims& axes = c.as<AxesParams>().axes;
  const int rank = c.operand(0).shape.rank();
  const std::optional<ReduceKind> kind = kind_of(c.op);
  ShardingFactors f{{letters(rank)}, {{}}};
  if (kind) f.kinds.assign(static_cast<size_t>(rank), *kind);
  for (int i = 0; i < rank; ++i) {
    if (!contains(axes, i)) f.results[0].push_back(i);
    if (contains(axes, i) && !kind) f.operands[0][static_cast<size_t>(i)] = kWhole;
  }
  return f;
}

Cost cost_reduce(const InferContext& c, std::span<const ArrayType> results) {
  return {static_cast<double>(c.operand(0).elems()), traffic(c, results)};
}

template <Kinds K>
constexpr OpDef reduction(OpKind op, VjpFunction vjp) {
  return {.op = op,
          .infer = infer_reduce<K>,
          .vjp = vjp,
          .batch = batch_reduce,
          .shard = shard_reduce,
          .local = local_same,
          .cost = cost_reduce};
}

std::vector<ArrayType> infer_arg_reduce(const InferContext& c) {
  const auto& p = expect<ArgReduceParams>(c, 1);
  const ArrayType& x = c.operand(0);
  check_axis(c, p.axis, x);
  if (!is_integer(p.index_dtype))
    c.error("the index dtype must be an integer, got {}", dtype_name(p.index_dtype));
  const int64_t extent = x.shape[static_cast<int>(p.axis)];
  if (extent == 0) c.error("axis {} of {} is empty", p.axis, to_string(x));
  if (extent - 1 > max_int_value(p.index_dtype))
    c.error("{} cannot count axis {} of {}", dtype_name(p.index_dtype), p.axis, to_string(x));
  Dims dims;
  for (int64_t axis : other_axes({p.axis}, x.shape.rank()))
    dims.push_back(x.shape[static_cast<int>(axis)]);
  return {strong_result_type(c, p.index_dtype, Shape(std::move(dims)))};
}

Batched batch_arg_reduce(const BatchContext& c) {
  ArgReduceParams p = c.node.as<ArgReduceParams>();
  const int64_t batch = c.axes[0];
  p.axis = shifted_for_batch(p.axis, batch);
  return rebuilt(c, p, c.operands, batch - (p.axis < batch ? 1 : 0));
}

ShardingFactors shard_arg_reduce(const InferContext& c, std::span<const ArrayType>) {
  const int64_t axis = c.as<ArgReduceParams>().axis;
  ShardingFactors f{{letters(c.operand(0).shape.rank())}, {{}}};
  for (int i = 0; i < c.operand(0).shape.rank(); ++i)
    if (i != axis) f.results[0].push_back(i);
  f.operands[0][static_cast<size_t>(axis)] = kWhole;
  return f;
}

constexpr OpDef arg_reduction(OpKind op) {
  return {.op = op,
          .infer = infer_arg_reduce,
          .vjp = no_cotangents,
          .batch = batch_arg_reduce,
          .shard = shard_arg_reduce,
          .local = local_same,
          .cost = cost_reduce};
}

}  // namespace

constinit const OpDef kReduceSum = reduction<Kinds::kNumeric>(OpKind::kReduceSum, vjp_sum);
constinit const OpDef kReduceProd = reduction<Kinds::kNumeric>(OpKind::kReduceProd, vjp_prod);
constinit const OpDef kReduceMax = reduction<Kinds::kAny>(OpKind::kReduceMax, vjp_extreme);
constinit const OpDef kReduceMin = reduction<Kinds::kAny>(OpKind::kReduceMin, vjp_extreme);
constinit const OpDef kReduceAnd = reduction<Kinds::kBits>(OpKind::kReduceAnd, no_cotangents);
constinit const OpDef kReduceOr = reduction<Kinds::kBits>(OpKind::kReduceOr, no_cotangents);
constinit const OpDef kArgMax = arg_reduction(OpKind::kArgMax);
constinit const OpDef kArgMin = arg_reduction(OpKind::kArgMin);

}  // namespace stow::ops
