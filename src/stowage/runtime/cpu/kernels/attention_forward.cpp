#include "stowage/runtime/cpu/kernels/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stowage/runtime/cpu/kernels/attention_forward.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "stowage/runtime/cpu/kernels/attention_ahead.h"
#include "stowage/runtime/cpu/kernels/attention_exp-inl.h"
#include "stowage/runtime/cpu/kernels/attention_few-inl.h"
#include "stowage/runtime/cpu/kernels/attention_store-inl.h"
#include "stowage/runtime/cpu/kernels/attention_thread.h"
#include "stowage/runtime/cpu/kernels/gemm_micro-inl.h"
#include "stowage/runtime/cpu/kernels/gemm_pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stow::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kWidth = kCols<float>;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Scores stand turned, [keys, kWidth queries]: a lane is a query, so that the softmax needs no
// sums across lanes and its result is at once the right operand of the second product.
//
// One step of the online softmax over `n` keys: scores -> exp(scores - max), the running maximum
// and sum of kWidth queries updated, and their output so far, o [dims, kWidth], scaled to match.
HWY_INLINE void softmax_step(float* HWY_RESTRICT scores, int64_t n, float* HWY_RESTRICT max,
                             float* HWY_RESTRICT sum, float* HWY_RESTRICT o, int64_t dims) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int kLanes = kWidth / 2;
  for (int half = 0; half < kWidth; half += kLanes) {
    float* HWY_RESTRICT s = scores + half;
    V most = hn::Load(d, max + half), most2 = most;
    int64_t i = 0;
    for (; i + 2 <= n; i += 2) {
      most = hn::Max(most, hn::Load(d, s + i * kWidth));
      most2 = hn::Max(most2, hn::Load(d, s + (i + 1) * kWidth));
    }
    if (i < n) most = hn::Max(most, hn::Load(d, s + i * kWidth));
    most = hn::Max(most, most2);
    // A query that has seen no key keeps -inf as its maximum; zero stands in for the difference.
    const V shift = hn::IfThenElse(hn::Eq(most, hn::Set(d, -kInfinity)), hn::Zero(d), most);
    V total = hn::Zero(d);
    for (i = 0; i < n; ++i) {
      const V p = softmax_exp(d, hn::Sub(hn::Load(d, s + i * kWidth), shift));
      total = hn::Add(total, p);
      hn::Store(p, d, s + i * kWidth);
    }
    const V alpha = softmax_exp(d, hn::Sub(hn::Load(d, max + half), shift));
    hn::Store(hn::MulAdd(hn::Load(d, sum + half), alpha, total), d, sum + half);
    hn::Store(most, d, max + half);
    for (int64_t j = 0; j < dims; ++j) {
      float* HWY_RESTRICT at = o + j * kWidth + half;
      hn::Store(hn::Mul(hn::Load(d, at), alpha), d, at);
    }
  }
}

class ForwardTask {
 public:
  ForwardTask(const AttentionForwardArgs& args, void* workspace, int64_t task, int64_t next)
      : a_(args),
        s_(args.spec),
        carver_(workspace),
        buf_(args.spec, args.plan, carver_),
        here_(args.spec, args.plan, task),
        ahead_(args, here_, next) {}

  void run() {
    column_offsets(s_.q);
    dim_offsets(s_.q);
    pack<kWidth>(s_.dtype, a_.q, here_.batch * s_.q[0], offsets_, here_.columns, buf_.dims,
                 s_.head_dim, buf_.q);
    const int64_t padded = round_up_to(here_.columns, kWidth);
    for (int64_t i = 0; i < padded * s_.head_dim; ++i) buf_.q[i] *= s_.scale;
    for (int64_t c = 0; c < padded; ++c)  // rising; lanes beyond the last column are like it
      seen_[c] =
          static_cast<int32_t>(visible_keys(s_, here_.position(std::min(c, here_.columns - 1))));
    std::fill_n(buf_.o, padded * s_.head_dim, 0.0f);
    std::fill_n(buf_.max, padded, -kInfinity);
    std::fill_n(buf_.sum, padded, 0.0f);
    const int64_t keys = seen_[here_.columns - 1];
    for (int64_t key = 0; key < keys; key += kKeyBlock)
      key_block(key, std::min(kKeyBlock, keys - key));
    finish();
  }

 private:
  void column_offsets(const std::array<int64_t, 4>& stride) {
    for (int64_t c = 0; c < here_.columns; ++c)
      offsets_[c] = here_.position(c) * stride[1] + here_.q_head(c) * stride[2];
  }
  void dim_offsets(const std::array<int64_t, 4>& stride) {
    for (int64_t d = 0; d < s_.head_dim; ++d) buf_.dims[d] = d * stride[3];
  }

