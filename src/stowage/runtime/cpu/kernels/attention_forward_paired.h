// The forward pass of attention on pairs of bf16: the loops around a kernel that multiplies panels
// of pairs. Blocks and order are those of attention_forward.cpp, with probabilities rounded to
// bf16, or split, for their product with v.
// Not for other machines; see pairs.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "stowage/base/inside.h"
#include "stowage/runtime/cpu/kernels/attention_columns.h"
#include "stowage/runtime/cpu/kernels/attention_pairs.h"
#include "stowage/runtime/cpu/kernels/attention_prefetch.h"
#include "stowage/runtime/cpu/kernels/attention_thread.h"

namespace stow::cpu::pairs {

static_assert(kPanelCols == kTileCols);
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// One step of the online softmax over scores [n keys, kTileCols queries], not scaled. begin()
/// updates the running maximum of each query and sets `factors`, by which earlier sums have to be
/// multiplied. step() and end() write the probabilities relative to the maximum to `p`, as pairs of
/// keys, and update `sum`. step() does a little of the work, for use during products; end() does
/// what is left.
template <typename Kernel>
class SoftmaxStep {
 public:
  STOW_BF16 void begin(const float* scores, int64_t n, float scale, float* max, float* sum,
                       float* factors, uint32_t* p) {
    scores_ = scores, n_ = n, sum_ = sum, factors_ = factors, p_ = p, next_ = 0;
    c_ = _mm512_set1_ps(scale * kLog2E);
    for (int h = 0; h < 2; ++h) {
      const float* s = scores + h * kLanes;
      const __m512 before = _mm512_load_ps(max + h * kLanes);
      __m512 m = before, m2 = before;
      int64_t i = 0;
      for (; i + 2 <= n; i += 2) {
        m = _mm512_max_ps(m, _mm512_load_ps(s + i * kTileCols));
        m2 = _mm512_max_ps(m2, _mm512_load_ps(s + (i + 1) * kTileCols));
      }
      if (i < n) m = _mm512_max_ps(m, _mm512_load_ps(s + i * kTileCols));
      const __m512 most = _mm512_max_ps(m, m2);
      // A query that has seen no key keeps -inf as its maximum; its shift is zero.
      const __mmask16 none = _mm512_cmp_ps_mask(most, _mm512_set1_ps(-kInfinity), _CMP_EQ_OQ);
      shift_[h] = _mm512_maskz_mul_ps(static_cast<__mmask16>(~none), most, c_);
      total_[h][0] = total_[h][1] = _mm512_setzero_ps();
      const __mmask16 moved = _mm512_cmp_ps_mask(before, most, _CMP_NEQ_UQ);
      _mm512_store_ps(factors + h * kLanes,
                      exp2_of(_mm512_maskz_mul_ps(moved, _mm512_sub_ps(before, most), c_)));
      _mm512_store_ps(max + h * kLanes, most);
    }
  }
  bool is_done() const { return next_ + 2 > n_; }
  STOW_BF16 void step() {
    add_pairs(next_, next_ + 2);
    next_ += 2;
  }
  STOW_BF16 void end() {
    add_pairs(next_, n_ / 2 * 2);
    next_ = n_;
    for (int h = 0; h < 2; ++h) {
      if (n_ % 2 == 1) {
        const __m512 last = probability(n_ - 1, h);
        total_[h][0] = _mm512_add_ps(total_[h][0], last);
        Kernel::put_pair(p_, n_ / 2, h, Kernel::split(last), Kernel::split(_mm512_setzero_ps()));
      }
      float* const l = sum_ + h * kLanes;
      _mm512_store_ps(l, _mm512_fmadd_ps(_mm512_load_ps(l), _mm512_load_ps(factors_ + h * kLanes),
                                         _mm512_add_ps(total_[h][0], total_[h][1])));
    }
  }

