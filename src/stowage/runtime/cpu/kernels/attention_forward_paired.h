// Attention forward on pairs of bf16, around a kernel that multiplies panels of them: the blocks and
// the order of attention_forward.cpp, with probabilities rounded to bf16 for their product with v.
// Not for other machines; see pairs.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "stowage/runtime/cpu/kernels/attention_ahead.h"
#include "stowage/runtime/cpu/kernels/attention_pairs.h"
#include "stowage/runtime/cpu/kernels/attention_thread.h"

namespace stow::cpu::pairs {

static_assert(kPanelCols == kTileCols);
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

// One step of the online softmax over scores [n, kTileCols], a lane a query: their exponentials
// relative to the maximum, as pairs of keys; the running maximum (of scores not scaled yet) and sum
// updated; and the factor that brings what was summed before to the new maximum.
STOW_BF16 inline void softmax_step(const float* scores, int64_t n, float scale, float* max, float* sum,
                            float* factors, uint32_t* p) {
  const __m512 c = _mm512_set1_ps(scale * kLog2E);
  __m512 most[2], shift[2], total[2][2];
  for (int h = 0; h < 2; ++h) {
    const float* s = scores + h * kLanes;
    __m512 m = _mm512_load_ps(max + h * kLanes), m2 = m;
    int64_t i = 0;
    for (; i + 2 <= n; i += 2) {
      m = _mm512_max_ps(m, _mm512_load_ps(s + i * kTileCols));
      m2 = _mm512_max_ps(m2, _mm512_load_ps(s + (i + 1) * kTileCols));
    }
    if (i < n) m = _mm512_max_ps(m, _mm512_load_ps(s + i * kTileCols));
    most[h] = _mm512_max_ps(m, m2);
    // A query that has seen no key keeps -inf as its maximum; zero stands in for it.
    const __mmask16 none = _mm512_cmp_ps_mask(most[h], _mm512_set1_ps(-kInfinity), _CMP_EQ_OQ);
    shift[h] = _mm512_maskz_mul_ps(static_cast<__mmask16>(~none), most[h], c);
    total[h][0] = total[h][1] = _mm512_setzero_ps();
  }
  const auto probability = [&](int64_t i, int h) STOW_BF16 {
    const __m512 s = _mm512_load_ps(scores + i * kTileCols + h * kLanes);
    return exp2_of(_mm512_fmsub_ps(s, c, shift[h]));
  };
  int64_t i = 0;
  for (; i + 2 <= n; i += 2)
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const __m512 first = probability(i, h), second = probability(i + 1, h);
      total[h][0] = _mm512_add_ps(total[h][0], first);
      total[h][1] = _mm512_add_ps(total[h][1], second);
      _mm512_store_si512(p + i / 2 * kTileCols + h * kLanes, pair_of(first, second));
    }
  for (int h = 0; h < 2; ++h) {
    if (i < n) {
      const __m512 last = probability(i, h);
      total[h][0] = _mm512_add_ps(total[h][0], last);
      _mm512_store_si512(p + i / 2 * kTileCols + h * kLanes, pair_of(last, _mm512_setzero_ps()));
    }
    float *const m = max + h * kLanes, *const l = sum + h * kLanes;
    const __m512 before = _mm512_load_ps(m);
    const __mmask16 moved = _mm512_cmp_ps_mask(before, most[h], _CMP_NEQ_UQ);
    const __m512 factor =
        exp2_of(_mm512_maskz_mul_ps(moved, _mm512_sub_ps(before, most[h]), c));
    _mm512_store_ps(factors + h * kLanes, factor);
    _mm512_store_ps(l, _mm512_fmadd_ps(_mm512_load_ps(l), factor,
                                       _mm512_add_ps(total[h][0], total[h][1])));
    _mm512_store_ps(m, most[h]);
  }
}

/// One task. `Kernel` as in attention_pairs.h.
template <typename Kernel>
class ForwardPaired {
  static constexpr int64_t kRows = Kernel::kUnits.rows;

 public:
  ForwardPaired(const AttentionForwardArgs& args, void* workspace, int64_t task, int64_t next)
      : a_(args),
        s_(args.spec),
        dims_(args.spec.head_dim),
        dim_pairs_(Kernel::kUnits.pairs_of(dims_)),
        panel_(Kernel::kUnits.rows_of(dims_) * kTileCols),
        carver_(workspace),
        buf_(args.spec, args.plan, Kernel::kUnits, carver_),
        here_(args.spec, args.plan, task),
        ahead_(args, here_, next) {}

  void run() {
    column_offsets(s_.q);
    dim_offsets(s_.q);
    Kernel::pack_right(words(a_.q) + here_.batch * s_.q[0], offsets_, here_.columns, buf_.dims,
                       dims_, buf_.q);
    const int64_t padded = round_up_to(here_.columns, kTileCols);
    for (int64_t c = 0; c < padded; ++c)  // rising; lanes beyond the last column are like it
      seen_[c] =
          static_cast<int32_t>(visible_keys(s_, here_.position(std::min(c, here_.columns - 1))));
    std::fill_n(buf_.o, padded / kTileCols * panel_, 0.0f);
    std::fill_n(buf_.max, padded, -kInfinity);
    std::fill_n(buf_.sum, padded, 0.0f);
    const int64_t keys = seen_[here_.columns - 1];
    for (int64_t key = 0; key < keys; key += kKeyBlock)
      key_block(key, std::min(kKeyBlock, keys - key));
    finish();
  }

