#include "stowage/runtime/cpu/kernels/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stowage/runtime/cpu/kernels/attention_backward.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "stowage/runtime/cpu/kernels/attention_exp-inl.h"
#include "stowage/runtime/cpu/kernels/attention_store-inl.h"
#include "stowage/runtime/cpu/kernels/attention_walk.h"
#include "stowage/runtime/cpu/kernels/gemm_micro-inl.h"
#include "stowage/runtime/cpu/kernels/gemm_pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stow::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kWidth = kCols<float>;

// The offsets 0, Step, 2 Step, ...
template <int N, int Step>
struct Multiples {
  int64_t at[N];
  constexpr Multiples() : at() {
    for (int i = 0; i < N; ++i) at[i] = i * Step;
  }
};
constexpr Multiples<kRows, kWidth> kRowStarts;
constexpr Multiples<kWidth, 1> kSteps;

// With S = scale q k^T, P = exp(S - lse), dP = d_out v^T, dS = P (dP - delta):
//   dv = P^T d_out, dk = scale dS^T q, dq = scale dS k.
// P and dS of a block of queries are computed for a panel of kWidth keys at a time. They are stored
// as [queries, kWidth keys], the right operands of dv^T and dk^T [dims, kWidth keys]. dS is also
// packed as rows [queries, keys], the left operand of dq.
class BackwardTask : public BackwardWalk<BackwardTask, AttentionBackwardBuffers, kWidth> {
 public:
  using BackwardWalk::BackwardWalk;

  void pack_keys(bool for_dq) {
    int64_t at[kKeyBlock];
    for (int64_t j = 0; j < n_keys_; ++j) at[j] = (first_key_ + j) * s_.k[1];
    dim_offsets(s_.k[3]);
    const int64_t k0 = batch_ * s_.k[0] + kv_head_ * s_.k[2];
    pack<kWidth>(s_.dtype, a_.k, k0, at, n_keys_, buf_.dims, dims_, k_transposed_);
    if (for_dq) {
      const RowSource k = finite(keys_source(), at, n_keys_, key_marks_[packed_index_],
                                 keys_cleaned_[packed_index_]);
      dim_offsets(k.dim_stride);
      pack<kWidth>(s_.dtype, k.base, k.origin, buf_.dims, dims_, at, n_keys_, k_rows_);
    }
    for (int64_t j = 0; j < n_keys_; ++j) at[j] = (first_key_ + j) * s_.v[1];
    dim_offsets(s_.v[3]);
    pack<kWidth>(s_.dtype, a_.v, batch_ * s_.v[0] + kv_head_ * s_.v[2], at, n_keys_, buf_.dims,
                 dims_, v_transposed_);
  }

  void pack_queries(bool for_keys) {
    int64_t at[kQueryBlock];
    auto both = [&](const void* data, const std::array<int64_t, 4>& stride, float* rows,
                    float* transposed, uint8_t* marks, bool& cleaned) {
      for (int64_t i = 0; i < n_rows_; ++i) at[i] = (first_row_ + i) * stride[1];
      RowSource from = query_source(data, stride);
      dim_offsets(from.dim_stride);
      pack<kRows>(s_.dtype, from.base, from.origin, at, n_rows_, buf_.dims, dims_, rows);
      if (!for_keys) return;
      from = finite(from, at, n_rows_, marks, cleaned);
      dim_offsets(from.dim_stride);
      pack<kRows>(s_.dtype, from.base, from.origin, buf_.dims, dims_, at, n_rows_, transposed);
    };
    both(a_.q, s_.q, buf_.q_rows, buf_.q_transposed, q_marks_, q_cleaned_);
    both(a_.d_out, s_.d_out, buf_.do_rows, buf_.do_transposed, do_marks_, do_cleaned_);
    for (int64_t i = 0; i < round_up_to(n_rows_, kRows) * dims_; ++i) buf_.q_rows[i] *= s_.scale;
  }

  void make_delta() { attention_delta(a_, batch_ * s_.q_heads + q_head_, first_row_, n_rows_); }

