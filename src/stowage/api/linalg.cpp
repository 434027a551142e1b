#include "stowage/api/linalg.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "stowage/api/indexing.h"
#include "stowage/api/math.h"
#include "stowage/api/math_internal.h"
#include "stowage/api/nn.h"
#include "stowage/api/reduce.h"
#include "stowage/api/shaping.h"

namespace stow {
namespace {

struct Pair {
  Array a, b;
};
Pair promoted(const Operand& a, const Operand& b) {
  const WeakDType dtype = promote(a.dtype(), b.dtype());
  return {to_array(a, dtype), to_array(b, dtype)};
}

Array record_dot(const Array& a, const Array& b, DotParams p, std::optional<DType> out) {
  p.out = out.value_or(a.dtype());
  if (a.dtype() == DType::kBool) {
    // A sum of ones and zeros is above 0, rounded or not, where one of them is.
    const bool logical = p.out == DType::kBool;
    if (logical) p.out = DType::kF32;
    return run_as_one("dot_general", [&] {
      const Array sums =
          record1(OpKind::kDotGeneral, p, {convert_to(a, p.out), convert_to(b, p.out)});
      return logical ? sums > 0 : sums;
    });
  }
  if (is_float(p.out) && !is_float(a.dtype()))  // as XLA: the factors are converted, not the sums
    return run_as_one("dot_general", [&] {
      return record1(OpKind::kDotGeneral, p, {convert_to(a, p.out), convert_to(b, p.out)});
    });
  return record1(OpKind::kDotGeneral, std::move(p), {a, b});
}

// The leading axes of a product: batched where both have the axis, free in the one that has it
// where the other lacks it or has extent 1. The result's axes are then put in order.
Array batched_matmul(const Array& a, const Array& b, std::optional<DType> out) {
  const int rank = std::max(a.rank(), b.rank()), lead = rank - 2;
  DotParams p;
  Dims a_dims, b_dims;                     // without the leading axes of extent 1 that broadcast
  std::vector<int> batch, only_a, only_b;  // leading axes by where they occur
  Dims ones;                               // leading axes of extent 1 in both
  for (int i = 0; i < lead; ++i) {
    const int ia = i - rank + a.rank(), ib = i - rank + b.rank();
    const int64_t da = ia < 0 ? 1 : a.shape()[ia], db = ib < 0 ? 1 : b.shape()[ib];
    if (da != db && da != 1 && db != 1)
      trace_error_here("[matmul] {} and {} do not broadcast: leading axis {} has extents {} and {}",
                       to_string(a.type()), to_string(b.type()), i - rank, da, db);
    if (da == db && da != 1) {
      p.lhs_batch.push_back(static_cast<int64_t>(a_dims.size()));
      p.rhs_batch.push_back(static_cast<int64_t>(b_dims.size()));
      batch.push_back(i);
      a_dims.push_back(da);
      b_dims.push_back(db);
    } else if (da != 1) {
      only_a.push_back(i);
      a_dims.push_back(da);
    } else if (db != 1) {
      only_b.push_back(i);
      b_dims.push_back(db);
    } else {
      ones.push_back(i);
    }
  }
  a_dims.insert(a_dims.end(), {a.dim(-2), a.dim(-1)});
  b_dims.insert(b_dims.end(), {b.dim(-2), b.dim(-1)});
  p.lhs_contract = {std::ssize(a_dims) - 1};
  p.rhs_contract = {std::ssize(b_dims) - 2};
  const Array product = record_dot(reshape(a, a_dims), reshape(b, b_dims), p, out);
  // Its axes: batch, only_a, m, only_b, n; each named by its place in the result.
  Dims names;
  for (int i : batch) names.push_back(i);
  for (int i : only_a) names.push_back(i);
  names.push_back(rank - 2);
  for (int i : only_b) names.push_back(i);
  names.push_back(rank - 1);
  Dims order(names.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  std::sort(order.begin(), order.end(), [&](int64_t x, int64_t y) {
    return names[static_cast<size_t>(x)] < names[static_cast<size_t>(y)];
  });
  const Array ordered = transpose(product, order);
  return ones.empty() ? ordered : expand_dims(ordered, ones);
}

}  // namespace

Array matmul(const Operand& x, const Operand& y, std::optional<DType> out) {
  const CallSiteScope site(x.at);
  auto [a, b] = promoted(x, y);
  if (a.rank() == 0 || b.rank() == 0)
    trace_error_here("[matmul] expected matrices, got a scalar: {} and {}; use *",
                     to_string(a.type()), to_string(b.type()));
  const int64_t k = b.rank() == 1 ? b.dim(0) : b.dim(-2);
  if (a.dim(-1) != k)
    trace_error_here(
        "[matmul] {} and {}: the last axis of the first has extent {}, {} of the second {}",
        to_string(a.type()), to_string(b.type()), a.dim(-1),
        b.rank() == 1 ? "the axis" : "the last but one", k);
  if (b.rank() <= 2) {  // no batch: one product of [..., k] and [k, n] or [k]
    DotParams p;
    p.lhs_contract = {a.rank() - 1};
    p.rhs_contract = {0};
    return record_dot(a, b, p, out);
  }
  if (a.rank() > 1) return batched_matmul(a, b, out);
  return squeeze(batched_matmul(expand_dims(a, 0), b, out), -2);
}

Array dot(const Operand& x, const Operand& y) {
  const CallSiteScope site(x.at);
  if (x.rank() == 0 || y.rank() == 0) return multiply(x, y);
  if (y.rank() <= 2) return matmul(x, y);
  const auto [a, b] = promoted(x, y);
  return dot_general(a, b, {a.rank() - 1}, {b.rank() - 2});
}

Array outer(const Operand& x, const Operand& y) {
  const CallSiteScope site(x.at);
  return expand_dims(ravel(x), 1) * expand_dims(ravel(y), 0);
}

Array dot_general(const Operand& x, const Operand& y, const Dims& a_contract,
                  const Dims& b_contract, const Dims& a_batch, const Dims& b_batch,
                  std::optional<DType> out) {
  const CallSiteScope site(x.at);
  const auto [a, b] = promoted(x, y);
  return record_dot(a, b, DotParams{a_contract, b_contract, a_batch, b_batch}, out);
}

Array tensordot(const Operand& x, const Operand& y, const Dims& a_axes, const Dims& b_axes) {
  const CallSiteScope site(x.at);
  const auto [a, b] = promoted(x, y);
  if (a_axes.size() != b_axes.size())
    trace_error_here(
        "[tensordot] expected as many axes of each, got {} of the first and {} of the second",
        a_axes.size(), b_axes.size());
  DotParams p;
  for (int64_t axis : a_axes)
    p.lhs_contract.push_back(normalize_axis("tensordot", axis, a.rank(), a.type()));
  for (int64_t axis : b_axes)
    p.rhs_contract.push_back(normalize_axis("tensordot", axis, b.rank(), b.type()));
  return record_dot(a, b, std::move(p), {});
}

Array tensordot(const Operand& x, const Operand& y, int n) {
  const CallSiteScope site(x.at);
  if (n < 0 || n > x.rank() || n > y.rank())
    trace_error_here(
        "[tensordot] expected a number of axes that both arrays have, got {} for ranks {} and {}",
        n, x.rank(), y.rank());
  Dims last, first;
  for (int i = 0; i < n; ++i) {
    last.push_back(x.rank() - n + i);
    first.push_back(i);
  }
  return tensordot(x, y, last, first);
}

Array inner(const Operand& x, const Operand& y) {
  const CallSiteScope site(x.at);
  if (x.rank() == 0 || y.rank() == 0) return multiply(x, y);
  return tensordot(x, y, Dims{-1}, Dims{-1});
}

Array vdot(const Operand& x, const Operand& y) {
  const CallSiteScope site(x.at);
  return tensordot(ravel(x), ravel(y), 1);
}

Array kron(const Operand& x, const Operand& y) {
  const CallSiteScope site(x.at);
  Array a = to_array(x), b = to_array(y);
  const int rank = std::max(a.rank(), b.rank());
  const auto widened_to = [&](const Array& v) {
    Dims dims(static_cast<size_t>(rank - v.rank()), 1);
    dims.insert(dims.end(), v.shape().begin(), v.shape().end());
    return dims;
  };
  const Dims da = widened_to(a), db = widened_to(b);
  Dims a_spread, b_spread, joined;
  for (size_t i = 0; i < da.size(); ++i) {
    a_spread.insert(a_spread.end(), {da[i], 1});
    b_spread.insert(b_spread.end(), {1, db[i]});
    joined.push_back(da[i] * db[i]);
  }
  return run_as_one("kron",
                    [&] { return reshape(reshape(a, a_spread) * reshape(b, b_spread), joined); });
}

Array trace(const Operand& x, int64_t k, int axis1, int axis2) {
  const CallSiteScope site(x.at);
  return sum(diagonal(x, k, axis1, axis2), -1);
}

Array norm(const Operand& x, const Axes& axes, double ord, bool keepdims) {
  const CallSiteScope site(x.at);
  const Array a = to_float_array(x);
  normalize_axes("norm", axes, a.type(), true);
  return run_as_one("norm", [&] {
    if (ord == 2) return sqrt(sum(square(a), axes, keepdims));
    if (std::isinf(ord) && ord < 0) return min(abs(a), axes, keepdims);
    // The norm of no elements is 0. If the largest is 0, it shares the gradient with that constant.
    if (std::isinf(ord))
      return a.size() == 0 ? sum(a, axes, keepdims) : maximum(max(abs(a), axes, keepdims), 0);
    if (ord == 0) return astype(sum(astype(a != 0, DType::kI32), axes, keepdims), a.dtype());
    if (ord == 1) return sum(abs(a), axes, keepdims);
    return pow(sum(pow(abs(a), ord), axes, keepdims), 1 / ord);
  });
}

namespace {

// lo and hi, i32 [B,T], or nothing if neither is given.
std::vector<Array> key_intervals(const Array& q, const Array& k, const AttentionOptions& options) {
  if ((!options.lo && !options.hi) || k.rank() != 4) return {};
  const Shape shape{q.dim(0), q.dim(1)};
  const auto bound = [&](std::string_view name, const std::optional<Array>& x, int64_t otherwise) {
    if (!x) return full(shape, otherwise, DType::kI32);
    if (x->dtype() != DType::kI32)
      trace_error_here("[attention] {} must be i32, got {}", name, to_string(x->type()));
    const int over = 2 - x->rank();
    bool fits = over >= 0;
    for (int i = 0; fits && i < x->rank(); ++i)
      fits = x->dim(i) == 1 || x->dim(i) == shape[i + over];
    if (!fits)
      trace_error_here("[attention] {} must broadcast to [B,T] = [{},{}], got {}", name, shape[0],
                       shape[1], to_string(x->type()));
    return broadcast_to(*x, shape);
  };
  return {bound("lo", options.lo, 0), bound("hi", options.hi, k.dim(1))};
}

// With scores in memory, for what the fused kernel does not take.
Array stored_attention(const Array& q, const Array& k, const Array& v, double scale,
                       const AttentionOptions& options) {
  if (k.rank() != 4 || v.rank() != 4 || k.dim(2) == 0 || q.dim(2) % k.dim(2) != 0)
    trace_error_here(
        "[attention] q must be [B,T,H,D] and k, v [B,S,G,D] with H a multiple of G, got {}, {}, {}",
        to_string(q.type()), to_string(k.type()), to_string(v.type()));
  const int64_t b = q.dim(0), t = q.dim(1), h = q.dim(2), d = q.dim(3), s = k.dim(1), g = k.dim(2);
  const DType wide = q.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
  const auto per_head = [&](const std::optional<Array>& x, DType dtype) {
    return reshape(broadcast_to(astype(*x, dtype), Shape{b, h, t, s}), {b, g, h / g, t, s});
  };
  return run_as_one("attention", [&] {
    const Array heads = reshape(q, {b, t, g, h / g, d});
    Array scores = einsum("btghd,bsgd->bghts", {astype(heads, wide), astype(k, wide)}) * scale;
    if (options.bias) scores = scores + per_head(options.bias, wide);
    // As low as JAX has it: a query that sees nothing takes the mean.
    const double lowest = wide == DType::kF64 ? -0.7 * std::numeric_limits<double>::max()
                                              : -0.7 * double{std::numeric_limits<float>::max()};
    if (options.mask)
      scores = where(per_head(options.mask, DType::kBool), scores, full_like(scores, lowest));
    const int64_t offset = options.align_last ? s - t : 0;
    if (options.causal)
      scores = where(tri(t, s, offset, DType::kBool), scores, full_like(scores, lowest));
    std::optional<Array> sees_any;
    if (offset < 0) sees_any = reshape(tri(t, 1, offset, DType::kBool), {1, t});
    if (const std::vector<Array> interval = key_intervals(q, k, options); !interval.empty()) {
      const Array first = maximum(interval[0], 0);
      Array last = minimum(interval[1], s);
      if (options.causal)
        last = minimum(last, arange(t, DType::kI32) + static_cast<int32_t>(offset + 1));
      const auto per_score = [&](const Array& x) { return reshape(x, {b, 1, 1, t, 1}); };
      const Array key = arange(s, DType::kI32);
      const Array visible = (per_score(first) <= key) & (key < per_score(last));
      sees_any = first < last;
      // No score of a query that sees nothing is left out: its result is.
      scores = where(visible | logical_not(per_score(*sees_any)), scores,
                     full_like(scores, -std::numeric_limits<double>::infinity()));
    }
    const Array weights = astype(softmax(scores), q.dtype());
    const Array out = reshape(einsum("bghts,bsgd->btghd", {weights, v}), {b, t, h, d});
    if (!sees_any) return out;
    return where(reshape(*sees_any, {sees_any->dim(0), t, 1, 1}), out, full_like(out, 0));
  });
}

}  // namespace

Array attention(const Operand& q, const Operand& k, const Operand& v,
                const AttentionOptions& options) {
  const CallSiteScope site(q.at);
  const Array a = to_array(q), b = to_array(k), c = to_array(v);
  if (a.rank() != 4)
    trace_error_here("[attention] q must be [B,T,H,D], got {}", to_string(a.type()));
  if (options.align_last && !options.causal)
    trace_error_here("[attention] align_last has no effect without causal; set causal");
  if (options.mask && options.mask->dtype() != DType::kBool)
    trace_error_here(
        "[attention] the mask must be bool, got {}; what is added to scores is the bias",
        to_string(options.mask->type()));
  const double scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(a.dim(3))));
  if (options.bias || options.mask || a.dtype() == DType::kF64)
    return stored_attention(a, b, c, scale, options);
  AttentionParams p{static_cast<float>(scale), options.causal, 0};
  if (options.align_last && b.rank() == 4) p.offset = b.dim(1) - a.dim(1);
  const std::vector<Array> interval = key_intervals(a, b, options);
  if (interval.empty()) return record1(OpKind::kAttention, p, {a, b, c});
  return record1(OpKind::kAttention, p, {a, b, c, interval[0], interval[1]});
}

}  // namespace stow
