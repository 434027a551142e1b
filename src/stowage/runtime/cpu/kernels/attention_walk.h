// The way of attention's backward pass through blocks of keys and of queries, whatever it computes
// with. Not the products: `Task`, which derives from it, has those.
#pragma once

#include <algorithm>

#include "stowage/runtime/cpu/kernels/attention_thread.h"

namespace stow::cpu {

/// `Task` packs a block of keys (pack_keys) and of queries (pack_queries), lets the two meet
/// (meet), and writes the sums (write_keys, write_dq). dk and dv are summed over (head of the group, block
/// of queries), dq over blocks of keys, each in that order whichever part runs. Keys lie in panels
/// of kWidth.
template <class Task, class Buffers, int64_t kWidth>
class BackwardWalk {
 public:
  /// Runs one task of a part.
  static void run(const AttentionBackwardArgs& args, AttentionPart part, void* workspace,
                  int64_t task) {
    const AttentionBackwardPlan& plan = args.plan;
    switch (part) {
      case AttentionPart::kAll:
        return Task(args, workspace, task).all();
      case AttentionPart::kKeys:  // the first keys, which most queries see, come last and so first
        return Task(args, workspace, task / plan.key_blocks)
            .keys(plan.key_blocks - 1 - task % plan.key_blocks, 1, nullptr);
      case AttentionPart::kQueries: {
        const int64_t rest = task / plan.query_blocks;
        return Task(args, workspace, rest / plan.group)
            .queries(rest % plan.group, task % plan.query_blocks);
      }
    }
  }

 protected:
  BackwardWalk(const AttentionBackwardArgs& args, void* workspace, int64_t head)
      : a_(args), s_(args.spec), dims_(args.spec.head_dim), carver_(workspace),
        buf_(args.spec, args.plan, carver_), batch_(head / args.spec.kv_heads),
        kv_head_(head % args.spec.kv_heads), dq_stride_(round_up_to(dims_, kPanelCols)) {}

  void dim_offsets(int64_t stride) {
    for (int64_t d = 0; d < dims_; ++d) buf_.dims[d] = d * stride;
  }

  const AttentionBackwardArgs& a_;
  const AttentionSpec& s_;
  int64_t dims_;
  Carver carver_;
  Buffers buf_;
  int64_t batch_, kv_head_, dq_stride_, q_head_ = 0;
  // The block of keys that is meant, and where it lies packed; the block of queries.
  decltype(Buffers::k_lanes) k_lanes_ = nullptr, v_lanes_ = nullptr, k_deep_ = nullptr;
  float *dk_ = nullptr, *dv_ = nullptr;
  int64_t first_key_ = 0, n_keys_ = 0, first_row_ = 0, n_rows_ = 0;

 private:
  Task& self() { return static_cast<Task&>(*this); }

  void all() {
    const int64_t rows = a_.plan.group * s_.q_len;
    std::fill_n(buf_.dq, rows * dq_stride_, 0.0f);
    for (int64_t b = 0; b < a_.plan.key_blocks; b += a_.plan.key_run)
      keys(b, std::min(a_.plan.key_run, a_.plan.key_blocks - b), buf_.dq);
    for (int64_t g = 0; g < a_.plan.group; ++g) {
      q_head_ = kv_head_ * a_.plan.group + g;
      self().write_dq(buf_.dq + g * s_.q_len * dq_stride_, 0, s_.q_len);
    }
  }

  // The gradients of some blocks of keys; with `dq` [group, q_len, dq_stride_], their part of that
  // too.
  void keys(int64_t block, int64_t blocks, float* dq) {
    for (int64_t i = 0; i < blocks; ++i) {
      turn_to(block + i, i);
      self().pack_keys(dq != nullptr);
      std::fill_n(dk_, buf_.sums_size, 0.0f);
      std::fill_n(dv_, buf_.sums_size, 0.0f);
    }
    for (int64_t g = 0; g < a_.plan.group; ++g)
      for (int64_t b = 0; b < a_.plan.query_blocks; ++b) {
        const int64_t seen = visible_keys(s_, std::min((b + 1) * kQueryBlock, s_.q_len) - 1);
        for (int64_t i = 0; i < blocks && (block + i) * kKeyBlock < seen; ++i) {
          if (i == 0) turn_to_queries(g, b, true);
          turn_to(block + i, i);
          self().meet(true, dq ? dq + (g * s_.q_len + first_row_) * dq_stride_ : nullptr);
        }
      }
    for (int64_t i = 0; i < blocks; ++i) {
      turn_to(block + i, i);
      self().write_keys(dk_, s_.scale, a_.dk, s_.dk);
      self().write_keys(dv_, 1.0f, a_.dv, s_.dv);
    }
  }

  void queries(int64_t g, int64_t block) {
    turn_to_queries(g, block, false);
    std::fill_n(buf_.dq, n_rows_ * dq_stride_, 0.0f);
    const int64_t seen = visible_keys(s_, first_row_ + n_rows_ - 1);
    for (int64_t b = 0; b * kKeyBlock < seen; ++b) {
      turn_to(b, 0);
      self().pack_keys(true);
      self().meet(false, buf_.dq);
    }
    self().write_dq(buf_.dq, first_row_, n_rows_);
  }

  // What follows is about this block of keys, which lies at this place among those packed.
  void turn_to(int64_t block, int64_t place) {
    first_key_ = block * kKeyBlock;
    n_keys_ = std::min(kKeyBlock, s_.kv_len - first_key_);
    k_lanes_ = buf_.k_lanes + place * buf_.lanes_size;
    v_lanes_ = buf_.v_lanes + place * buf_.lanes_size;
    k_deep_ = buf_.k_deep + place * buf_.deep_size;
    dk_ = buf_.dk + place * buf_.sums_size;
    dv_ = buf_.dv + place * buf_.sums_size;
  }

  void turn_to_queries(int64_t g, int64_t block, bool for_keys) {
    q_head_ = kv_head_ * a_.plan.group + g;
    first_row_ = block * kQueryBlock;
    n_rows_ = std::min(kQueryBlock, s_.q_len - first_row_);
    self().pack_queries(for_keys);
  }
};

}  // namespace stow::cpu
