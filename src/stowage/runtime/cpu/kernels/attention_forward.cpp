#include "stowage/runtime/cpu/kernels/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stowage/runtime/cpu/kernels/attention_forward.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "stowage/runtime/cpu/kernels/attention_columns.h"
#include "stowage/runtime/cpu/kernels/attention_exp-inl.h"
#include "stowage/runtime/cpu/kernels/attention_few-inl.h"
#include "stowage/runtime/cpu/kernels/attention_prefetch.h"
#include "stowage/runtime/cpu/kernels/attention_store-inl.h"
#include "stowage/runtime/cpu/kernels/attention_thread.h"
#include "stowage/runtime/cpu/kernels/gemm_micro-inl.h"
#include "stowage/runtime/cpu/kernels/gemm_pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stow::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kWidth = kCols<float>;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Scores are stored as [keys, kWidth queries]: a lane is a query, so that the softmax needs no sums
// across lanes, and its result is the right operand of the second product.
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
        allocator_(workspace),
        buf_(args.spec, args.plan, allocator_),
        here_(args.spec, args.plan, task),
        columns_(args, here_),
        task_(task),
        prefetcher_(args, here_, columns_.end(), next) {}

  void run() {
    if (a_.plan.splits_keys() && !columns_.sees_any())
      return AttentionPartial(a_, task_).clear(here_.columns);
    column_offsets(s_.q);
    dim_offsets(s_.q);
    pack<kWidth>(s_.dtype, a_.q, here_.batch * s_.q[0], offsets_, here_.columns, buf_.dims,
                 s_.head_dim, buf_.q);
    const int64_t padded = round_up_to(here_.columns, kWidth);
    for (int64_t i = 0; i < padded * s_.head_dim; ++i) buf_.q[i] *= s_.scale;
    attend(padded);
    // A zero for what is not seen may have met a number that is not finite.
    if (s_.intervals && !all_finite(buf_.o, padded * s_.head_dim)) {
      separates_nonfinite_ = true;
      attend(padded);
    }
    if (a_.plan.splits_keys()) return finish_part();
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

  void attend(int64_t padded) {
    std::fill_n(buf_.o, padded * s_.head_dim, 0.0f);
    std::fill_n(buf_.max, padded, -kInfinity);
    std::fill_n(buf_.sum, padded, 0.0f);
    columns_.each_piece([&](int64_t first_key, int64_t keys) { key_block(first_key, keys); });
  }

  void key_block(int64_t first_key, int64_t keys) {
    const int64_t k_origin = here_.batch * s_.k[0] + here_.kv_head * s_.k[2];
    int64_t at[kKeyBlock];
    for (int64_t j = 0; j < keys; ++j) at[j] = (first_key + j) * s_.k[1];
    dim_offsets(s_.k);
    pack<kRows>(s_.dtype, a_.k, k_origin, at, keys, buf_.dims, s_.head_dim, buf_.k);
    for (int64_t j = 0; j < keys; ++j) at[j] = (first_key + j) * s_.v[1];
    RowSource v{a_.v, here_.batch * s_.v[0] + here_.kv_head * s_.v[2], s_.v[3]};
    if (separates_nonfinite_)
      v = finite_rows(s_.dtype, v, at, keys, s_.head_dim, buf_.finite, marks_);
    for (int64_t d = 0; d < s_.head_dim; ++d) buf_.dims[d] = d * v.dim_stride;
    pack<kRows>(s_.dtype, v.base, v.origin, buf_.dims, s_.head_dim, at, keys, buf_.v);
    prefetcher_.packed(first_key, keys);
    for (int64_t c = 0; c < here_.columns; c += kWidth) {
      const KeyRange part = columns_.part(c, first_key, keys, kRows);
      if (part.size() <= 0) continue;
      panel(c, first_key, keys, part);
      if (v.cleaned)
        columns_.add_infinite(a_, here_, c, first_key + part.first, part.size(),
                              marks_ + part.first, buf_.o + c * s_.head_dim);
    }
  }

  // kWidth queries from column c on, with these of the packed keys.
  void panel(int64_t c, int64_t first_key, int64_t keys, const KeyRange& part) {
    const int64_t dims = s_.head_dim, n = part.size();
    for (int64_t i = 0; i < n; i += kRows) {
      multiply_panels<float>(std::min<int64_t>(kRows, n - i), dims,
                             buf_.k + (part.first + i) * dims, buf_.q + c * dims,
                             buf_.scores + i * kWidth, kWidth, nullptr, 0);
      prefetcher_.fetch(dims);
    }
    columns_.each_hidden(c, first_key + part.first, n, [&](int64_t from, int64_t to) {
      hide(c, first_key + part.first, from, to);
    });
    float* o = buf_.o + c * dims;
    softmax_step(buf_.scores, n, buf_.max + c, buf_.sum + c, o, dims);
    for (int64_t d = 0; d < dims; d += kRows) {
      float* to = o + d * kWidth;
      multiply_panels<float>(std::min<int64_t>(kRows, dims - d), n,
                             buf_.v + d * keys + part.first * kRows, buf_.scores, to, kWidth, to,
                             kWidth);
      prefetcher_.fetch(n);
    }
  }

  // -inf for the scores of keys [from, to) after first_key that their query does not see.
  void hide(int64_t c, int64_t first_key, int64_t from, int64_t to) {
    const hn::ScalableTag<float> d;
    const hn::RebindToSigned<decltype(d)> di;
    for (int64_t half = 0; half < kWidth; half += kWidth / 2) {
      const auto first = hn::LoadU(di, columns_.first(c + half));
      const auto last = hn::LoadU(di, columns_.last(c + half));
      for (int64_t i = from; i < to; ++i) {
        const auto key = hn::Set(di, static_cast<int32_t>(first_key + i));
        const auto sees = hn::AndNot(hn::Lt(key, first), hn::Lt(key, last));
        float* at = buf_.scores + i * kWidth + half;
        hn::Store(hn::IfThenElse(hn::RebindMask(d, sees), hn::Load(d, at), hn::Set(d, -kInfinity)),
                  d, at);
      }
    }
  }

  void finish_part() const {
    const AttentionPartial to(a_, task_);
    for (int64_t c = 0; c < here_.columns; ++c) {
      to.max[c] = buf_.max[c];
      to.sum[c] = buf_.sum[c];
      const float* const from = buf_.o + c / kWidth * kWidth * s_.head_dim + c % kWidth;
      for (int64_t d = 0; d < s_.head_dim; ++d) to.o[c * s_.head_dim + d] = from[d * kWidth];
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
        sum = softmax_divisor(sum, columns_.count(c + lane));
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
  BumpAllocator allocator_;
  AttentionForwardBuffers buf_;
  const AttentionForwardPlace here_;
  const ForwardColumns<kWidth> columns_;
  int64_t task_;
  AttentionForwardPrefetcher prefetcher_;
  int64_t offsets_[kQueryColumns];
  // If so, numbers that are not finite are left out of the packed v, and added by themselves;
  // marks_ has its rows with such.
  bool separates_nonfinite_ = false;
  uint8_t marks_[kKeyBlock];
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