 private:
  static const uint16_t* words(const void* p) { return static_cast<const uint16_t*>(p); }
  void column_offsets(const std::array<int64_t, 4>& stride) {
    for (int64_t c = 0; c < here_.columns; ++c)
      offsets_[c] = here_.position(c) * stride[1] + here_.q_head(c) * stride[2];
  }
  void dim_offsets(const std::array<int64_t, 4>& stride) {
    for (int64_t d = 0; d < dims_; ++d) buf_.dims[d] = d * stride[3];
  }

  void key_block(int64_t first_key, int64_t keys) {
    int64_t at[kKeyBlock];
    for (int64_t j = 0; j < keys; ++j) at[j] = (first_key + j) * s_.k[1];
    dim_offsets(s_.k);
    Kernel::pack_left(words(a_.k) + here_.batch * s_.k[0] + here_.kv_head * s_.k[2], at, keys,
                      buf_.dims, dims_, buf_.k);
    for (int64_t j = 0; j < keys; ++j) at[j] = (first_key + j) * s_.v[1];
    dim_offsets(s_.v);
    Kernel::pack_left(words(a_.v) + here_.batch * s_.v[0] + here_.kv_head * s_.v[2], buf_.dims,
                      dims_, at, keys, buf_.v);
    ahead_.packed(first_key, keys);
    for (int64_t c = 0; c < here_.columns; c += kTileCols) {
      const int64_t n = std::min(seen_[c + kTileCols - 1] - first_key, keys);
      if (n > 0) panel(c, first_key, keys, n);
    }
  }

  // kTileCols queries from column c on, with the first n of the packed keys.
  void panel(int64_t c, int64_t first_key, int64_t keys, int64_t n) {
    for (int64_t i = 0; i < n; i += kRows) {
      Kernel::template multiply<Onto::kNothing>(
          std::min(kRows, n - i), {dim_pairs_, buf_.k + i * dim_pairs_, buf_.q + c * dim_pairs_,
                                   buf_.scores + i * kTileCols, kTileCols, nullptr});
      ahead_.fetch(dim_pairs_);
    }
    if (seen_[c] - first_key < n) hide(c, first_key, std::max<int64_t>(seen_[c] - first_key, 0), n);
    softmax_step(buf_.scores, n, s_.scale, buf_.max + c, buf_.sum + c, buf_.factors, buf_.p);
    const int64_t depth = Kernel::kUnits.pairs_of(n), all = Kernel::kUnits.pairs_of(keys);
    std::fill_n(buf_.p + pairs_of(n) * kTileCols, (depth - pairs_of(n)) * kTileCols, 0u);
    float* const o = buf_.o + c / kTileCols * panel_;
    for (int64_t d = 0; d < dims_; d += kRows) {
      Kernel::template multiply<Onto::kScaledOut>(
          std::min(kRows, dims_ - d),
          {depth, buf_.v + d * all, buf_.p, o + d * kTileCols, kTileCols, buf_.factors});
      ahead_.fetch(depth);
    }
  }

  // -inf for the scores of keys [from, n) after first_key that their query does not see.
  STOW_BF16 void hide(int64_t c, int64_t first_key, int64_t from, int64_t n) {
    for (int64_t half = 0; half < kTileCols; half += kLanes) {
      const __m512i seen = _mm512_loadu_si512(seen_ + c + half);
      for (int64_t i = from; i < n; ++i) {
        const __m512i key = _mm512_set1_epi32(static_cast<int32_t>(first_key + i));
        _mm512_mask_store_ps(buf_.scores + i * kTileCols + half,
                             _mm512_cmpge_epi32_mask(key, seen), _mm512_set1_ps(-kInfinity));
      }
    }
  }

  void finish() {
    column_offsets(s_.out);
    for (int64_t c = 0; c < here_.columns; c += kTileCols) {
      for (int64_t lane = 0; lane < kTileCols; ++lane) {
        float& sum = buf_.sum[c + lane];
        sum = softmax_divisor(sum, seen_[c + lane]);
        buf_.factors[lane] = 1 / sum;
      }
      store_columns(buf_.o + c / kTileCols * panel_, buf_.factors,
                    std::min<int64_t>(kTileCols, here_.columns - c), dims_,
                    static_cast<Bf16*>(a_.out) + here_.batch * s_.out[0], offsets_ + c, s_.out[3]);
    }
    for (int64_t c = 0; c < here_.columns; ++c)
      a_.lse[(here_.batch * s_.q_heads + here_.q_head(c)) * s_.q_len + here_.position(c)] =
          buf_.max[c] * s_.scale + std::log(buf_.sum[c]);
  }

  const AttentionForwardArgs& a_;
  const AttentionSpec& s_;
  int64_t dims_, dim_pairs_;
  int64_t panel_;  // elements of the sums of kTileCols queries
  Carver carver_;
  AttentionForwardPairs buf_;
  const AttentionForwardPlace here_;
  AttentionForwardAhead ahead_;
  int64_t offsets_[kQueryColumns];
  int32_t seen_[kQueryColumns];  // keys that each column sees
};

}  // namespace stow::cpu::pairs
