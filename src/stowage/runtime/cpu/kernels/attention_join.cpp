// Attention whose tasks have a chunk of the keys each: their partial results joined.
#include <algorithm>
#include <cmath>

#include "stowage/core/half.h"
#include "stowage/runtime/cpu/kernels/attention_thread.h"

namespace stow::cpu {
namespace {

// to[d * stride] = sums[d] / divisor, rounded.
template <typename Out>
void store(const float* sums, float divisor, int64_t dims, Out* to, int64_t stride) {
  for (int64_t d = 0; d < dims; ++d) narrow(sums[d] / divisor, to[d * stride]);
}

}  // namespace

void join_attention_chunks(const AttentionForwardArgs& args, int64_t head) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  const AttentionSpec& s = args.spec;
  const AttentionForwardPlan& plan = args.plan;
  const int64_t first_task = head * plan.chunks, dims = s.head_dim;
  const AttentionForwardPlace here(s, plan, first_task);
  for (int64_t c = 0; c < plan.columns; ++c) {
    float max = kLowest, sum = 0;
    for (int64_t i = 0; i < plan.chunks; ++i)
      max = std::max(max, AttentionPartial(args, first_task + i).max[c]);
    // The first partial result's place takes the sums.
    AttentionPartial total(args, first_task);
    float* const o = total.o + c * dims;
    if (total.max[c] == kLowest && total.sum[c] == 0) std::fill_n(o, dims, 0.0f);
    for (int64_t i = 0; i < plan.chunks; ++i) {
      const AttentionPartial part(args, first_task + i);
      if (part.max[c] == kLowest && part.sum[c] == 0) continue;
      const float factor = part.max[c] == max ? 1.0f : std::exp(part.max[c] - max);
      const float* const from = part.o + c * dims;
      sum += factor * part.sum[c];
      if (i == 0)
        for (int64_t d = 0; d < dims; ++d) o[d] *= factor;
      else
#pragma omp simd
        for (int64_t d = 0; d < dims; ++d) o[d] += factor * from[d];
    }
    const int64_t position = here.position(c), q_head = here.q_head(c);
    sum = softmax_divisor(sum, visible_range(s, args.intervals, here.batch, position).size());
    const int64_t at = here.batch * s.out[0] + position * s.out[1] + q_head * s.out[2];
    if (s.dtype == DType::kBF16) store(o, sum, dims, static_cast<Bf16*>(args.out) + at, s.out[3]);
    else if (s.dtype == DType::kF16)
      store(o, sum, dims, static_cast<F16*>(args.out) + at, s.out[3]);
    else store(o, sum, dims, static_cast<float*>(args.out) + at, s.out[3]);
    args.lse[(here.batch * s.q_heads + q_head) * s.q_len + position] = max + std::log(sum);
  }
}

}  // namespace stow::cpu
