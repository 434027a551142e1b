// The forward pass of attention for at most kFewColumns queries, as in decoding: one pass over rows
// of k and v, without packing.
// Not for training: the panels of attention_forward.cpp use each key many times.
#if defined(STOW_KERNELS_ATTENTION_FEW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STOW_KERNELS_ATTENTION_FEW_INL_H_
#undef STOW_KERNELS_ATTENTION_FEW_INL_H_
#else
#define STOW_KERNELS_ATTENTION_FEW_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "stowage/runtime/cpu/kernels/attention_exp-inl.h"
#include "stowage/runtime/cpu/kernels/attention_finite.h"
#include "stowage/runtime/cpu/kernels/attention_store-inl.h"
#include "stowage/runtime/cpu/kernels/attention_thread.h"

HWY_BEFORE_NAMESPACE();
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
namespace stow::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Eight lanes on every target, so that sums across lanes have one order.
using D8 = hn::FixedTag<float, kFewLanes>;

// scores[c * kKeyBlock + j] = q[c] . rows[j] for C queries and n rows; depth is a multiple of 8.
template <int C, typename S>
HWY_NOINLINE void few_scores(const float* HWY_RESTRICT q, const S* HWY_RESTRICT rows,
                             int64_t stride, int64_t n, int64_t depth, float* HWY_RESTRICT scores) {
  const D8 d;
  for (int64_t j = 0; j < n; ++j, rows += stride) {
    hn::Vec<D8> acc[C];
    HWY_UNROLL(8) for (int c = 0; c < C; ++c) acc[c] = hn::Zero(d);
    for (int64_t i = 0; i < depth; i += 64 / int64_t{sizeof(S)})
      __builtin_prefetch(rows + 8 * stride + i);
    for (int64_t i = 0; i < depth; i += kFewLanes) {
      const auto k = load_wide(d, rows + i);
      HWY_UNROLL(8) for (int c = 0; c < C; ++c) {
        acc[c] = hn::MulAdd(hn::Load(d, q + c * depth + i), k, acc[c]);
      }
    }
    HWY_UNROLL(8) for (int c = 0; c < C; ++c) {
      scores[c * kKeyBlock + j] = hn::GetLane(hn::SumOfLanes(d, acc[c]));
    }
  }
}

// o[c] += sum over j of p[c * kKeyBlock + j] * rows[j].
template <int C, typename S>
HWY_NOINLINE void few_outputs(const float* HWY_RESTRICT p, const S* HWY_RESTRICT rows,
                              int64_t stride, int64_t n, int64_t depth, float* HWY_RESTRICT o) {
  const D8 d;
  constexpr int kVectors = 8 / C;
  int64_t i = 0;
  auto chunk = [&]<int V>(std::integral_constant<int, V>) HWY_ATTR {
    hn::Vec<D8> acc[C][V];
    HWY_UNROLL(8) for (int c = 0; c < C; ++c) {
      HWY_UNROLL(8) for (int v = 0; v < V; ++v) {
        acc[c][v] = hn::Load(d, o + c * depth + i + v * kFewLanes);
      }
    }
    for (int64_t j = 0; j < n; ++j) {
      const S* HWY_RESTRICT row = rows + j * stride + i;
      hn::Vec<D8> x[V];
      HWY_UNROLL(8) for (int v = 0; v < V; v += 64 / kFewLanes / static_cast<int>(sizeof(S))) {
        __builtin_prefetch(row + 8 * stride + v * kFewLanes);
      }
      HWY_UNROLL(8) for (int v = 0; v < V; ++v) x[v] = load_wide(d, row + v * kFewLanes);
      HWY_UNROLL(8) for (int c = 0; c < C; ++c) {
        const auto weight = hn::Set(d, p[c * kKeyBlock + j]);
        HWY_UNROLL(8) for (int v = 0; v < V; ++v) acc[c][v] = hn::MulAdd(weight, x[v], acc[c][v]);
      }
    }
    HWY_UNROLL(8) for (int c = 0; c < C; ++c) {
      HWY_UNROLL(8) for (int v = 0; v < V; ++v) {
        hn::Store(acc[c][v], d, o + c * depth + i + v * kFewLanes);
      }
    }
    i += V * kFewLanes;
  };
  while (i + kVectors * kFewLanes <= depth) chunk(std::integral_constant<int, kVectors>());
  while (i < depth) chunk(std::integral_constant<int, 1>());
}

// One forward task of few queries.
class FewQueriesTask {
 public:
  FewQueriesTask(const AttentionForwardArgs& args, void* workspace, int64_t task)
      : a_(args), s_(args.spec), depth_(round_up_to(args.spec.head_dim, kFewLanes)),
        allocator_(workspace), buf_(args.spec, args.plan, allocator_), task_(task),
        here_(args.spec, args.plan, task), batch_(here_.batch), kv_head_(here_.kv_head),
        cols_(args.plan.columns) {}

  void run() {
    if (cols_ == 1) return run_as<1>();
    if (cols_ == 2) return run_as<2>();
    if (cols_ <= 4) return run_as<4>();
    run_as<8>();
  }

