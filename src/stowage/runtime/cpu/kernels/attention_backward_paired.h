// Attention backward on pairs of bf16, around a kernel that multiplies panels of them: the blocks and
// the order of attention_backward.cpp, with P and dS rounded to bf16 for their products.
// Not for other machines; see pairs.h.
#pragma once

#include <algorithm>

#include "stowage/runtime/cpu/kernels/attention_pairs.h"
#include "stowage/runtime/cpu/kernels/attention_walk.h"

namespace stow::cpu::pairs {

// One task. A block of queries meets a block of keys a tile of kRows queries and kTileCols keys at a
// time. P and dS stand as pairs of queries, [pairs, kTileCols keys], the right operand for dv^T and
// dk^T [dims, kTileCols keys]; dS also as pairs of keys, [queries, pairs], the left operand for dq.
// `Kernel` as in attention_pairs.h.
template <typename Kernel>
struct BackwardBuffersOf : AttentionBackwardPairs {
  BackwardBuffersOf(const AttentionSpec& s, const AttentionBackwardPlan& p, Carver& from)
      : AttentionBackwardPairs(s, p, Kernel::kUnits, from) {}
};
template <typename Kernel>
class BackwardPaired
    : public BackwardWalk<BackwardPaired<Kernel>, BackwardBuffersOf<Kernel>, kTileCols> {
  using Walk = BackwardWalk<BackwardPaired<Kernel>, BackwardBuffersOf<Kernel>, kTileCols>;
  using Walk::a_, Walk::s_, Walk::dims_, Walk::buf_, Walk::batch_, Walk::kv_head_, Walk::dq_stride_,
      Walk::q_head_, Walk::k_lanes_, Walk::v_lanes_, Walk::k_deep_, Walk::dk_, Walk::dv_,
      Walk::first_key_, Walk::n_keys_, Walk::first_row_, Walk::n_rows_, Walk::ahead_,
      Walk::dim_offsets;
  static constexpr int64_t kRows = Kernel::kUnits.rows;
  static constexpr int64_t padded(int64_t n) { return Kernel::kUnits.pairs_of(n); }
  static const uint16_t* words(const void* p) { return static_cast<const uint16_t*>(p); }

 public:
  BackwardPaired(const AttentionBackwardArgs& args, void* workspace, int64_t head)
      : Walk(args, workspace, head), dim_pairs_(padded(dims_)),
        sums_(Kernel::kUnits.rows_of(dims_)) {}

  void pack_keys(bool for_dq) {
    int64_t at[kKeyBlock];
    for (int64_t j = 0; j < n_keys_; ++j) at[j] = (first_key_ + j) * s_.k[1];
    dim_offsets(s_.k[3]);
    const uint16_t* const k = words(a_.k) + batch_ * s_.k[0] + kv_head_ * s_.k[2];
    Kernel::pack_right(k, at, n_keys_, buf_.dims, dims_, k_lanes_);
    if (for_dq) Kernel::pack_right(k, buf_.dims, dims_, at, n_keys_, k_deep_);
    for (int64_t j = 0; j < n_keys_; ++j) at[j] = (first_key_ + j) * s_.v[1];
    dim_offsets(s_.v[3]);
    Kernel::pack_right(words(a_.v) + batch_ * s_.v[0] + kv_head_ * s_.v[2], at, n_keys_, buf_.dims,
                       dims_, v_lanes_);
  }

  void pack_queries(bool for_keys) {
    int64_t at[kQueryBlock];
    auto both = [&](const void* data, const std::array<int64_t, 4>& stride, uint32_t* rows,
                    uint32_t* deep) {
      for (int64_t i = 0; i < n_rows_; ++i) at[i] = (first_row_ + i) * stride[1];
      dim_offsets(stride[3]);
      const uint16_t* const from = words(data) + batch_ * stride[0] + q_head_ * stride[2];
      Kernel::pack_left(from, at, n_rows_, buf_.dims, dims_, rows);
      if (for_keys) Kernel::pack_left(from, buf_.dims, dims_, at, n_rows_, deep);
    };
    both(a_.q, s_.q, buf_.q_rows, buf_.q_deep);
    both(a_.d_out, s_.d_out, buf_.do_rows, buf_.do_deep);
    const int64_t head = (batch_ * s_.q_heads + q_head_) * s_.q_len + first_row_;
    delta_ = a_.delta + head;
    for (int64_t i = 0; i < n_rows_; ++i) buf_.lse[i] = a_.lse[head + i] * kLog2E;
  }

  void make_delta() {
    attention_delta_pairs(a_, batch_ * s_.q_heads + q_head_, first_row_, n_rows_);
  }

  // The packed queries and the packed keys: adds to dk and dv, and to dq [rows, dq_stride_] if
  // given.
  void meet(bool for_keys, float* dq) {
    const int64_t row_pairs = padded(n_rows_);
    for (int64_t key = 0; key < n_keys_; key += kTileCols) {
      // Rows before `from` see none of these keys.
      const int64_t unseen = s_.causal ? first_key_ + key - s_.offset - first_row_ : 0;
      const int64_t from = std::max<int64_t>(unseen, 0) / kRows * kRows;
      if (from >= n_rows_) break;
      for (int64_t i = from; i < n_rows_; i += kRows) {
        const int64_t h = std::min(kRows, n_rows_ - i);
        Kernel::template multiply<Onto::kNothing>(
            h, {dim_pairs_, buf_.q_rows + i * dim_pairs_, k_lanes_ + key * dim_pairs_, buf_.scores,
                kTileCols, nullptr});
        Kernel::template multiply<Onto::kNothing>(
            h, {dim_pairs_, buf_.do_rows + i * dim_pairs_, v_lanes_ + key * dim_pairs_, buf_.dp,
                kTileCols, nullptr});
        differentiate(i, h, key);
        ahead_.fetch(2 * dim_pairs_);
      }
      if (!for_keys) continue;
      const int64_t depth = row_pairs - from / 2;
      for (int64_t d = 0; d < dims_; d += kRows) {
        const int64_t h = std::min(kRows, dims_ - d);
        const int64_t a = d * row_pairs + from / 2 * kRows, b = from / 2 * kTileCols;
        const int64_t to = key * sums_ + d * kTileCols;
        Kernel::template multiply<Onto::kOut>(
            h, {depth, buf_.do_deep + a, buf_.p + b, dv_ + to, kTileCols, nullptr});
        Kernel::template multiply<Onto::kOut>(
            h, {depth, buf_.q_deep + a, buf_.ds + b, dk_ + to, kTileCols, nullptr});
        ahead_.fetch(2 * depth);
      }
    }
    if (!dq) return;
    const int64_t key_pairs = padded(n_keys_);
    for (int64_t i = 0; i < n_rows_; i += kRows) {
      const int64_t h = std::min(kRows, n_rows_ - i);
      const int64_t seen = visible_keys(s_, first_row_ + i + h - 1) - first_key_;
      const int64_t depth = padded(std::min(seen, n_keys_));
      if (depth <= 0) continue;
      for (int64_t d = 0; d < dims_; d += kTileCols) {
        Kernel::multiply_rows(h, {depth, buf_.ds_rows + i * kKeyPairs, k_deep_ + d * key_pairs,
                                  dq + i * dq_stride_ + d, dq_stride_, nullptr});
        ahead_.fetch(depth);
      }
    }
  }

  void write_keys(const float* sums, float factor, void* to, const std::array<int64_t, 4>& stride) {
    int64_t at[kKeyBlock];
    for (int64_t j = 0; j < n_keys_; ++j) at[j] = (first_key_ + j) * stride[1];
    alignas(64) float factors[kTileCols];
    std::fill_n(factors, kTileCols, factor);
    for (int64_t key = 0; key < n_keys_; key += kTileCols)
      store_columns(sums + key * sums_, factors, std::min<int64_t>(kTileCols, n_keys_ - key), dims_,
                    static_cast<Bf16*>(to) + batch_ * stride[0] + kv_head_ * stride[2], at + key,
                    stride[3]);
  }

  void write_dq(const float* sums, int64_t first_row, int64_t rows) {
    Bf16* const to = static_cast<Bf16*>(a_.dq) + batch_ * s_.dq[0] + q_head_ * s_.dq[2];
    for (int64_t i = 0; i < rows; ++i)
      store_row(sums + i * dq_stride_, s_.scale, dims_, to + (first_row + i) * s_.dq[1], s_.dq[3]);
  }

 private:
  // A tile of S and dP, the n queries from row i on: P = exp(S - lse), dS = P (dP - delta), two
  // rows at a time; zeros stand for what is not seen, and for the last row's missing partner.
  STOW_BF16 void differentiate(int64_t i, int64_t n, int64_t key) {
    const __m512 c = _mm512_set1_ps(s_.scale * kLog2E);
    for (int64_t r = 0; r < n; r += 2) {
      __m512 p[2][2], ds[2][2];
#pragma GCC unroll 2
      for (int64_t j = 0; j < 2; ++j) {
        const int64_t row = i + std::min(r + j, n - 1), at = (row - i) * kTileCols;
        const __m512 lse = _mm512_set1_ps(buf_.lse[row]), delta = _mm512_set1_ps(delta_[row]);
        const int64_t seen =
            r + j < n ? visible_keys(s_, first_row_ + row) - first_key_ - key : 0;
#pragma GCC unroll 2
        for (int h = 0; h < 2; ++h) {
          const __mmask16 sees = first16(seen - h * kLanes);
          const __m512 score = _mm512_load_ps(buf_.scores + at + h * kLanes);
          const __m512 dp = _mm512_load_ps(buf_.dp + at + h * kLanes);
          p[j][h] = _mm512_maskz_mov_ps(sees, exp2_of(_mm512_fmsub_ps(score, c, lse)));
          ds[j][h] = _mm512_maskz_mul_ps(sees, p[j][h], _mm512_sub_ps(dp, delta));
        }
        // In a pair of keys, too, the earlier one is the high half.
        uint32_t* const turned = buf_.ds_rows + (i + r + j) * kKeyPairs + key / 2;
        _mm512_storeu_si512(turned,
                            _mm512_rol_epi32((__m512i)_mm512_cvtne2ps_pbh(ds[j][1], ds[j][0]), 16));
      }
      const int64_t to = (i + r) / 2 * kTileCols;
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        _mm512_store_si512(buf_.p + to + h * kLanes, pair_of(p[0][h], p[1][h]));
        _mm512_store_si512(buf_.ds + to + h * kLanes, pair_of(ds[0][h], ds[1][h]));
      }
    }
    const int64_t end = (i / 2 + pairs_of(n)) * kTileCols;
    const int64_t missing = (padded(n) - pairs_of(n)) * kTileCols;
    std::fill_n(buf_.p + end, missing, 0u);
    std::fill_n(buf_.ds + end, missing, 0u);
  }

  int64_t dim_pairs_;
  int64_t sums_;  // rows of the sums of dk and dv
  const float* delta_ = nullptr;  // of the packed queries
};

}  // namespace stow::cpu::pairs