  void key_block(int64_t first_key, int64_t keys) {
    const int64_t k_origin = here_.batch * s_.k[0] + here_.kv_head * s_.k[2];
    const int64_t v_origin = here_.batch * s_.v[0] + here_.kv_head * s_.v[2];
    int64_t at[kKeyBlock];
    for (int64_t j = 0; j < keys; ++j) at[j] = (first_key + j) * s_.k[1];
    dim_offsets(s_.k);
    pack<kRows>(s_.dtype, a_.k, k_origin, at, keys, buf_.dims, s_.head_dim, buf_.k);
    for (int64_t j = 0; j < keys; ++j) at[j] = (first_key + j) * s_.v[1];
    dim_offsets(s_.v);
    pack<kRows>(s_.dtype, a_.v, v_origin, buf_.dims, s_.head_dim, at, keys, buf_.v);
    ahead_.packed(first_key, keys);
    for (int64_t c = 0; c < here_.columns; c += kWidth) {
      const int64_t n = std::min(seen_[c + kWidth - 1] - first_key, keys);
      if (n > 0) panel(c, first_key, keys, n);
    }
  }

  // kWidth queries from column c on, with the first n of the packed keys.
  void panel(int64_t c, int64_t first_key, int64_t keys, int64_t n) {
    const int64_t dims = s_.head_dim;
    for (int64_t i = 0; i < n; i += kRows) {
      multiply_panels<float>(std::min<int64_t>(kRows, n - i), dims, buf_.k + i * dims,
                             buf_.q + c * dims, buf_.scores + i * kWidth, kWidth, nullptr, 0);
      ahead_.fetch(dims);
    }
    if (seen_[c] - first_key < n) hide(c, first_key, std::max<int64_t>(seen_[c] - first_key, 0), n);
    float* o = buf_.o + c * dims;
    softmax_step(buf_.scores, n, buf_.max + c, buf_.sum + c, o, dims);
    for (int64_t d = 0; d < dims; d += kRows) {
      float* to = o + d * kWidth;
      multiply_panels<float>(std::min<int64_t>(kRows, dims - d), n, buf_.v + d * keys, buf_.scores,
                             to, kWidth, to, kWidth);
      ahead_.fetch(n);
    }
  }

  // -inf for the scores of keys [from, n) after first_key that their query does not see.
  void hide(int64_t c, int64_t first_key, int64_t from, int64_t n) {
    const hn::ScalableTag<float> d;
    const hn::RebindToSigned<decltype(d)> di;
    for (int64_t half = 0; half < kWidth; half += kWidth / 2) {
      const auto seen = hn::LoadU(di, seen_ + c + half);
      for (int64_t i = from; i < n; ++i) {
        const auto key = hn::Set(di, static_cast<int32_t>(first_key + i));
        float* at = buf_.scores + i * kWidth + half;
        hn::Store(hn::IfThenElse(hn::RebindMask(d, hn::Lt(key, seen)), hn::Load(d, at),
                                 hn::Set(d, -kInfinity)), d, at);
      }
    }
  }

  void finish() {
    const int64_t dims = s_.head_dim;
    column_offsets(s_.out);
    for (int64_t c = 0; c < here_.columns; c += kWidth) {
      float* o = buf_.o + c * dims;
      float factors[kWidth];
      for (int64_t lane = 0; lane < kWidth; ++lane) {
        float& sum = buf_.sum[c + lane];
        sum = softmax_divisor(sum, seen_[c + lane]);
        factors[lane] = 1 / sum;
      }
      for (int64_t d = 0; d < dims; ++d)
        for (int64_t lane = 0; lane < kWidth; ++lane) o[d * kWidth + lane] *= factors[lane];
      store_columns<kWidth>(s_.dtype, o, std::min<int64_t>(kWidth, here_.columns - c), dims, a_.out,
                            here_.batch * s_.out[0], offsets_ + c, s_.out[3]);
    }
    for (int64_t c = 0; c < here_.columns; ++c)
      a_.lse[(here_.batch * s_.q_heads + here_.q_head(c)) * s_.q_len + here_.position(c)] =
          buf_.max[c] + std::log(buf_.sum[c]);
  }

  const AttentionForwardArgs& a_;
  const AttentionSpec& s_;
  Carver carver_;
  AttentionForwardBuffers buf_;
  const AttentionForwardPlace here_;
  AttentionForwardAhead ahead_;
  int64_t offsets_[kQueryColumns];
  int32_t seen_[kQueryColumns];  // keys that each column sees
};

void run_forward_task(const AttentionForwardArgs& args, void* workspace, int64_t task,
                      int64_t next) {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  if (args.plan.few()) return FewQueriesTask(args, workspace, task).run();
#endif
  ForwardTask(args, workspace, task, next).run();
}

}  // namespace stow::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stow::cpu {

HWY_EXPORT(run_forward_task);

void attention_forward_task(const AttentionForwardArgs& args, void* workspace, int64_t task,
                            int64_t next) {
  HWY_DYNAMIC_DISPATCH(run_forward_task)(args, workspace, task, next);
}

}  // namespace stow::cpu
#endif