 private:
  STOW_BF16 __m512 probability(int64_t i, int h) const {
    const __m512 s = _mm512_load_ps(scores_ + i * kTileCols + h * kLanes);
    return exp2_of(_mm512_fmsub_ps(s, c_, shift_[h]));
  }
  // Writes the probabilities of keys [first, last), a pair at a time, and adds them to total_.
  STOW_BF16 void add_pairs(int64_t first, int64_t last) {
    __m512 total[2][2] = {{total_[0][0], total_[0][1]}, {total_[1][0], total_[1][1]}};
    for (int64_t i = first; i < last; i += 2)
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        const __m512 one = probability(i, h), other = probability(i + 1, h);
        total[h][0] = _mm512_add_ps(total[h][0], one);
        total[h][1] = _mm512_add_ps(total[h][1], other);
        Kernel::put_pair(p_, i / 2, h, Kernel::split(one), Kernel::split(other));
      }
    for (int h = 0; h < 2; ++h)
      for (int j = 0; j < 2; ++j) total_[h][j] = total[h][j];
  }

  const float* scores_ = nullptr;
  int64_t n_ = 0, next_ = 0;
  float *sum_ = nullptr, *factors_ = nullptr;
  uint32_t* p_ = nullptr;
  __m512 c_, shift_[2], total_[2][2];
};

/// One task. `Kernel` is explained in attention_pairs.h.
template <typename Kernel>
class ForwardPaired {
  static constexpr int64_t kRows = Kernel::kUnits.rows, kParts = Kernel::kUnits.parts;
  using Element = typename Kernel::Element;

 public:
  ForwardPaired(const AttentionForwardArgs& args, void* workspace, int64_t task, int64_t next)
      : a_(args),
        s_(args.spec),
        dims_(args.spec.head_dim),
        dim_pairs_(Kernel::kUnits.pairs_of(dims_)),
        dim_words_(dim_pairs_ * kParts),
        panel_(Kernel::kUnits.rows_of(dims_) * kTileCols),
        allocator_(workspace),
        buf_(args.spec, args.plan, Kernel::kUnits, allocator_),
        here_(args.spec, args.plan, task),
        columns_(args, here_),
        task_(task),
        prefetcher_(args, here_, columns_.end(), next) {}

  void run() {
    if (a_.plan.splits_keys() && !columns_.sees_any())
      return AttentionPartial(a_, task_).clear(here_.columns);
    column_offsets(s_.q);
    dim_offsets(s_.q);
    kernel_.pack_right(elements(a_.q) + here_.batch * s_.q[0], offsets_, here_.columns, buf_.dims,
                       dims_, buf_.q_marks, buf_.q);
    const int64_t padded = round_up_to(here_.columns, kTileCols);
    attend(padded);
    // The probability 0 of a hidden key may have been multiplied by a number that is not finite.
    if (s_.intervals && !all_finite(buf_.o, padded / kTileCols * panel_)) {
      separates_nonfinite_ = true;
      attend(padded);
    }
    if (a_.plan.splits_keys()) return finish_part();
    finish();
  }

 private:
  static const Element* elements(const void* p) { return static_cast<const Element*>(p); }
  void column_offsets(const std::array<int64_t, 4>& stride) {
    for (int64_t c = 0; c < here_.columns; ++c)
      offsets_[c] = here_.position(c) * stride[1] + here_.q_head(c) * stride[2];
  }
  void dim_offsets(const std::array<int64_t, 4>& stride) {
    for (int64_t d = 0; d < dims_; ++d) buf_.dims[d] = d * stride[3];
  }

  void attend(int64_t padded) {
    std::fill_n(buf_.o, padded / kTileCols * panel_, 0.0f);
    std::fill_n(buf_.max, padded, -kInfinity);
    std::fill_n(buf_.sum, padded, 0.0f);
    columns_.each_piece([&](int64_t first_key, int64_t keys) { key_block(first_key, keys); });
  }

