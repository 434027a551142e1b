#include "stowage/api/linalg.h"

#include <algorithm>
#include <cmath>

#include "stowage/api/math.h"
#include "stowage/api/math_internal.h"
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
      fail_here("[matmul] {} and {} do not broadcast: leading axis {} has extents {} and {}",
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
  const Site site(x.at);
  auto [a, b] = promoted(x, y);
  if (a.rank() == 0 || b.rank() == 0)
    fail_here("[matmul] a scalar is no matrix: {} and {}; use *", to_string(a.type()),
              to_string(b.type()));
  const int64_t k = b.rank() == 1 ? b.dim(0) : b.dim(-2);
  if (a.dim(-1) != k)
    fail_here("[matmul] {} and {}: the last axis of the first has extent {}, {} of the second {}",
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
  const Site site(x.at);
  if (x.rank() == 0 || y.rank() == 0) return multiply(x, y);
  if (y.rank() <= 2) return matmul(x, y);
  const auto [a, b] = promoted(x, y);
  return dot_general(a, b, {a.rank() - 1}, {b.rank() - 2});
}

Array outer(const Operand& x, const Operand& y) {
  const Site site(x.at);
  return expand_dims(ravel(x), 1) * expand_dims(ravel(y), 0);
}

Array dot_general(const Operand& x, const Operand& y, const Dims& a_contract,
                  const Dims& b_contract, const Dims& a_batch, const Dims& b_batch,
                  std::optional<DType> out) {
  const Site site(x.at);
  const auto [a, b] = promoted(x, y);
  return record_dot(a, b, DotParams{a_contract, b_contract, a_batch, b_batch}, out);
}

Array attention(const Operand& q, const Operand& k, const Operand& v,
                const AttentionOptions& options) {
  const Site site(q.at);
  const Array a = to_array(q), b = to_array(k), c = to_array(v);
  if (a.rank() != 4) fail_here("[attention] q must be [B,T,H,D], got {}", to_string(a.type()));
  const float scale =
      options.scale.value_or(static_cast<float>(1 / std::sqrt(static_cast<double>(a.dim(3)))));
  return record1(OpKind::kAttention, AttentionParams{scale, options.causal}, {a, b, c});
}

}  // namespace stow