  // The packed queries and the packed keys: adds to dk and dv, and to dq [rows, dq_stride_] if
  // given.
  void add_block_pair(bool for_keys, float* dq) {
    for (int64_t key = 0; key < n_keys_; key += kWidth) {
      const KeyRange rows = panel_rows_[key / kWidth] = rows_that_see(key, kRows);
      if (rows.size() <= 0) continue;
      const int64_t from = rows.first;
      for (int64_t i = from; i < rows.last; i += kRows) {
        const int64_t h = std::min<int64_t>(kRows, n_rows_ - i);
        multiply_panels<float>(h, dims_, buf_.q_rows + i * dims_, k_transposed_ + key * dims_,
                               buf_.p + i * kWidth, kWidth, nullptr, 0);
        prefetcher_.fetch(dims_);
        multiply_panels<float>(h, dims_, buf_.do_rows + i * dims_, v_transposed_ + key * dims_,
                               buf_.ds + i * kWidth, kWidth, nullptr, 0);
        prefetcher_.fetch(dims_);
      }
      for (int64_t i = from; i < rows.last; ++i) row(i, first_key_ + key);
      if (for_keys) {
        const int64_t depth = rows.size();
        for (int64_t d = 0; d < dims_; d += kRows) {
          const int64_t h = std::min<int64_t>(kRows, dims_ - d);
          const int64_t a = d * n_rows_ + from * kRows, to = key * dims_ + d * kWidth;
          multiply_panels<float>(h, depth, buf_.do_transposed + a, buf_.p + from * kWidth, dv_ + to,
                                 kWidth, dv_ + to, kWidth);
          prefetcher_.fetch(depth);
          multiply_panels<float>(h, depth, buf_.q_transposed + a, buf_.ds + from * kWidth, dk_ + to,
                                 kWidth, dk_ + to, kWidth);
          prefetcher_.fetch(depth);
        }
      }
      if (dq) {
        const int64_t w = std::min<int64_t>(kWidth, n_keys_ - key);
        for (int64_t i = from; i < rows.last; i += kRows)
          pack_transposed<kRows>(buf_.ds + i * kWidth, kRowStarts.at,
                                 std::min<int64_t>(kRows, n_rows_ - i), kSteps.at, w,
                                 buf_.ds_rows + i * n_keys_ + key * kRows);
      }
    }
    if (!dq) return;
    for (int64_t i = 0; i < n_rows_; i += kRows) {
      const int64_t h = std::min<int64_t>(kRows, n_rows_ - i);
      const KeyRange keys = keys_of_rows(i, h);
      const int64_t depth = keys.size();
      if (depth <= 0) continue;
      float* const ds = buf_.ds_rows + i * n_keys_;
      for (int64_t key = keys.first; key < keys.last; key += kWidth) {
        const KeyRange& made = panel_rows_[key / kWidth];
        if (made.first <= i && i < made.last) continue;
        std::fill_n(ds + key * kRows, std::min<int64_t>(kWidth, n_keys_ - key) * kRows, 0.0f);
      }
      for (int64_t d = 0; d < dims_; d += kWidth) {
        float* to = dq + i * dq_stride_ + d;
        multiply_panels<float>(h, depth, ds + keys.first * kRows,
                               k_rows_ + d * n_keys_ + keys.first * kWidth, to, dq_stride_, to,
                               dq_stride_);
        prefetcher_.fetch(depth);
      }
    }
  }

  void write_keys(float* sums, float factor, void* to, const std::array<int64_t, 4>& stride) {
    int64_t at[kKeyBlock];
    for (int64_t j = 0; j < n_keys_; ++j) at[j] = (first_key_ + j) * stride[1];
    if (factor != 1.0f)
      for (int64_t i = 0; i < round_up_to(n_keys_, kWidth) * dims_; ++i) sums[i] *= factor;
    for (int64_t key = 0; key < n_keys_; key += kWidth)
      store_columns<kWidth>(s_.dtype, sums + key * dims_, std::min<int64_t>(kWidth, n_keys_ - key),
                            dims_, to, batch_ * stride[0] + kv_head_ * stride[2], at + key,
                            stride[3]);
  }

  void write_dq(const float* sums, int64_t first_row, int64_t rows) {
    for (int64_t i = 0; i < rows; ++i)
      store_row(s_.dtype, sums + i * dq_stride_, dims_, s_.scale, a_.dq,
                batch_ * s_.dq[0] + (first_row + i) * s_.dq[1] + q_head_ * s_.dq[2], s_.dq[3]);
  }