  void key_block(int64_t first_key, int64_t keys) {
    int64_t at[kKeyBlock];
    for (int64_t j = 0; j < keys; ++j) at[j] = (first_key + j) * s_.k[1];
    dim_offsets(s_.k);
    kernel_.pack_left(elements(a_.k) + here_.batch * s_.k[0] + here_.kv_head * s_.k[2], at, keys,
                      buf_.dims, dims_, buf_.k_marks, buf_.k);
    for (int64_t j = 0; j < keys; ++j) at[j] = (first_key + j) * s_.v[1];
    RowSource v{a_.v, here_.batch * s_.v[0] + here_.kv_head * s_.v[2], s_.v[3]};
    if (separates_nonfinite_) v = finite_rows(s_.dtype, v, at, keys, dims_, buf_.finite, marks_);
    cleaned_ = v.cleaned;
    for (int64_t d = 0; d < dims_; ++d) buf_.dims[d] = d * v.dim_stride;
    kernel_.pack_left(elements(v.base) + v.origin, buf_.dims, dims_, at, keys, buf_.v_marks,
                      buf_.v);
    prefetcher_.packed(first_key, keys);
    Panel before{}, now{};
    for (now.c = 0; now.c < here_.columns; now.c += kTileCols) {
      const KeyRange part = columns_.part(now.c, first_key, keys, kRows);
      now.from = part.first, now.n = part.size();
      if (now.n <= 0) continue;
      make_scores(now, first_key);
      if (before.n > 0) softmax_.end();
      const int64_t at = now.buffer;
      softmax_.begin(scores(at), now.n, s_.scale, buf_.max + now.c, buf_.sum + now.c, factors(at),
                     probabilities(at));
      if constexpr (Kernel::kInterleaves) {
        if (before.n > 0) add_outputs(before, first_key, keys);
        before = now, now.buffer = 1 - at;
      } else {
        softmax_.end();
        add_outputs(now, first_key, keys);
      }
    }
    if (before.n <= 0) return;
    softmax_.end();
    add_outputs(before, first_key, keys);
  }

  // kTileCols queries from column c on, with n of the packed keys from key `from` on. `buffer`
  // selects one of two buffers for the results, since the softmax of one panel runs during products
  // of another.
  struct Panel {
    int64_t c, from, n, buffer;
  };
  float* scores(int64_t buffer) const { return buf_.scores + buffer * kKeyBlock * kTileCols; }
  float* factors(int64_t buffer) const { return buf_.factors + buffer * kTileCols; }
  uint32_t* probabilities(int64_t buffer) const {
    return buf_.p + buffer * kKeyBlock / 2 * kTileCols * kParts;
  }

  template <Onto kOnto>
  void multiply(int64_t rows, const TileArgs& args) {
    if constexpr (Kernel::kInterleaves)
      Kernel::template multiply<kOnto>(rows, args, [&]() STOW_BF16 {
        if (!softmax_.is_done()) softmax_.step();
      });
    else
      Kernel::template multiply<kOnto>(rows, args);
  }

  void make_scores(const Panel& panel, int64_t first_key) {
    const int64_t c = panel.c, n = panel.n;
    float* const to = scores(panel.buffer);
    for (int64_t i = 0; i < n; i += kRows) {
      multiply<Onto::kNothing>(std::min(kRows, n - i),
                               {dim_pairs_, buf_.k + (panel.from + i) * dim_words_,
                                buf_.q + c * dim_words_, to + i * kTileCols, kTileCols, nullptr,
                                buf_.k_marks + panel.from + i, buf_.q_marks + c});
      prefetcher_.fetch(dim_pairs_);
    }
    const int64_t key = first_key + panel.from;
    columns_.each_hidden(c, key, n,
                         [&](int64_t from, int64_t end) { hide(to, c, key, from, end); });
  }

