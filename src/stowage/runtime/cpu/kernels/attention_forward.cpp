#include "stowage/runtime/cpu/kernels/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stowage/runtime/cpu/kernels/attention_forward.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>

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
  ForwardTask(const AttentionForwardArgs& args, void* workspace, int64_t task)
      : a_(args), s_(args.spec), carver_(workspace), buf_(args.spec, args.plan, carver_) {
    const int64_t head = task / a_.plan.tasks_per_head;  // one after the other, for the cache
    batch_ = head / s_.kv_heads;
    kv_head_ = head % s_.kv_heads;
    first_ = task % a_.plan.tasks_per_head * a_.plan.task_columns;
    cols_ = std::min(a_.plan.task_columns, a_.plan.columns - first_);
  }

  void run() {
    column_offsets(s_.q);
    dim_offsets(s_.q);
    pack<kWidth>(s_.dtype, a_.q, batch_ * s_.q[0], offsets_, cols_, buf_.dims, s_.head_dim, buf_.q);
    const int64_t padded = round_up_to(cols_, kWidth);
    for (int64_t i = 0; i < padded * s_.head_dim; ++i) buf_.q[i] *= s_.scale;
    for (int64_t c = 0; c < padded; ++c)  // rising; lanes beyond the last column are like it
      seen_[c] = static_cast<int32_t>(visible_keys(s_, position(std::min(c, cols_ - 1))));
    std::fill_n(buf_.o, padded * s_.head_dim, 0.0f);
    std::fill_n(buf_.max, padded, -kInfinity);
    std::fill_n(buf_.sum, padded, 0.0f);
    const int64_t keys = seen_[cols_ - 1];
    for (int64_t key = 0; key < keys; key += kKeyBlock)
      key_block(key, std::min(kKeyBlock, keys - key));
    finish();
  }

 private:
  int64_t position(int64_t column) const { return (first_ + column) / a_.plan.group; }
  int64_t q_head(int64_t column) const {
    return kv_head_ * a_.plan.group + (first_ + column) % a_.plan.group;
  }
  void column_offsets(const std::array<int64_t, 4>& stride) {
    for (int64_t c = 0; c < cols_; ++c)
      offsets_[c] = position(c) * stride[1] + q_head(c) * stride[2];
  }
  void dim_offsets(const std::array<int64_t, 4>& stride) {
    for (int64_t d = 0; d < s_.head_dim; ++d) buf_.dims[d] = d * stride[3];
  }

  void key_block(int64_t first_key, int64_t keys) {
    const int64_t k_origin = batch_ * s_.k[0] + kv_head_ * s_.k[2];
    const int64_t v_origin = batch_ * s_.v[0] + kv_head_ * s_.v[2];
    int64_t at[kKeyBlock];
    for (int64_t j = 0; j < keys; ++j) at[j] = (first_key + j) * s_.k[1];
    dim_offsets(s_.k);
    pack<kRows>(s_.dtype, a_.k, k_origin, at, keys, buf_.dims, s_.head_dim, buf_.k);
    for (int64_t j = 0; j < keys; ++j) at[j] = (first_key + j) * s_.v[1];
    dim_offsets(s_.v);
    pack<kRows>(s_.dtype, a_.v, v_origin, buf_.dims, s_.head_dim, at, keys, buf_.v);
    for (int64_t c = 0; c < cols_; c += kWidth) {
      const int64_t n = std::min(seen_[c + kWidth - 1] - first_key, keys);
      if (n > 0) panel(c, first_key, keys, n);
    }
  }

  // kWidth queries from column c on, with the first n of the packed keys.
  void panel(int64_t c, int64_t first_key, int64_t keys, int64_t n) {
    const int64_t dims = s_.head_dim;
    for (int64_t i = 0; i < n; i += kRows)
      multiply_panels<float>(std::min<int64_t>(kRows, n - i), dims, buf_.k + i * dims,
                             buf_.q + c * dims, buf_.scores + i * kWidth, kWidth, nullptr, 0);
    if (seen_[c] - first_key < n) hide(c, first_key, std::max<int64_t>(seen_[c] - first_key, 0), n);
    float* o = buf_.o + c * dims;
    softmax_step(buf_.scores, n, buf_.max + c, buf_.sum + c, o, dims);
    for (int64_t d = 0; d < dims; d += kRows) {
      float* to = o + d * kWidth;
      multiply_panels<float>(std::min<int64_t>(kRows, dims - d), n, buf_.v + d * keys, buf_.scores,
                             to, kWidth, to, kWidth);
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
    for (int64_t c = 0; c < cols_; c += kWidth) {
      float* o = buf_.o + c * dims;
      for (int64_t lane = 0; lane < kWidth; ++lane)
        buf_.sum[c + lane] = softmax_divisor(buf_.sum[c + lane], seen_[c + lane]);
      for (int64_t d = 0; d < dims; ++d)
        for (int64_t lane = 0; lane < kWidth; ++lane) o[d * kWidth + lane] /= buf_.sum[c + lane];
      store_columns<kWidth>(s_.dtype, o, std::min<int64_t>(kWidth, cols_ - c), dims, a_.out,
                            batch_ * s_.out[0], offsets_ + c, s_.out[3]);
    }
    for (int64_t c = 0; c < cols_; ++c)
      a_.lse[(batch_ * s_.q_heads + q_head(c)) * s_.q_len + position(c)] =
          buf_.max[c] + std::log(buf_.sum[c]);
  }

  const AttentionForwardArgs& a_;
  const AttentionSpec& s_;
  Carver carver_;
  AttentionForwardBuffers buf_;
  int64_t batch_, kv_head_, first_, cols_;
  int64_t offsets_[kQueryColumns];
  int32_t seen_[kQueryColumns];  // keys that each column sees
};

void run_forward_task(const AttentionForwardArgs& args, void* workspace, int64_t task) {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  if (args.plan.few()) return FewQueriesTask(args, workspace, task).run();
#endif
  ForwardTask(args, workspace, task).run();
}

}  // namespace stow::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stow::cpu {

HWY_EXPORT(run_forward_task);

void attention_forward_task(const AttentionForwardArgs& args, void* workspace, int64_t task) {
  HWY_DYNAMIC_DISPATCH(run_forward_task)(args, workspace, task);
}

}  // namespace stow::cpu
#endif
