// The cumulative ops and LinearScan: what runs along one axis in order.
#include <limits>

#include "stowage/ops/rule.h"

namespace stow::ops {
namespace {

// The gradients of all but the sum are linear recurrences back along the axis.
Val linear_scan(const Val& a, const Val& b, int64_t axis, bool reverse) {
  return a.builder().add1(OpKind::kLinearScan, AxisParams{axis, reverse}, {a, b});
}

Val cumulative(OpKind op, const Val& x, const AxisParams& p) {
  return x.builder().add1(op, p, {x});
}

// Element j of the result is the one before (after) j in the order of the scan, `fill` at the end.
Val shifted(const Val& x, const AxisParams& p, bool before, double fill) {
  Dims low(static_cast<size_t>(x.rank()), 0), high = low;
  const int64_t by = before != p.flag ? 1 : -1;
  low[static_cast<size_t>(p.axis)] = by;
  high[static_cast<size_t>(p.axis)] = -by;
  return pad(x, constant(x.builder(), x.dtype(), fill), low, high, Dims(low.size(), 0));
}
Val previous(const Val& x, const AxisParams& p, double fill) { return shifted(x, p, true, fill); }
Val next(const Val& x, const AxisParams& p, double fill) { return shifted(x, p, false, fill); }

bool is_empty(const Val& x) { return x.type().elems() == 0; }

template <Kinds K>
std::vector<ArrayType> infer_cumulative(const InferContext& c) {
  const auto& p = expect<AxisParams>(c, 1);
  check_kinds(c, 0, K);
  check_axis(c, p.axis, c.operand(0));
  return {result_type(c, c.operand(0).dtype, c.operand(0).shape)};
}

Cotangents vjp_cumsum(const VjpContext& c) {
  AxisParams p = c.node.as<AxisParams>();
  p.flag = !p.flag;
  return cotangents(c, [&] { return cumulative(OpKind::kCumSum, c.ct(), p); });
}

// y_j = y_{j-1} x_j. No division, so zeros are exact.
Cotangents vjp_cumprod(const VjpContext& c) {
  const auto& p = c.node.as<AxisParams>();
  return cotangents(c, [&] {
    const Val& x = c.operands[0];
    if (is_empty(x)) return c.ct();
    const Val g = linear_scan(next(x, p, 0), c.ct(), p.axis, !p.flag);
    return g * previous(c.results[0], p, 1);
  });
}

// y_j = log(exp(y_{j-1}) + exp(x_j)); both factors are at most 1. Where all is -inf nothing moves.
Cotangents vjp_cumlogsumexp(const VjpContext& c) {
  const auto& p = c.node.as<AxisParams>();
  return cotangents(c, [&] {
    const Val &x = c.operands[0], &y = c.results[0];
    if (is_empty(x)) return c.ct();
    const Val zero = zeros_like(x), lowest = full_like(x, -std::numeric_limits<double>::infinity());
    const Val none = eq(y, lowest);
    const Val decay = select(
        none, zero, exp(previous(y, p, -std::numeric_limits<double>::infinity()) - y));
    const Val g = linear_scan(next(decay, p, 0), c.ct(), p.axis, !p.flag);
    return g * select(none, zero, exp(x - y));
  });
}

// In y_j = max(y_{j-1}, x_j) the larger operand gets the whole cotangent, and each gets half if
// both are equal.
template <OpKind Wins>
Cotangents vjp_extreme(const VjpContext& c) {
  const auto& p = c.node.as<AxisParams>();
  return cotangents(c, [&] {
    const Val& x = c.operands[0];
    const int64_t n = x.shape()[static_cast<int>(p.axis)];
    if (is_empty(x) || n == 1) return c.ct();
    const auto part = [&](const Val& v, bool later) {
      const bool upper = later != p.flag;
      return slice_axis(v, p.axis, upper ? 1 : 0, upper ? n : n - 1);
    };
    const Val old = part(c.results[0], false), new_value = part(x, true);
    const Val one = full_like(old, 1), zero = zeros_like(old);
    const Val tied = select(eq(old, new_value), full_like(old, 0.5), zero);
    // A NaN stays, whatever comes.
    const Val kept = select(ne(old, old), one, select(binary(Wins, old, new_value), one, tied));
    Dims low(static_cast<size_t>(x.rank()), 0), high = low;
    (p.flag ? high : low)[static_cast<size_t>(p.axis)] = 1;
    const Val keep =
        pad(kept, constant(x.builder(), x.dtype(), 0), low, high, Dims(low.size(), 0));
    const Val g = linear_scan(next(keep, p, 0), c.ct(), p.axis, !p.flag);
    return g * (1.0 - keep);
  });
}

std::vector<ArrayType> infer_linear_scan(const InferContext& c) {
  const auto& p = expect<AxisParams>(c, 2);
  check_kinds(c, 0, Kinds::kNumeric);
  check_same_dtypes(c);
  check_same_shapes(c);
  check_axis(c, p.axis, c.operand(0));
  return {result_type(c, c.operand(0).dtype, c.operand(0).shape)};
}

Cotangents vjp_linear_scan(const VjpContext& c) {
  const auto& p = c.node.as<AxisParams>();
  Cotangents result(2);
  if (!c.needed[0] && !c.needed[1]) return result;
  const Val& a = c.operands[0];
  const Val g =
      is_empty(a) ? c.ct() : linear_scan(next(a, p, 0), c.ct(), p.axis, !p.flag);
  if (c.needed[0]) result[0] = is_empty(a) ? g : g * previous(c.results[0], p, 0);
  if (c.needed[1]) result[1] = g;
  return result;
}

Cost cost_linear_scan(const InferContext& c, std::span<const ArrayType> results) {
  return {2.0 * static_cast<double>(results[0].elems()), traffic(c, results)};
}

template <Kinds K>
constexpr OpDef along_axis(OpKind op, VjpFunction vjp) {
  return {.op = op,
          .infer = infer_cumulative<K>,
          .vjp = vjp,
          .batch = batch_along_axis,
          .shard = shard_but_axis,
          .local = local_same,
          .cost = cost_elementwise};
}

}  // namespace

constinit const OpDef kCumSum = along_axis<Kinds::kNumeric>(OpKind::kCumSum, vjp_cumsum);
constinit const OpDef kCumProd = along_axis<Kinds::kNumeric>(OpKind::kCumProd, vjp_cumprod);
constinit const OpDef kCumMax =
    along_axis<Kinds::kNumeric>(OpKind::kCumMax, vjp_extreme<OpKind::kGt>);
constinit const OpDef kCumMin =
    along_axis<Kinds::kNumeric>(OpKind::kCumMin, vjp_extreme<OpKind::kLt>);
constinit const OpDef kCumLogSumExp =
    along_axis<Kinds::kFloat>(OpKind::kCumLogSumExp, vjp_cumlogsumexp);
constinit const OpDef kLinearScan = {.op = OpKind::kLinearScan,
                                     .infer = infer_linear_scan,
                                     .vjp = vjp_linear_scan,
                                     .batch = batch_along_axis,
                                     .shard = shard_but_axis,
                                     .local = local_same,
                                     .cost = cost_linear_scan};

}  // namespace stow::ops
