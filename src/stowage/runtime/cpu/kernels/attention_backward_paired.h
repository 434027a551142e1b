// The backward pass of attention on pairs of bf16: the loops around a kernel that multiplies panels
// of pairs. Blocks and order are those of attention_backward.cpp, with P and dS rounded to bf16, or
// split, for their products.
// Not for other machines; see pairs.h.
#pragma once

#include <algorithm>

#include "stowage/base/inside.h"
#include "stowage/runtime/cpu/kernels/attention_pairs.h"
#include "stowage/runtime/cpu/kernels/attention_walk.h"

namespace stow::cpu::pairs {

// One task. S and dP of a block of queries and a block of keys are computed in tiles of kRows
// queries and kTileCols keys. P and dS are packed as pairs of queries, [pairs, kTileCols keys], the
// right operands of dv^T and dk^T [dims, kTileCols keys]. dS is also packed as pairs of keys,
// [queries, pairs], the left operand of dq. `Kernel` is explained in attention_pairs.h.
template <typename Kernel>
struct BackwardBuffersOf : AttentionBackwardPairs {
  BackwardBuffersOf(const AttentionSpec& s, const AttentionBackwardPlan& p, BumpAllocator& from)
      : AttentionBackwardPairs(s, p, Kernel::kUnits, from) {}
};
template <typename Kernel>
class BackwardPaired
    : public BackwardWalk<BackwardPaired<Kernel>, BackwardBuffersOf<Kernel>, kTileCols> {
  using Walk = BackwardWalk<BackwardPaired<Kernel>, BackwardBuffersOf<Kernel>, kTileCols>;
  using Walk::a_, Walk::s_, Walk::dims_, Walk::buf_, Walk::batch_, Walk::kv_head_, Walk::dq_stride_,
      Walk::q_head_, Walk::k_transposed_, Walk::v_transposed_, Walk::k_rows_, Walk::dk_, Walk::dv_,
      Walk::packed_index_, Walk::first_key_, Walk::n_keys_, Walk::first_row_, Walk::n_rows_,
      Walk::prefetcher_, Walk::dim_offsets, Walk::row_keys_, Walk::key_marks_, Walk::q_marks_,
      Walk::do_marks_, Walk::keys_cleaned_, Walk::q_cleaned_, Walk::do_cleaned_;
  static constexpr int64_t kRows = Kernel::kUnits.rows, kParts = Kernel::kUnits.parts;
  using Element = typename Kernel::Element;
  static constexpr int64_t padded(int64_t n) { return Kernel::kUnits.pairs_of(n); }
  static const Element* elements(const void* p) { return static_cast<const Element*>(p); }

 public:
  BackwardPaired(const AttentionBackwardArgs& args, void* workspace, int64_t head)
      : Walk(args, workspace, head),
        dim_pairs_(padded(dims_)),
        dim_words_(dim_pairs_ * kParts),
        sums_(Kernel::kUnits.rows_of(dims_)) {}

  void pack_keys(bool for_dq) {
    int64_t at[kKeyBlock];
    for (int64_t j = 0; j < n_keys_; ++j) at[j] = (first_key_ + j) * s_.k[1];
    dim_offsets(s_.k[3]);
    const Element* const k = elements(a_.k) + batch_ * s_.k[0] + kv_head_ * s_.k[2];
    kernel_.pack_right(k, at, n_keys_, buf_.dims, dims_,
                       buf_.k_transposed_marks + transposed_marks_offset(), k_transposed_);
    if (for_dq) {
      const RowSource rows =
          this->finite(this->keys_source(), at, n_keys_, key_marks_[packed_index_],
                       keys_cleaned_[packed_index_]);
      dim_offsets(rows.dim_stride);
      kernel_.pack_right(elements(rows.base) + rows.origin, buf_.dims, dims_, at, n_keys_,
                         buf_.k_rows_marks + rows_marks_offset(), k_rows_);
    }
    for (int64_t j = 0; j < n_keys_; ++j) at[j] = (first_key_ + j) * s_.v[1];
    dim_offsets(s_.v[3]);
    kernel_.pack_right(elements(a_.v) + batch_ * s_.v[0] + kv_head_ * s_.v[2], at, n_keys_,
                       buf_.dims, dims_, buf_.v_transposed_marks + transposed_marks_offset(),
                       v_transposed_);
  }

  void pack_queries(bool for_keys) {
    int64_t at[kQueryBlock];
    auto both = [&](const void* data, const std::array<int64_t, 4>& stride, uint32_t* rows,
                    int8_t* rows_marks, uint32_t* transposed, int8_t* transposed_marks,
                    uint8_t* marks, bool& cleaned) {
      for (int64_t i = 0; i < n_rows_; ++i) at[i] = (first_row_ + i) * stride[1];
      RowSource from = this->query_source(data, stride);
      dim_offsets(from.dim_stride);
      kernel_.pack_left(elements(from.base) + from.origin, at, n_rows_, buf_.dims, dims_,
                        rows_marks, rows);
      if (!for_keys) return;
      from = this->finite(from, at, n_rows_, marks, cleaned);
      dim_offsets(from.dim_stride);
      kernel_.pack_left(elements(from.base) + from.origin, buf_.dims, dims_, at, n_rows_,
                        transposed_marks, transposed);
    };
    both(a_.q, s_.q, buf_.q_rows, buf_.q_rows_marks, buf_.q_transposed, buf_.q_transposed_marks,
         q_marks_, q_cleaned_);
    both(a_.d_out, s_.d_out, buf_.do_rows, buf_.do_rows_marks, buf_.do_transposed,
         buf_.do_transposed_marks, do_marks_, do_cleaned_);
    const int64_t head = (batch_ * s_.q_heads + q_head_) * s_.q_len + first_row_;
    delta_ = a_.delta + head;
    for (int64_t i = 0; i < n_rows_; ++i) buf_.lse[i] = a_.lse[head + i] * kLog2E;
  }

  void make_delta() {
    (kParts > 1 ? attention_delta : attention_delta_pairs)(a_, batch_ * s_.q_heads + q_head_,
                                                           first_row_, n_rows_);
  }

  // Adds the share of the packed block of queries and the packed block of keys to dk and dv, if
  // `for_keys`, and to dq [rows, dq_stride_], if not null.
  void add_block_pair(bool for_keys, float* dq) {
    Tile before{}, now{};
    for (now.key = 0; now.key < n_keys_; now.key += kTileCols) {
      const KeyRange rows = panel_rows_[now.key / kTileCols] = this->rows_that_see(now.key, kRows);
      if (rows.size() <= 0) continue;
      now.from = rows.first, now.to = rows.last;
      for (now.row = now.from; now.row < now.to; now.row += kRows) {
        now.n = std::min(kRows, n_rows_ - now.row);
        make_scores(now);
        if constexpr (Kernel::kInterleaves) {
          finish(before);
          begin(now);
          if (for_keys && before.n > 0 && before.key < now.key) add_keys(before);
          before = now, now.buffer = 1 - now.buffer;
        } else {
          begin(now);
          finish(now);
        }
      }
      if constexpr (Kernel::kInterleaves)
        now.panel = 1 - now.panel;
      else if (for_keys)
        add_keys(now);
    }
    if (before.n > 0) {
      finish(before);
      if (for_keys) add_keys(before);
    }
    if (!dq) return;
    const int64_t key_pairs = padded(n_keys_);
    for (int64_t i = 0; i < n_rows_; i += kRows) {
      const int64_t h = std::min(kRows, n_rows_ - i);
      const KeyRange keys = this->keys_of_rows(i, h);
      if (keys.size() <= 0) continue;
      const int64_t depth = padded(keys.last) - keys.first / 2;
      for (int64_t key = keys.first; key < keys.last; key += kTileCols) {
        const KeyRange& made = panel_rows_[key / kTileCols];
        if (i < made.first || i >= made.last) clear_rows(i, h, key);
      }
      for (int64_t d = 0; d < dims_; d += kTileCols) {
        Kernel::multiply_rows(
            h, {depth, buf_.ds_rows + i * kKeyPairs * kParts + Kernel::row_offset(keys.first),
                k_rows_ + (d * key_pairs + keys.first / 2 * kTileCols) * kParts,
                dq + i * dq_stride_ + d, dq_stride_, nullptr, nullptr,
                buf_.k_rows_marks + rows_marks_offset() + d});
        prefetcher_.fetch(depth);
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
                    static_cast<Element*>(to) + batch_ * stride[0] + kv_head_ * stride[2], at + key,
                    stride[3]);
  }

  void write_dq(const float* sums, int64_t first_row, int64_t rows) {
    Element* const to = static_cast<Element*>(a_.dq) + batch_ * s_.dq[0] + q_head_ * s_.dq[2];
    for (int64_t i = 0; i < rows; ++i)
      store_row(sums + i * dq_stride_, s_.scale, dims_, to + (first_row + i) * s_.dq[1], s_.dq[3]);
  }

 private:
  // A tile of S and dP: the n queries from `row` on, and the panel of kTileCols keys from `key` on,
  // which only rows [from, to) see. `buffer` and `panel` select one of two buffers for S and dP of
  // the tile, and for P and dS of the panel, since one tile is differentiated during products of
  // another.
  struct Tile {
    int64_t key, from, to, row, n, buffer, panel;
  };
  float* scores(const Tile& t) const { return buf_.scores + t.buffer * kRows * kTileCols; }
  float* d_scores(const Tile& t) const { return buf_.dp + t.buffer * kRows * kTileCols; }
  uint32_t* p(const Tile& t) const { return buf_.p + t.panel * buf_.panel_size; }
  uint32_t* ds(const Tile& t) const { return buf_.ds + t.panel * buf_.panel_size; }

  template <Onto kOnto>
  void multiply(int64_t rows, const TileArgs& args) {
    if constexpr (Kernel::kInterleaves)
      Kernel::template multiply<kOnto>(rows, args, [&]() STOW_BF16 {
        if (next_row_ < at_.n) differentiate();
      });
    else
      Kernel::template multiply<kOnto>(rows, args);
  }

  void make_scores(const Tile& t) {
    const int64_t i = t.row;
    multiply<Onto::kNothing>(
        t.n,
        {dim_pairs_, buf_.q_rows + i * dim_words_, k_transposed_ + t.key * dim_words_, scores(t),
         kTileCols, nullptr, buf_.q_rows_marks + i,
         buf_.k_transposed_marks + transposed_marks_offset() + t.key});
    multiply<Onto::kNothing>(
        t.n,
        {dim_pairs_, buf_.do_rows + i * dim_words_, v_transposed_ + t.key * dim_words_, d_scores(t),
         kTileCols, nullptr, buf_.do_rows_marks + i,
         buf_.v_transposed_marks + transposed_marks_offset() + t.key});
    prefetcher_.fetch(2 * dim_pairs_);
  }

  // Adds the share of all rows [t.from, t.to) to dv and dk of the tile's panel of keys.
  void add_keys(const Tile& t) {
    const int64_t row_pairs = padded(n_rows_), depth = padded(t.to) - t.from / 2;
    const int64_t b = t.from / 2 * kTileCols * kParts;
    for (int64_t d = 0; d < dims_; d += kRows) {
      const int64_t h = std::min(kRows, dims_ - d);
      const int64_t a = (d * row_pairs + t.from / 2 * kRows) * kParts;
      const int64_t to = t.key * sums_ + d * kTileCols;
      multiply<Onto::kOut>(h, {depth, buf_.do_transposed + a, p(t) + b, dv_ + to, kTileCols,
                               nullptr, buf_.do_transposed_marks + d, nullptr});
      multiply<Onto::kOut>(h, {depth, buf_.q_transposed + a, ds(t) + b, dk_ + to, kTileCols,
                               nullptr, buf_.q_transposed_marks + d, nullptr});
      prefetcher_.fetch(2 * depth);
    }
  }

  // begin() makes `t` the tile that differentiate() works on: P = exp(S - lse), dS = P (dP -
  // delta). finish() does the rows that are left.
  void begin(const Tile& t) { at_ = t, next_row_ = 0; }
  void finish(const Tile& t) {
    if (t.n == 0) return;
    while (next_row_ < t.n) differentiate();
    for (uint32_t* panel : {p(t), ds(t)})
      Kernel::clear_pairs(panel, t.row / 2 + pairs_of(t.n), t.row / 2 + padded(t.n));
  }
  // Computes and packs P and dS of the next two rows of the tile. Keys that a row does not see, and
  // the row missing after an odd last one, get zeros.
  STOW_BF16 void differentiate() {
    const __m512 c = _mm512_set1_ps(s_.scale * kLog2E);
    const int64_t i = at_.row, n = at_.n, r = next_row_;
    next_row_ += 2;
    typename Kernel::Parts p[2][2], ds[2][2];
#pragma GCC unroll 2
    for (int64_t j = 0; j < 2; ++j) {
      const int64_t row = i + std::min(r + j, n - 1), at = (row - i) * kTileCols;
      const __m512 lse = _mm512_set1_ps(buf_.lse[row]), delta = _mm512_set1_ps(delta_[row]);
      const int64_t key = first_key_ + at_.key;
      const KeyRange seen = r + j < n
                                ? KeyRange{row_keys_[row].first - key, row_keys_[row].last - key}
                                : KeyRange{0, 0};
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        const __mmask16 sees = _kandn_mask16(first16(seen.first - h * kLanes),
                                             first16(seen.last - h * kLanes));
        const __m512 score = _mm512_load_ps(scores(at_) + at + h * kLanes);
        const __m512 dp = _mm512_load_ps(d_scores(at_) + at + h * kLanes);
        const __m512 prob = _mm512_maskz_mov_ps(sees, exp2_of(_mm512_fmsub_ps(score, c, lse)));
        p[j][h] = Kernel::split(prob);
        ds[j][h] = Kernel::split(_mm512_maskz_mul_ps(sees, prob, _mm512_sub_ps(dp, delta)));
      }
      Kernel::put_row(buf_.ds_rows, i + r + j, at_.key, ds[j][0], ds[j][1]);
    }
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      Kernel::put_pair(this->p(at_), (i + r) / 2, h, p[0][h], p[1][h]);
      Kernel::put_pair(this->ds(at_), (i + r) / 2, h, ds[0][h], ds[1][h]);
    }
  }

  // Sets dS of rows [i, i + n) and kTileCols keys from `key` on to zeros.
  STOW_BF16 void clear_rows(int64_t i, int64_t n, int64_t key) {
    const typename Kernel::Parts zero = Kernel::split(_mm512_setzero_ps());
    for (int64_t r = i; r < i + n; ++r) Kernel::put_row(buf_.ds_rows, r, key, zero, zero);
  }

  // Offsets of the marks of the current block of keys.
  int64_t transposed_marks_offset() const {
    return packed_index_ * buf_.n_transposed_marks;
  }
  int64_t rows_marks_offset() const {
    return packed_index_ * buf_.n_rows_marks;
  }

  Kernel kernel_;
  int64_t dim_pairs_, dim_words_;
  int64_t sums_;  // rows of the sums of dk and dv: head_dim, padded
  const float* delta_ = nullptr;  // delta of the packed queries
  Tile at_{};                     // the tile that is differentiated
  int64_t next_row_ = 0;
  KeyRange panel_rows_[kKeyBlock / kTileCols];  // by panel of keys: rows computed so far
};

}  // namespace stow::cpu::pairs