  void add_outputs(const Panel& panel, int64_t first_key, int64_t keys) {
    const int64_t n = panel.n;
    uint32_t* const p = probabilities(panel.buffer);
    const int64_t depth = Kernel::kUnits.pairs_of(n), all = Kernel::kUnits.pairs_of(keys);
    Kernel::clear_pairs(p, pairs_of(n), depth);
    float* const o = buf_.o + panel.c / kTileCols * panel_;
    for (int64_t d = 0; d < dims_; d += kRows) {
      multiply<Onto::kScaledOut>(std::min(kRows, dims_ - d),
                                 {depth, buf_.v + (d * all + panel.from / 2 * kRows) * kParts, p,
                                  o + d * kTileCols, kTileCols, factors(panel.buffer),
                                  buf_.v_marks + d, nullptr});
      prefetcher_.fetch(depth);
    }
    if (cleaned_)
      columns_.add_infinite(a_, here_, panel.c, first_key + panel.from, n, marks_ + panel.from, o);
  }

  // Sets the scores of keys [from, to), counted from first_key, to -inf if their query does not see
  // them.
  STOW_BF16 void hide(float* scores, int64_t c, int64_t first_key, int64_t from, int64_t to) {
    for (int64_t half = 0; half < kTileCols; half += kLanes) {
      const __m512i first = _mm512_loadu_si512(columns_.first(c + half));
      const __m512i last = _mm512_loadu_si512(columns_.last(c + half));
      for (int64_t i = from; i < to; ++i) {
        const __m512i key = _mm512_set1_epi32(static_cast<int32_t>(first_key + i));
        const __mmask16 hidden =
            _kor_mask16(_mm512_cmpge_epi32_mask(key, last), _mm512_cmplt_epi32_mask(key, first));
        _mm512_mask_store_ps(scores + i * kTileCols + half, hidden, _mm512_set1_ps(-kInfinity));
      }
    }
  }

  void finish_part() const {
    const AttentionPartial to(a_, task_);
    for (int64_t c = 0; c < here_.columns; ++c) {
      to.max[c] = buf_.max[c] * s_.scale;
      to.sum[c] = buf_.sum[c];
      const float* const from = buf_.o + c / kTileCols * panel_ + c % kTileCols;
      for (int64_t d = 0; d < s_.head_dim; ++d) to.o[c * s_.head_dim + d] = from[d * kTileCols];
    }
  }

  void finish() {
    column_offsets(s_.out);
    for (int64_t c = 0; c < here_.columns; c += kTileCols) {
      for (int64_t lane = 0; lane < kTileCols; ++lane) {
        float& sum = buf_.sum[c + lane];
        sum = softmax_divisor(sum, columns_.count(c + lane));
        buf_.factors[lane] = 1 / sum;
      }
      store_columns(buf_.o + c / kTileCols * panel_, buf_.factors,
                    std::min<int64_t>(kTileCols, here_.columns - c), dims_,
                    static_cast<Element*>(a_.out) + here_.batch * s_.out[0], offsets_ + c,
                    s_.out[3]);
    }
    for (int64_t c = 0; c < here_.columns; ++c)
      a_.lse[(here_.batch * s_.q_heads + here_.q_head(c)) * s_.q_len + here_.position(c)] =
          buf_.max[c] * s_.scale + std::log(buf_.sum[c]);
  }

  const AttentionForwardArgs& a_;
  const AttentionSpec& s_;
  int64_t dims_, dim_pairs_, dim_words_;  // head_dim; its padded pairs; words of these, with parts
  int64_t panel_;  // elements of the outputs of kTileCols queries
  Kernel kernel_;
  SoftmaxStep<Kernel> softmax_;
  BumpAllocator allocator_;
  AttentionForwardPairs buf_;
  const AttentionForwardPlace here_;
  const ForwardColumns<kTileCols> columns_;
  int64_t task_;
  AttentionForwardPrefetcher prefetcher_;
  int64_t offsets_[kQueryColumns];
  // separates_nonfinite_: numbers that are not finite are left out of the packed v and added apart.
  // cleaned_: the packed block of v had such numbers, in the rows that marks_ marks.
  bool separates_nonfinite_ = false, cleaned_ = false;
  uint8_t marks_[kKeyBlock];
};

}  // namespace stow::cpu::pairs