 private:
  // S -> P and dP -> dS in row i, for kWidth keys from first_key on.
  HWY_INLINE void row(int64_t i, int64_t first_key) {
    const hn::ScalableTag<float> d;
    const hn::RebindToSigned<decltype(d)> di;
    const int64_t pos = first_row_ + i;
    const int64_t at = (batch_ * s_.q_heads + q_head_) * s_.q_len + pos;
    const auto lse = hn::Set(d, a_.lse[at]), delta = hn::Set(d, a_.delta[at]);
    const int64_t first = std::clamp<int64_t>(row_keys_[i].first - first_key, 0, kWidth);
    const int64_t last = std::clamp<int64_t>(row_keys_[i].last - first_key, 0, kWidth);
    float* HWY_RESTRICT p = buf_.p + i * kWidth;
    float* HWY_RESTRICT ds = buf_.ds + i * kWidth;
    constexpr int kLanes = kWidth / 2;
    for (int half = 0; half < kWidth; half += kLanes) {
      auto pv = softmax_exp(d, hn::Sub(hn::Load(d, p + half), lse));
      auto dv = hn::Mul(pv, hn::Sub(hn::Load(d, ds + half), delta));
      if (first > half || last < half + kLanes) {
        const auto lane = hn::Iota(di, half);
        const auto hidden = hn::Lt(lane, hn::Set(di, static_cast<int32_t>(first)));
        const auto sees = hn::RebindMask(
            d, hn::AndNot(hidden, hn::Lt(lane, hn::Set(di, static_cast<int32_t>(last)))));
        pv = hn::IfThenElseZero(sees, pv);
        dv = hn::IfThenElseZero(sees, dv);
      }
      hn::Store(pv, d, p + half);
      hn::Store(dv, d, ds + half);
    }
  }

  KeyRange panel_rows_[kKeyBlock / kWidth];  // that have been made of each panel of keys
};

void run_backward_task(const AttentionBackwardArgs& args, AttentionPart part, void* workspace,
                       int64_t task, int64_t next) {
  BackwardTask::run(args, part, workspace, task, next);
}

}  // namespace stow::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stow::cpu {

HWY_EXPORT(run_backward_task);

void attention_backward_task(const AttentionBackwardArgs& args, AttentionPart part, void* workspace,
                             int64_t task, int64_t next) {
  HWY_DYNAMIC_DISPATCH(run_backward_task)(args, part, workspace, task, next);
}

namespace {

// Sixteen chains in a fixed order, whatever the strides and the instruction set.
template <typename S>
void delta_rows(const AttentionSpec& s, const S* out, const S* d_out, int64_t n, float* delta) {
  constexpr int64_t kChains = 16;
  for (int64_t i = 0; i < n; ++i, out += s.out[1], d_out += s.d_out[1]) {
    float sum[kChains] = {};
    int64_t d = 0;
    if (s.out[3] == 1 && s.d_out[3] == 1)
      for (; d + kChains <= s.head_dim; d += kChains)
        for (int64_t c = 0; c < kChains; ++c) sum[c] += widen(out[d + c]) * widen(d_out[d + c]);
    for (; d < s.head_dim; ++d)
      sum[d % kChains] += widen(out[d * s.out[3]]) * widen(d_out[d * s.d_out[3]]);
    for (int64_t half = kChains / 2; half > 0; half /= 2)
      for (int64_t c = 0; c < half; ++c) sum[c] += sum[c + half];
    delta[i] = sum[0];
  }
}

}  // namespace

void attention_delta(const AttentionBackwardArgs& args, int64_t head, int64_t first, int64_t n) {
  const AttentionSpec& s = args.spec;
  const int64_t batch = head / s.q_heads, q_head = head % s.q_heads;
  const int64_t at = batch * s.out[0] + first * s.out[1] + q_head * s.out[2];
  const int64_t d_at = batch * s.d_out[0] + first * s.d_out[1] + q_head * s.d_out[2];
  auto run = [&]<typename S>(const S*) {
    delta_rows(s, static_cast<const S*>(args.out) + at, static_cast<const S*>(args.d_out) + d_at, n,
               args.delta + head * s.q_len + first);
  };
  if (s.dtype == DType::kBF16) run(static_cast<const Bf16*>(nullptr));
  else if (s.dtype == DType::kF16) run(static_cast<const F16*>(nullptr));
  else run(static_cast<const float*>(nullptr));
}

}  // namespace stow::cpu
#endif
