#include "stowage/runtime/cpu/kernels/attention.h"

#include <omp.h>

#include <algorithm>
#include <atomic>

#include "stowage/runtime/cpu/kernels/attention_thread.h"
#include "stowage/runtime/cpu/kernels/gemm_thread.h"
#include "stowage/runtime/cpu/kernels/team_edge.h"

namespace stow::cpu {
namespace {

// Calls run(thread, task, next) for tasks [0, n), handed out last first: the longest under a causal
// mask. `next` is what the thread will run after this task; -1 is none, or not known: with few
// tasks a thread, or if not `foresees`, none is handed out before its time.
template <typename Run>
void each_task(int threads, int64_t n, bool foresees, Run run) {
  if (threads <= 1) {
    for (int64_t t = n; t-- > 0;) run(0, t, t - 1);
    return;
  }
  foresees = foresees && n >= 4 * int64_t{threads};
  std::atomic<int64_t> taken = 0;
  ParallelRegionScope region;
#pragma omp parallel num_threads(threads)
  {
    region.enter();
    const auto take = [&] {
      return std::max<int64_t>(n - 1 - taken.fetch_add(1, std::memory_order_relaxed), -1);
    };
    for (int64_t task = take(), next; task >= 0; task = foresees ? next : take()) {
      next = foresees ? take() : -1;
      run(omp_get_thread_num(), task, next);
    }
    region.leave();
  }
}

// The keys that the queries of each block see, [batch, query_blocks].
void find_spans(const AttentionSpec& s, const AttentionBackwardPlan& plan,
                const KeyIntervals& intervals, KeyRange* spans) {
  std::fill_n(spans, s.batch * plan.query_blocks, KeyRange{0, 0});
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t i = 0; i < s.q_len; ++i) {
      KeyRange& span = spans[b * plan.query_blocks + i / kQueryBlock];
      span = span.joined(visible_range(s, intervals, b, i));
    }
}

GemmForm form_of(const AttentionSpec& spec) {
  if (attention_may_pair(spec)) return bf16_form();
  return attention_may_triple(spec) ? split_form() : GemmForm::kPlain;
}

}  // namespace

int64_t attention_forward_workspace_bytes(const AttentionSpec& spec, int threads) {
  const AttentionForwardPlan plan = plan_attention_forward(spec, threads);
  return plan.partials_bytes + plan.threads * plan.thread_bytes;
}

void attention_forward(const AttentionSpec& spec, const void* q, const void* k, const void* v,
                       void* out, float* lse, void* workspace, int threads,
                       const KeyIntervals& intervals) {
  const AttentionForwardPlan plan = plan_attention_forward(spec, threads);
  const AttentionForwardArgs args{spec, plan, q, k, v, out, lse, intervals,
                                  static_cast<float*>(workspace)};
  char* const buffers = static_cast<char*>(workspace) + plan.partials_bytes;
  const GemmForm form = plan.few() ? GemmForm::kPlain : form_of(spec);
  const auto run = form == GemmForm::kTiled     ? &attention_forward_tiles
                   : form == GemmForm::kTripled ? &attention_forward_triples
                   : form == GemmForm::kPaired  ? &attention_forward_pairs
                                                : &attention_forward_task;
  each_task(plan.threads, plan.n_tasks, !plan.few(), [&](int thread, int64_t task, int64_t next) {
    run(args, buffers + thread * plan.thread_bytes, task, next);
  });
  if (!plan.splits_keys()) return;
  const int64_t heads = spec.batch * spec.kv_heads;
  constexpr int64_t kLeast = 1 << 16;  // numbers that are worth a team of threads
  const bool small = heads * plan.columns * spec.head_dim < kLeast;
  each_task(small ? 1 : plan.threads, heads, false,
            [&](int, int64_t head, int64_t) { join_attention_chunks(args, head); });
}

int64_t attention_backward_workspace_bytes(const AttentionSpec& spec, int threads) {
  const AttentionBackwardPlan plan = plan_attention_backward(spec, threads);
  return plan.delta_bytes + plan.spans_bytes + plan.threads * plan.thread_bytes;
}

void attention_backward(const AttentionSpec& spec, const void* q, const void* k, const void* v,
                        const void* out, const float* lse, const void* d_out, void* dq, void* dk,
                        void* dv, void* workspace, int threads, const KeyIntervals& intervals) {
  const AttentionBackwardPlan plan = plan_attention_backward(spec, threads);
  KeyRange* const spans =
      reinterpret_cast<KeyRange*>(static_cast<char*>(workspace) + plan.delta_bytes);
  if (spec.intervals) find_spans(spec, plan, intervals, spans);
  const AttentionBackwardArgs args{spec,  plan, q,  k,  v,
                                   out,   lse,  d_out, dq, dk,
                                   dv,    static_cast<float*>(workspace), intervals, spans};
  char* const buffers = static_cast<char*>(workspace) + plan.delta_bytes + plan.spans_bytes;
  const GemmForm form = form_of(spec);
  const bool pairs = form == GemmForm::kTiled || form == GemmForm::kPaired;
  const auto delta = pairs ? &attention_delta_pairs : &attention_delta;
  const auto part_task = form == GemmForm::kTiled     ? &attention_backward_tiles
                         : form == GemmForm::kTripled ? &attention_backward_triples
                         : form == GemmForm::kPaired  ? &attention_backward_pairs
                                                      : &attention_backward_task;
  auto run = [&](AttentionPart part, int64_t n) {
    each_task(plan.threads, n, plan.fused, [&](int thread, int64_t task, int64_t next) {
      part_task(args, part, buffers + thread * plan.thread_bytes, task, next);
    });
  };
  if (plan.fused) return run(AttentionPart::kAll, plan.heads);
  each_task(plan.threads, spec.batch * spec.q_heads, false,
            [&](int, int64_t task, int64_t) { delta(args, task, 0, spec.q_len); });
  run(AttentionPart::kKeys, plan.heads * plan.key_blocks);
  run(AttentionPart::kQueries, plan.heads * plan.group * plan.query_blocks);
}

}  // namespace stow::cpu