 private:
  int64_t position(int64_t c) const { return c / a_.plan.group; }
  int64_t q_head(int64_t c) const { return kv_head_ * a_.plan.group + c % a_.plan.group; }

  // Runs the task with C >= cols_ queries, of which the additional ones are zeros.
  template <int C>
  void run_as() {
    KeyRange any{0, 0};
    for (int64_t c = 0; c < cols_; ++c) {
      ranges_[c] = visible_range(s_, a_.intervals, batch_, position(c)).within(here_.keys);
      any = any.joined(ranges_[c]);
    }
    if (a_.plan.splits_keys() && any.size() <= 0)
      return AttentionPartial(a_, task_).clear(cols_);
    std::fill_n(buf_.q, C * depth_, 0.0f);
    for (int64_t c = 0; c < cols_; ++c) {
      fetch(a_.q, batch_ * s_.q[0] + position(c) * s_.q[1] + q_head(c) * s_.q[2], s_.q[3],
            buf_.q + c * depth_);
      for (int64_t i = 0; i < depth_; ++i) buf_.q[c * depth_ + i] *= s_.scale;
    }
    attend<C>(any);
    // The probability 0 of a hidden key may have been multiplied by a number that is not finite.
    if (s_.intervals && !all_finite(buf_.o, cols_ * depth_)) {
      separates_nonfinite_ = true;
      attend<C>(any);
    }
    a_.plan.splits_keys() ? finish_part() : finish();
  }

  template <int C>
  void attend(const KeyRange& any) {
    std::fill_n(buf_.o, C * depth_, 0.0f);
    std::fill_n(buf_.max, cols_, -std::numeric_limits<float>::infinity());
    std::fill_n(buf_.sum, cols_, 0.0f);
    for (int64_t block = any.first / kKeyBlock * kKeyBlock; block < any.last; block += kKeyBlock) {
      const int64_t first = std::max(any.first, block),
                    last = std::min(any.last, block + kKeyBlock);
      if (sees(first, last)) keys<C>(first, last);
    }
  }

  void finish_part() const {
    const AttentionPartial to(a_, task_);
    for (int64_t c = 0; c < cols_; ++c) {
      to.max[c] = buf_.max[c];
      to.sum[c] = buf_.sum[c];
      std::copy_n(buf_.o + c * depth_, s_.head_dim, to.o + c * s_.head_dim);
    }
  }

  void finish() {
    for (int64_t c = 0; c < cols_; ++c) {
      const float sum = softmax_divisor(buf_.sum[c], ranges_[c].size());
      for (int64_t i = 0; i < depth_; ++i) buf_.o[c * depth_ + i] /= sum;
      store_row(s_.dtype, buf_.o + c * depth_, s_.head_dim, 1.0f, a_.out,
                batch_ * s_.out[0] + position(c) * s_.out[1] + q_head(c) * s_.out[2], s_.out[3]);
      a_.lse[(batch_ * s_.q_heads + q_head(c)) * s_.q_len + position(c)] =
          buf_.max[c] + std::log(sum);
    }
  }

  // True if some query sees any of the keys [first, last).
  bool sees(int64_t first, int64_t last) const {
    return std::any_of(ranges_, ranges_ + cols_,
                       [&](const KeyRange& r) { return r.overlaps(first, last); });
  }
  // True if every query sees all of the keys [first, last).
  bool all_see(int64_t first, int64_t last) const {
    return std::all_of(ranges_, ranges_ + cols_,
                       [&](const KeyRange& r) { return r.first <= first && last <= r.last; });
  }

  // Adds the share of keys [first, last) of a block to the outputs. A score lies in the lane of its
  // key's index in the block, so that the order of sums does not depend on `first`.
  template <int C>
  void keys(int64_t first, int64_t last) {
    const int64_t lane = first % kFewLanes, n = last - first;
    with_rows(rows_from(first, source(a_.k, s_.k), s_.k), s_.k[1], n,
              [&](const auto* rows, int64_t stride) {
                few_scores<C>(buf_.q, rows, stride, n, depth_, buf_.scores + lane);
              });
    for (int64_t c = 0; c < cols_; ++c) softmax_step(c, lane + n, first - lane);
    for (int64_t c = cols_; c < C; ++c) std::fill_n(buf_.scores + c * kKeyBlock, lane + n, 0.0f);
    RowSource v = rows_from(first, source(a_.v, s_.v), s_.v);
    uint8_t marks[kKeyBlock];
    if (separates_nonfinite_ && !all_see(first, last)) {
      int64_t at[kKeyBlock];
      for (int64_t j = 0; j < n; ++j) at[j] = j * s_.v[1];
      v = finite_rows(s_.dtype, v, at, n, s_.head_dim, buf_.finite, marks);
    }
    with_rows(v, v.cleaned ? s_.head_dim : s_.v[1], n, [&](const auto* rows, int64_t row_stride) {
      few_outputs<C>(buf_.scores + lane, rows, row_stride, n, depth_, buf_.o);
    });
    if (v.cleaned) add_infinite(first, n, marks);
  }

