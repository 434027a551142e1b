// Attention problems for tests, and the naive forward and backward pass in f64.
// Not fast, and without regard to memory.
#pragma once

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/runtime/cpu/kernels/attention.h"
#include "tests/unit/runtime/cpu/kernels/kernel_data.h"

namespace stow::testing {

struct AttentionShape {
  int64_t batch, q_heads, kv_heads, q_len, kv_len, head_dim;
  bool causal;
  int64_t shift = 0;  ///< Added to the causal offset: queries see so many keys more, or fewer.

  int64_t offset() const { return causal ? kv_len - q_len + shift : 0; }
};

/// A tensor [batch, position, head, dim] with strides drawn from a seed.
struct HeadTensor {
  std::array<int64_t, 4> extents, strides;
  DType t;
  Buffer data;

  HeadTensor(std::array<int64_t, 4> e, DType dtype, uint64_t layout)
      : extents(e), t(dtype), data(lay(layout) * dtype_bytes(dtype)) {}
  int64_t offset(int64_t b, int64_t i, int64_t h, int64_t d) const {
    return b * strides[0] + i * strides[1] + h * strides[2] + d * strides[3];
  }
  double at(int64_t b, int64_t i, int64_t h, int64_t d) const {
    return read_element(t, data.data(), offset(b, i, h, d));
  }
  void fill(uint64_t seed) {
    uint64_t n = 0;
    each([&](int64_t o) { write_element(t, data.data(), o, value_at(seed, n++) * 2); });
  }
  std::vector<double> values() const {
    std::vector<double> out;
    each([&](int64_t o) { out.push_back(read_element(t, data.data(), o)); });
    return out;
  }

 private:
  template <typename F>
  void each(F f) const {
    for (int64_t b = 0; b < extents[0]; ++b)
      for (int64_t i = 0; i < extents[1]; ++i)
        for (int64_t h = 0; h < extents[2]; ++h)
          for (int64_t d = 0; d < extents[3]; ++d) f(offset(b, i, h, d));
  }
  int64_t lay(uint64_t layout) {
    int64_t total = 0;
    const auto s = random_strides({extents.begin(), extents.end()}, layout, &total);
    std::copy(s.begin(), s.end(), strides.begin());
    return total;
  }
};

struct AttentionProblem {
  AttentionShape shape;
  HeadTensor q, k, v, out, d_out, dq, dk, dv;
  Buffer lse;
  cpu::AttentionSpec spec;
  std::vector<int32_t> lo, hi;  // [batch, q_len], if the spec has intervals

  AttentionProblem(const AttentionShape& s, DType t, uint64_t layout)
      : shape(s),
        q(q_extents(s), t, layout), k(kv_extents(s), t, next(layout)),
        v(kv_extents(s), t, next(layout)), out(q_extents(s), t, next(layout)),
        d_out(q_extents(s), t, next(layout)), dq(q_extents(s), t, next(layout)),
        dk(kv_extents(s), t, next(layout)), dv(kv_extents(s), t, next(layout)),
        lse(s.batch * s.q_heads * s.q_len * 4),
        spec{t, s.batch, s.q_heads, s.kv_heads, s.q_len, s.kv_len, s.head_dim,
             float(1 / std::sqrt(double(s.head_dim))), s.causal,
             q.strides, k.strides, v.strides, out.strides,
             d_out.strides, dq.strides, dk.strides, dv.strides, s.offset()} {
    q.fill(1), k.fill(2), v.fill(3), d_out.fill(4);
  }

  void set_intervals(std::vector<int32_t> from, std::vector<int32_t> to) {
    lo = std::move(from), hi = std::move(to);
    spec.intervals = true;
    spec.lo = spec.hi = {shape.q_len, 1};
  }
  /// The keys [first, last) that a query sees.
  std::pair<int64_t, int64_t> visible(int64_t b, int64_t i) const {
    int64_t first = 0, last = shape.kv_len;
    if (shape.causal) last = std::clamp<int64_t>(i + shape.offset() + 1, 0, last);
    if (spec.intervals) {
      first = std::max<int64_t>(first, lo[size_t(b * shape.q_len + i)]);
      last = std::min<int64_t>(last, hi[size_t(b * shape.q_len + i)]);
    }
    return {first, std::max(first, last)};
  }

  void run(int threads) {
    const cpu::KeyIntervals intervals{lo.data(), hi.data()};
    Buffer forward(cpu::attention_forward_workspace_bytes(spec, threads));
    std::memset(forward.data(), 0xff, size_t(forward.bytes()));
    cpu::attention_forward(spec, q.data.data(), k.data.data(), v.data.data(), out.data.data(),
                           static_cast<float*>(lse.data()), forward.data(), threads, intervals);
    EXPECT_TRUE(forward.guard_intact());
    Buffer backward(cpu::attention_backward_workspace_bytes(spec, threads));
    std::memset(backward.data(), 0xff, size_t(backward.bytes()));
    cpu::attention_backward(spec, q.data.data(), k.data.data(), v.data.data(), out.data.data(),
                            static_cast<const float*>(lse.data()), d_out.data.data(),
                            dq.data.data(), dk.data.data(), dv.data.data(), backward.data(),
                            threads, intervals);
    EXPECT_TRUE(backward.guard_intact() && lse.guard_intact());
    for (const HeadTensor* x : {&q, &k, &v, &out, &d_out, &dq, &dk, &dv})
      EXPECT_TRUE(x->data.guard_intact());
  }

