#include <algorithm>
#include <cmath>
#include <limits>

#include "stowage/runtime/reference/element.h"
#include "stowage/runtime/reference/families.h"

namespace stow::ref {
namespace {

bool contains(const Dims& list, size_t value) {
  return std::find(list.begin(), list.end(), static_cast<int64_t>(value)) != list.end();
}

// The axes of an operand of `rank` that are neither contracted nor batch, in order.
Dims free_axes(size_t rank, const Dims& contract, const Dims& batch) {
  Dims axes;
  for (size_t k = 0; k < rank; ++k)
    if (!contains(contract, k) && !contains(batch, k)) axes.push_back(static_cast<int64_t>(k));
  return axes;
}

// index[axes[k]] = values[first + k].
void place(Dims& index, const Dims& axes, const Dims& values, size_t first) {
  for (size_t k = 0; k < axes.size(); ++k) index[static_cast<size_t>(axes[k])] = values[first + k];
}

// The keys [first, last) that query i of row b sees, of S; `intervals` are lo and hi, or nothing.
struct KeyRange {
  int64_t first, last;
};
KeyRange visible(const AttentionParams& params, Views intervals, int64_t b, int64_t i, int64_t s) {
  KeyRange range{0, params.causal ? std::clamp<int64_t>(i + params.offset + 1, 0, s) : s};
  if (intervals.empty()) return range;
  range.first = std::max<int64_t>(range.first, load_int(intervals[0], {b, i}));
  range.last = std::min<int64_t>(range.last, load_int(intervals[1], {b, i}));
  return range.first < range.last ? range : KeyRange{0, 0};
}

// sum over d of a[b,i,h,d] * c[b,j,g,d].
double dot(const TensorView& a, const TensorView& c, int64_t b, int64_t i, int64_t h, int64_t j,
           int64_t g) {
  double sum = 0;
  for (int64_t d = 0; d < a.dims[3]; ++d)
    sum += load_float(a, {b, i, h, d}) * load_float(c, {b, j, g, d});
  return sum;
}

}  // namespace

void dot_general(const DotParams& params, Views in, Views out) {
  const TensorView &lhs = in[0], &rhs = in[1], &y = out[0];
  const Dims lhs_free = free_axes(lhs.dims.size(), params.lhs_contract, params.lhs_batch);
  const Dims rhs_free = free_axes(rhs.dims.size(), params.rhs_contract, params.rhs_batch);
  Dims contract_dims;
  for (int64_t axis : params.lhs_contract)
    contract_dims.push_back(lhs.dims[static_cast<size_t>(axis)]);
  const bool floats = is_float(lhs.dtype) || is_float(rhs.dtype);
  for_each_index(y.dims, [&](const Dims& index) {
    Dims l(lhs.dims.size()), r(rhs.dims.size());
    const size_t n_batch = params.lhs_batch.size();
    place(l, params.lhs_batch, index, 0);
    place(r, params.rhs_batch, index, 0);
    place(l, lhs_free, index, n_batch);
    place(r, rhs_free, index, n_batch + lhs_free.size());
    double float_sum = 0;
    int64_t int_sum = 0;
    for_each_index(contract_dims, [&](const Dims& k) {
      place(l, params.lhs_contract, k, 0);
      place(r, params.rhs_contract, k, 0);
      if (floats)
        float_sum += load_float(lhs, l) * load_float(rhs, r);
      else
        int_sum =
            int_add(int_sum, int_mul(load_int(lhs, l), load_int(rhs, r), {64, true}), {64, true});
    });
    if (!is_float(y.dtype))
      store_int(y, index, int_sum);
    else
      store_float(y, index,
                  floats ? static_cast<long double>(float_sum) : static_cast<long double>(int_sum));
  });
}

// q [B,T,H,D], k and v [B,S,G,D], lo and hi [B,T] or nothing -> out [B,T,H,D], lse [B,H,T].
void attention(const AttentionParams& params, Views in, Views out) {
  const TensorView &q = in[0], &k = in[1], &v = in[2], &y = out[0], &lse = out[1];
  const int64_t n_b = q.dims[0], n_t = q.dims[1], n_h = q.dims[2], n_s = k.dims[1];
  for_each_index({n_b, n_t, n_h}, [&](const Dims& index) {
    const int64_t b = index[0], i = index[1], h = index[2], g = h / (n_h / k.dims[2]);
    const KeyRange keys = visible(params, in.subspan(3), b, i, n_s);
    const int64_t n = keys.last - keys.first;
    std::vector<double> score;
    double largest = -std::numeric_limits<double>::infinity(), total = 0;
    for (int64_t j = keys.first; j < keys.last; ++j) {
      score.push_back(static_cast<double>(params.scale) * dot(q, k, b, i, h, j, g));
      largest = maximum(largest, score.back());
    }
    for (double& s : score) total += s = std::exp(s - largest);
    for (int64_t d = 0; d < v.dims[3]; ++d) {
      double sum = 0;
      for (int64_t j = 0; j < n; ++j)
        sum += score[static_cast<size_t>(j)] * load_float(v, {b, keys.first + j, g, d});
      store_float(y, {b, i, h, d}, n == 0 ? 0 : sum / total);
    }
    store_float(lse, {b, h, i},
                n == 0 ? -std::numeric_limits<double>::infinity() : largest + std::log(total));
  });
}

// Dao et al. 2022, Algorithm 4, without the tiles: P from lse, D from out and d_out.
void attention_grad(const AttentionParams& params, Views in, Views out) {
  const TensorView &q = in[0], &k = in[1], &v = in[2], &y = in[3], &lse = in[4], &dy = in[5];
  const int64_t n_b = q.dims[0], n_t = q.dims[1], n_h = q.dims[2], n_d = q.dims[3];
  const int64_t n_s = k.dims[1], n_g = k.dims[2], heads_a_group = n_h / std::max<int64_t>(n_g, 1);
  const double scale = static_cast<double>(params.scale);
  std::vector<double> dq(static_cast<size_t>(q.elems())), dk(static_cast<size_t>(k.elems())),
      dv(static_cast<size_t>(v.elems()));
  const auto at4 = [](int64_t a, int64_t b, int64_t nb, int64_t c, int64_t nc, int64_t d,
                      int64_t nd) { return static_cast<size_t>(((a * nb + b) * nc + c) * nd + d); };
  for_each_index({n_b, n_t, n_h}, [&](const Dims& index) {
    const int64_t b = index[0], i = index[1], h = index[2], g = h / heads_a_group;
    const double log_sum = load_float(lse, {b, h, i}), delta = dot(dy, y, b, i, h, i, h);
    const KeyRange keys = visible(params, in.subspan(6), b, i, n_s);
    for (int64_t j = keys.first; j < keys.last; ++j) {
      const double p = std::exp(scale * dot(q, k, b, i, h, j, g) - log_sum);
      const double ds = scale * p * (dot(dy, v, b, i, h, j, g) - delta);
      for (int64_t d = 0; d < n_d; ++d) {
        dq[at4(b, i, n_t, h, n_h, d, n_d)] += ds * load_float(k, {b, j, g, d});
        dk[at4(b, j, n_s, g, n_g, d, n_d)] += ds * load_float(q, {b, i, h, d});
        dv[at4(b, j, n_s, g, n_g, d, n_d)] += p * load_float(dy, {b, i, h, d});
      }
    }
  });
  const std::vector<double>* grads[3] = {&dq, &dk, &dv};
  for (size_t n = 0; n < 3; ++n) {
    size_t element = 0;
    for_each_index(out[n].dims,
                   [&](const Dims& i) { store_float(out[n], i, (*grads[n])[element++]); });
  }
}

}  // namespace stow::ref
