// Attention forward for a handful of queries, as in decoding: a walk along rows of k and v.
// Not for training: there the panels of attention_forward.cpp use each key many times.
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
#include "stowage/runtime/cpu/kernels/attention_store-inl.h"
#include "stowage/runtime/cpu/kernels/attention_thread.h"

HWY_BEFORE_NAMESPACE();
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
namespace stow::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Eight lanes on every target, so that sums across lanes have one order.
using D8 = hn::FixedTag<float, kFewLanes>;

// scores[c * kKeyBlock + j] = q[c] . rows[j] for C queries; depth is a multiple of 8.
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

class FewQueriesTask {
 public:
  FewQueriesTask(const AttentionForwardArgs& args, void* workspace, int64_t head)
      : a_(args), s_(args.spec), depth_(round_up_to(args.spec.head_dim, kFewLanes)),
        carver_(workspace), buf_(args.spec, args.plan, carver_), batch_(head / args.spec.kv_heads),
        kv_head_(head % args.spec.kv_heads), cols_(args.plan.columns) {}

  void run() {
    if (cols_ == 1) return run_as<1>();
    if (cols_ == 2) return run_as<2>();
    if (cols_ <= 4) return run_as<4>();
    run_as<8>();
  }

 private:
  int64_t position(int64_t c) const { return c / a_.plan.group; }
  int64_t q_head(int64_t c) const { return kv_head_ * a_.plan.group + c % a_.plan.group; }

  // C >= cols_; the queries in between are zeros.
  template <int C>
  void run_as() {
    std::fill_n(buf_.q, C * depth_, 0.0f);
    std::fill_n(buf_.o, C * depth_, 0.0f);
    for (int64_t c = 0; c < cols_; ++c) {
      fetch(a_.q, batch_ * s_.q[0] + position(c) * s_.q[1] + q_head(c) * s_.q[2], s_.q[3],
            buf_.q + c * depth_);
      for (int64_t i = 0; i < depth_; ++i) buf_.q[c * depth_ + i] *= s_.scale;
      buf_.max[c] = -std::numeric_limits<float>::infinity();
      buf_.sum[c] = 0;
    }
    const int64_t keys = visible_keys(s_, position(cols_ - 1));
    for (int64_t key = 0; key < keys; key += kKeyBlock) {
      const int64_t n = std::min(kKeyBlock, keys - key);
      with_rows(a_.k, s_.k, key, n, [&](const auto* rows, int64_t stride) {
        few_scores<C>(buf_.q, rows, stride, n, depth_, buf_.scores);
      });
      for (int64_t c = 0; c < cols_; ++c)
        softmax_step(c, n, std::min(visible_keys(s_, position(c)) - key, n));
      for (int64_t c = cols_; c < C; ++c) std::fill_n(buf_.scores + c * kKeyBlock, n, 0.0f);
      with_rows(a_.v, s_.v, key, n, [&](const auto* rows, int64_t stride) {
        few_outputs<C>(buf_.scores, rows, stride, n, depth_, buf_.o);
      });
    }
    for (int64_t c = 0; c < cols_; ++c) {
      const float sum = softmax_divisor(buf_.sum[c], visible_keys(s_, position(c)));
      for (int64_t i = 0; i < depth_; ++i) buf_.o[c * depth_ + i] /= sum;
      store_row(s_.dtype, buf_.o + c * depth_, s_.head_dim, 1.0f, a_.out,
                batch_ * s_.out[0] + position(c) * s_.out[1] + q_head(c) * s_.out[2], s_.out[3]);
      a_.lse[(batch_ * s_.q_heads + q_head(c)) * s_.q_len + position(c)] =
          buf_.max[c] + std::log(sum);
    }
  }

  // Scores of one query over n keys, of which it sees the first `seen`, to exp(score - max).
  void softmax_step(int64_t c, int64_t n, int64_t seen) {
    const D8 d;
    using V = hn::Vec<D8>;
    constexpr float kLowest = -std::numeric_limits<float>::infinity();
    float* HWY_RESTRICT s = buf_.scores + c * kKeyBlock;
    std::fill(s + std::max<int64_t>(seen, 0), s + round_up_to(n, kFewLanes), kLowest);
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

  // Calls use(rows, stride) with rows [first, first + n) of k or v: where they are, or, if their
  // dims are not whole adjacent vectors, copied out and padded with zeros.
  template <typename Use>
  void with_rows(const void* data, const std::array<int64_t, 4>& stride, int64_t first, int64_t n,
                 Use use) {
    const int64_t at = batch_ * stride[0] + first * stride[1] + kv_head_ * stride[2];
    if (stride[3] == 1 && s_.head_dim == depth_) {
      if (s_.dtype == DType::kBF16) return use(static_cast<const Bf16*>(data) + at, stride[1]);
      if (s_.dtype == DType::kF16) return use(static_cast<const F16*>(data) + at, stride[1]);
      return use(static_cast<const float*>(data) + at, stride[1]);
    }
    for (int64_t j = 0; j < n; ++j)
      fetch(data, at + j * stride[1], stride[3], buf_.rows + j * depth_);
    use(static_cast<const float*>(buf_.rows), depth_);
  }

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
  Carver carver_;
  AttentionForwardBuffers buf_;
  int64_t batch_, kv_head_, cols_;
};

}  // namespace stow::cpu::HWY_NAMESPACE
#endif
HWY_AFTER_NAMESPACE();

#endif  // include guard