  std::vector<double> lse_values() const {
    const float* x = static_cast<const float*>(lse.data());
    return {x, x + shape.batch * shape.q_heads * shape.q_len};
  }

 private:
  static uint64_t next(uint64_t& layout) { return layout ? ++layout : 0; }
  static std::array<int64_t, 4> q_extents(const AttentionShape& s) {
    return {s.batch, s.q_len, s.q_heads, s.head_dim};
  }
  static std::array<int64_t, 4> kv_extents(const AttentionShape& s) {
    return {s.batch, s.kv_len, s.kv_heads, s.head_dim};
  }
};

/// The oracle's results, in logical order.
struct AttentionResult {
  std::vector<double> out, lse, dq, dk, dv;
};

/// Returns the naive results. `sizes`: if not null, gets the sensitivity of each result to a
/// rounding of P, of dS and of out, in units of that rounding: the sums of the terms' magnitudes.
/// (Delta, the sum of out * d_out, uses an out with two roundings.)
inline AttentionResult attention_oracle(const AttentionProblem& p,
                                        AttentionResult* sizes = nullptr) {
  const AttentionShape& s = p.shape;
  const int64_t group = s.q_heads / s.kv_heads, dims = s.head_dim;
  AttentionResult r;
  r.out.resize(size_t(s.batch * s.q_len * s.q_heads * dims));
  r.dq = r.out;
  r.dk.resize(size_t(s.batch * s.kv_len * s.kv_heads * dims));
  r.dv = r.dk;
  r.lse.resize(size_t(s.batch * s.q_heads * s.q_len));
  if (sizes) *sizes = r;
  std::vector<double> prob(size_t(s.kv_len)), d_prob(size_t(s.kv_len));
  const std::vector<double> q = p.q.values(), k = p.k.values(), v = p.v.values();
  const std::vector<double> d_out = p.d_out.values();
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t h = 0; h < s.q_heads; ++h)
      for (int64_t i = 0; i < s.q_len; ++i) {
        const int64_t g = h / group;
        const auto [first, last] = p.visible(b, i);
        const size_t row = size_t(((b * s.q_len + i) * s.q_heads + h) * dims);
        auto kv_row = [&](int64_t j) {
          return size_t(((b * s.kv_len + j) * s.kv_heads + g) * dims);
        };
        double most = -std::numeric_limits<double>::infinity(), sum = 0, delta = 0;
        for (int64_t j = first; j < last; ++j) {
          double score = 0;
          for (int64_t d = 0; d < dims; ++d) score += q[row + size_t(d)] * k[kv_row(j) + size_t(d)];
          prob[size_t(j)] = score * double(p.spec.scale);
          most = std::max(most, prob[size_t(j)]);
        }
        for (int64_t j = first; j < last; ++j)
          sum += prob[size_t(j)] = std::exp(prob[size_t(j)] - most);
        r.lse[size_t((b * s.q_heads + h) * s.q_len + i)] =
            first < last ? most + std::log(sum) : most;
        for (int64_t j = first; j < last; ++j) {
          prob[size_t(j)] /= sum;
          d_prob[size_t(j)] = 0;
          for (int64_t d = 0; d < dims; ++d) {
            r.out[row + size_t(d)] += prob[size_t(j)] * v[kv_row(j) + size_t(d)];
            d_prob[size_t(j)] += d_out[row + size_t(d)] * v[kv_row(j) + size_t(d)];
            r.dv[kv_row(j) + size_t(d)] += prob[size_t(j)] * d_out[row + size_t(d)];
          }
          delta += prob[size_t(j)] * d_prob[size_t(j)];
        }
        double delta_size = 0;
        for (int64_t j = first; sizes && j < last; ++j)
          for (int64_t d = 0; d < dims; ++d) {
            const double term = prob[size_t(j)] * std::abs(v[kv_row(j) + size_t(d)]);
            sizes->out[row + size_t(d)] += term;
            sizes->dv[kv_row(j) + size_t(d)] +=
                prob[size_t(j)] * std::abs(d_out[row + size_t(d)]);
            delta_size += 2 * term * std::abs(d_out[row + size_t(d)]);
          }
        for (int64_t j = first; j < last; ++j) {
          const double ds = prob[size_t(j)] * (d_prob[size_t(j)] - delta) * double(p.spec.scale);
          for (int64_t d = 0; d < dims; ++d) {
            r.dq[row + size_t(d)] += ds * k[kv_row(j) + size_t(d)];
            r.dk[kv_row(j) + size_t(d)] += ds * q[row + size_t(d)];
            if (!sizes) continue;
            const double size = std::abs(ds) + prob[size_t(j)] * delta_size * double(p.spec.scale);
            sizes->dq[row + size_t(d)] += size * std::abs(k[kv_row(j) + size_t(d)]);
            sizes->dk[kv_row(j) + size_t(d)] += size * std::abs(q[row + size_t(d)]);
          }
        }
      }
  return r;
}

}  // namespace stow::testing
