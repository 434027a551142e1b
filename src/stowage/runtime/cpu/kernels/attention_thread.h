// Functions that run one task of attention, for the best instruction set of this machine.
// Not public: attention.cpp calls them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "stowage/runtime/cpu/kernels/attention_plan.h"

namespace stow::cpu {

struct AttentionForwardArgs {
  const AttentionSpec& spec;
  const AttentionForwardPlan& plan;
  const void *q, *k, *v;
  void* out;
  float* lse;
  const KeyIntervals& intervals;
  float* partials;  // [n_tasks, partial_floats], where the plan splits keys
};
/// Partial result of a task that has a chunk of the keys. Each column has its largest score, the
/// sum of exponentials relative to that score, and the sum of values weighted by these
/// exponentials. A column whose max is -inf and whose sum is zero saw no key; its o is not read.
struct AttentionPartial {
  float *max, *sum, *o;  // [columns], [columns], [columns, head_dim]
  AttentionPartial(const AttentionForwardArgs& args, int64_t task)
      : max(args.partials + task * args.plan.partial_floats),
        sum(max + args.plan.columns),
        o(sum + args.plan.columns) {}
  /// Makes the result that of `columns` columns that saw no key.
  void clear(int64_t columns) {
    std::fill_n(max, columns, -std::numeric_limits<float>::infinity());
    std::fill_n(sum, columns, 0.0f);
  }
};
/// Joins the partial results of all chunks of a head, in order, and writes out and lse. `head`
/// counts (batch element, key-value head) pairs.
void join_attention_chunks(const AttentionForwardArgs& args, int64_t head);

/// Runs one task with this thread's workspace. `next` is the task that the thread runs afterwards,
/// or -1; it is used to prefetch only.
void attention_forward_task(const AttentionForwardArgs& args, void* workspace, int64_t task,
                            int64_t next);

struct AttentionBackwardArgs {
  const AttentionSpec& spec;
  const AttentionBackwardPlan& plan;
  const void *q, *k, *v, *out;
  const float* lse;
  const void* d_out;
  void *dq, *dk, *dv;
  float* delta;  // [batch, q_heads, q_len]
  const KeyIntervals& intervals;
  const KeyRange* spans;  // with intervals: the keys of each query block, [batch, query_blocks]
};
/// delta[head * q_len + i] = sum over d of out * d_out, for queries i in [first, first + n). `head`
/// counts (batch element, query head) pairs.
void attention_delta(const AttentionBackwardArgs& args, int64_t head, int64_t first, int64_t n);

/// Parts of the backward pass: all of it (if fused), dk and dv, or dq.
enum class AttentionPart { kAll, kKeys, kQueries };
/// Runs one task of a part. Tasks are numbered row-major: kAll [heads], kKeys [heads, key_blocks],
/// kQueries [heads, group, query_blocks]. kAll computes delta; the other parts read it.
void attention_backward_task(const AttentionBackwardArgs& args, AttentionPart part, void* workspace,
                             int64_t task, int64_t next);

/// The same with products of pairs of bf16, if attention_may_pair() and can_multiply_pairs(). The
/// forward task does not support plans with few().
void attention_forward_pairs(const AttentionForwardArgs& args, void* workspace, int64_t task,
                             int64_t next);
void attention_delta_pairs(const AttentionBackwardArgs& args, int64_t head, int64_t first,
                           int64_t n);
void attention_backward_pairs(const AttentionBackwardArgs& args, AttentionPart part,
                              void* workspace, int64_t task, int64_t next);
/// The same with products of tiles, if can_multiply_tiles() too.
void attention_forward_tiles(const AttentionForwardArgs& args, void* workspace, int64_t task,
                             int64_t next);
void attention_backward_tiles(const AttentionBackwardArgs& args, AttentionPart part,
                              void* workspace, int64_t task, int64_t next);
/// The same for f32, split, if attention_may_triple() and can_multiply_tiles().
void attention_forward_triples(const AttentionForwardArgs& args, void* workspace, int64_t task,
                               int64_t next);
void attention_backward_triples(const AttentionBackwardArgs& args, AttentionPart part,
                                void* workspace, int64_t task, int64_t next);

}  // namespace stow::cpu