  // Adds the contribution of numbers of v that are not finite to the queries that see them.
  void add_infinite(int64_t first, int64_t n, const uint8_t* marks) {
    for (int64_t j = 0; j < n; ++j) {
      if (!marks[j]) continue;
      each_infinite(s_.dtype, source(a_.v, s_.v), (first + j) * s_.v[1], s_.head_dim,
                    [&](int64_t d, float x) {
                      for (int64_t c = 0; c < cols_; ++c)
                        if (ranges_[c].overlaps(first + j, first + j + 1))
                          buf_.o[c * depth_ + d] += x;
                    });
    }
  }

  // One step of the online softmax of query c: replaces its scores over n keys from first_key on by
  // exp(score - max), zero for keys that it does not see, and updates its max, sum and output.
  void softmax_step(int64_t c, int64_t n, int64_t first_key) {
    const D8 d;
    using V = hn::Vec<D8>;
    constexpr float kLowest = -std::numeric_limits<float>::infinity();
    float* HWY_RESTRICT s = buf_.scores + c * kKeyBlock;
    const int64_t from = std::clamp<int64_t>(ranges_[c].first - first_key, 0, n);
    const int64_t to = std::clamp<int64_t>(ranges_[c].last - first_key, from, n);
    std::fill(s, s + from, kLowest);
    std::fill(s + to, s + round_up_to(n, kFewLanes), kLowest);
    V most = hn::Set(d, buf_.max[c]);
    for (int64_t j = 0; j < n; j += kFewLanes) most = hn::Max(most, hn::Load(d, s + j));
    const float max = hn::GetLane(hn::MaxOfLanes(d, most));
    const V shift = hn::Set(d, max == kLowest ? 0.0f : max);
    V total = hn::Zero(d);
    for (int64_t j = 0; j < n; j += kFewLanes) {
      const V p = softmax_exp(d, hn::Sub(hn::Load(d, s + j), shift));
      total = hn::Add(total, p);
      hn::Store(p, d, s + j);
    }
    const V alpha = softmax_exp(d, hn::Sub(hn::Set(d, buf_.max[c]), shift));
    buf_.sum[c] = buf_.sum[c] * hn::GetLane(alpha) + hn::GetLane(hn::SumOfLanes(d, total));
    buf_.max[c] = max;
    float* HWY_RESTRICT o = buf_.o + c * depth_;
    for (int64_t i = 0; i < depth_; i += kFewLanes)
      hn::Store(hn::Mul(hn::Load(d, o + i), alpha), d, o + i);
  }

  RowSource source(const void* data, const std::array<int64_t, 4>& stride) const {
    return {data, batch_ * stride[0] + kv_head_ * stride[2], stride[3]};
  }
  static RowSource rows_from(int64_t first, RowSource source,
                             const std::array<int64_t, 4>& stride) {
    source.origin += first * stride[1];
    return source;
  }

  // Calls use(rows, stride) with n rows of k or v: in place, or copied and padded with zeros if
  // their dims are not adjacent or no multiple of a vector.
  template <typename Use>
  void with_rows(const RowSource& from, int64_t stride, int64_t n, Use use) {
    const int64_t at = from.origin;
    if (from.dim_stride == 1 && s_.head_dim == depth_) {
      if (s_.dtype == DType::kBF16) return use(static_cast<const Bf16*>(from.base) + at, stride);
      if (s_.dtype == DType::kF16) return use(static_cast<const F16*>(from.base) + at, stride);
      return use(static_cast<const float*>(from.base) + at, stride);
    }
    for (int64_t j = 0; j < n; ++j)
      fetch(from.base, at + j * stride, from.dim_stride, buf_.rows + j * depth_);
    use(static_cast<const float*>(buf_.rows), depth_);
  }

  // Copies the dims of a row at offset `at` to `to`, widened, with zeros up to depth_.
  void fetch(const void* data, int64_t at, int64_t stride, float* to) const {
    auto copy = [&](const auto* from) {
      for (int64_t i = 0; i < s_.head_dim; ++i) to[i] = widen(from[at + i * stride]);
    };
    if (s_.dtype == DType::kBF16) copy(static_cast<const Bf16*>(data));
    else if (s_.dtype == DType::kF16) copy(static_cast<const F16*>(data));
    else copy(static_cast<const float*>(data));
    std::fill(to + s_.head_dim, to + depth_, 0.0f);
  }

  const AttentionForwardArgs& a_;
  const AttentionSpec& s_;
  int64_t depth_;
  BumpAllocator allocator_;
  AttentionForwardBuffers buf_;
  int64_t task_;
  const AttentionForwardPlace here_;
  int64_t batch_, kv_head_, cols_;
  bool separates_nonfinite_ = false;  // true: numbers of v that are not finite are added separately
  KeyRange ranges_[kFewColumns];  // range of keys that each query sees
};

}  // namespace stow::cpu::HWY_NAMESPACE
#endif
HWY_AFTER_NAMESPACE();

#endif  // include guard
