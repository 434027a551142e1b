// The loops of attention's backward pass over blocks of keys and of queries, for every instruction
// set.
// Not the products: `Task`, which derives from BackwardWalk, has those.
#pragma once

#include <algorithm>
#include <limits>

#include "stowage/runtime/cpu/kernels/attention_finite.h"
#include "stowage/runtime/cpu/kernels/attention_prefetch.h"

namespace stow::cpu {

/// `Task` packs the current block of keys (pack_keys) and of queries (pack_queries), computes delta
/// of the queries (make_delta), adds the share of this pair of blocks to the sums (add_block_pair),
/// and writes the sums (write_keys, write_dq). dk and dv are summed over (head of the group, block
/// of queries), dq over blocks of keys; the order is the same for every AttentionPart. Packed keys
/// lie in panels of kWidth. A query sees a key if the mask (causal or intervals) allows it.
template <class Task, class Buffers, int64_t kWidth>
class BackwardWalk {
 public:
  /// Runs task `task` of a part. `next`: the task that this thread runs next, or -1; its first data
  /// are prefetched.
  static void run(const AttentionBackwardArgs& args, AttentionPart part, void* workspace,
                  int64_t task, int64_t next) {
    const AttentionBackwardPlan& plan = args.plan;
    const auto run = [&](int64_t head, auto work) {
      Task one(args, workspace, head);
      work(one);
      // Hidden pairs count as a probability of 0. If 0 met a number that is not finite, run again
      // with those numbers left out.
      if (one.is_finite_ || !args.spec.intervals) return;
      one.separates_nonfinite_ = true;
      work(one);
    };
    switch (part) {
      case AttentionPart::kAll:
        return run(task, [&](Task& t) { t.all(next); });
      case AttentionPart::kKeys:  // reversed: the first keys take longest, the last tasks run first
        return run(task / plan.key_blocks, [&](Task& t) {
          t.keys(plan.key_blocks - 1 - task % plan.key_blocks, 1, nullptr);
        });
      case AttentionPart::kQueries: {
        const int64_t rest = task / plan.query_blocks;
        return run(rest / plan.group, [&](Task& t) {
          t.queries(rest % plan.group, task % plan.query_blocks);
        });
      }
    }
  }

 protected:
  BackwardWalk(const AttentionBackwardArgs& args, void* workspace, int64_t head)
      : a_(args), s_(args.spec), dims_(args.spec.head_dim), allocator_(workspace),
        buf_(args.spec, args.plan, allocator_), batch_(head / args.spec.kv_heads),
        kv_head_(head % args.spec.kv_heads), dq_stride_(round_up_to(dims_, kPanelCols)),
        prefetcher_(AttentionPrefetcher::kStepsALine) {}

  void dim_offsets(int64_t stride) {
    for (int64_t d = 0; d < dims_; ++d) buf_.dims[d] = d * stride;
  }

  // The rows of the block of queries that see some of the keys [key, key + kWidth) of the block of
  // keys. Both ends are rounded outwards to multiples of `unit`, the end at most to the last row.
  // Empty if no row sees one.
  KeyRange rows_that_see(int64_t key, int64_t unit) const {
    const int64_t first = first_key_ + key;
    if (!s_.intervals) {
      const int64_t unseen = s_.causal ? first - s_.offset - first_row_ : 0;
      return {std::max<int64_t>(unseen, 0) / unit * unit, n_rows_};
    }
    KeyRange rows{0, n_rows_};
    const auto sees = [&](int64_t i) { return row_keys_[i].overlaps(first, first + kWidth); };
    while (rows.size() > 0 && !sees(rows.last - 1)) --rows.last;
    while (rows.size() > 0 && !sees(rows.first)) ++rows.first;
    if (rows.size() <= 0) return {0, 0};
    return {rows.first / unit * unit, std::min(round_up_to(rows.last, unit), n_rows_)};
  }
  // Returns the keys of the block that rows [i, i + n) see, from a multiple of kWidth on, counted
  // from the block's first key.
  KeyRange keys_of_rows(int64_t i, int64_t n) const {
    if (!s_.intervals)
      return {0, std::min(visible_keys(s_, first_row_ + i + n - 1) - first_key_, n_keys_)};
    KeyRange keys{0, 0};
    for (int64_t row = i; row < i + n; ++row) keys = keys.joined(row_keys_[row]);
    return {std::max<int64_t>(keys.first - first_key_, 0) / kWidth * kWidth,
            std::min(keys.last - first_key_, n_keys_)};
  }

  // Returns the source of rows of k, q or d_out for the products: `from` or, if
  // separates_nonfinite_, a copy with zeros instead of numbers that are not finite. `marks` then
  // marks the rows that have such numbers, `cleaned` is true if there are any, and add_infinite()
  // adds their effect.
  RowSource finite(const RowSource& from, int64_t* rows, int64_t n, uint8_t* marks, bool& cleaned) {
    if (!separates_nonfinite_) return from;
    const RowSource source = finite_rows(s_.dtype, from, rows, n, dims_, buf_.finite, marks);
    cleaned = source.cleaned;
    return source;
  }
  RowSource keys_source() const {
    return {a_.k, batch_ * s_.k[0] + kv_head_ * s_.k[2], s_.k[3]};
  }
  RowSource query_source(const void* data, const std::array<int64_t, 4>& stride) const {
    return {data, batch_ * stride[0] + q_head_ * stride[2], stride[3]};
  }

  const AttentionBackwardArgs& a_;
  const AttentionSpec& s_;
  int64_t dims_;
  BumpAllocator allocator_;
  Buffers buf_;
  int64_t batch_, kv_head_, dq_stride_, q_head_ = 0;
  // The current block of keys and its packed forms; the current block of queries.
  decltype(Buffers::k_transposed) k_transposed_ = nullptr, v_transposed_ = nullptr,
                                  k_rows_ = nullptr;
  float *dk_ = nullptr, *dv_ = nullptr;
  int64_t packed_index_ = 0, first_key_ = 0, n_keys_ = 0, first_row_ = 0, n_rows_ = 0;
  KeyRange row_keys_[kQueryBlock];  // keys that each query of the block sees
  // Rows in which finite() replaced numbers.
  uint8_t key_marks_[kKeyRun][kKeyBlock], q_marks_[kQueryBlock], do_marks_[kQueryBlock];
  bool keys_cleaned_[kKeyRun] = {}, q_cleaned_ = false, do_cleaned_ = false;
  // True if numbers that are not finite are left out of the products and added separately.
  bool separates_nonfinite_ = false;
  AttentionPrefetcher prefetcher_;

 private:
  bool is_finite_ = true;  // true while all sums are finite

  Task& self() { return static_cast<Task&>(*this); }

  void all(int64_t next_head) {
    const int64_t rows = a_.plan.group * s_.q_len, run = a_.plan.key_run;
    std::fill_n(buf_.dq, rows * dq_stride_, 0.0f);
    bool ends = false;
    for (int64_t b = 0; b < a_.plan.key_blocks; b += run) {
      if (!ends && b + 2 * run >= a_.plan.key_blocks) fetch_end(b, next_head), ends = true;
      keys(b, std::min(run, a_.plan.key_blocks - b), buf_.dq);
    }
    check_finite(buf_.dq, rows * dq_stride_);
    for (int64_t g = 0; g < a_.plan.group; ++g) {
      q_head_ = kv_head_ * a_.plan.group + g;
      self().write_dq(buf_.dq + g * s_.q_len * dq_stride_, 0, s_.q_len);
    }
  }

  // Computes dk and dv of `blocks` blocks of keys. If `dq` [group, q_len, dq_stride_] is not null,
  // adds the share of these keys to it.
  void keys(int64_t block, int64_t blocks, float* dq) {
    const int64_t first = block * kKeyBlock, last = (block + blocks) * kKeyBlock;
    bool seen = false;
    for (int64_t b = 0; b < a_.plan.query_blocks; ++b) seen |= span(b).overlaps(first, last);
    for (int64_t i = 0; i < blocks; ++i) {
      select_keys(block + i, i);
      if (seen || !s_.intervals) self().pack_keys(dq != nullptr);
      std::fill_n(dk_, buf_.sums_size, 0.0f);
      std::fill_n(dv_, buf_.sums_size, 0.0f);
    }
    for (int64_t g = 0; g < a_.plan.group; ++g)
      for (int64_t b = 0; b < a_.plan.query_blocks; ++b) {
        const KeyRange keys = span(b);
        if (!keys.overlaps(first, last)) continue;
        select_queries(g, b);
        if (dq && first <= keys.first) self().make_delta();  // these are the queries' first keys
        self().pack_queries(true);
        fetch_after(g, b, block, blocks, dq != nullptr);
        for (int64_t i = 0; i < blocks; ++i) {
          select_keys(block + i, i);
          if (keys.overlaps(first_key_, first_key_ + kKeyBlock))
            add_block_pair(true, dq ? dq + (g * s_.q_len + first_row_) * dq_stride_ : nullptr);
        }
      }
    for (int64_t i = 0; i < blocks; ++i) {
      select_keys(block + i, i);
      check_finite(dk_, buf_.sums_size);
      check_finite(dv_, buf_.sums_size);
      self().write_keys(dk_, s_.scale, a_.dk, s_.dk);
      self().write_keys(dv_, 1.0f, a_.dv, s_.dv);
    }
  }

  // Computes dq of a block of queries of head g of the group.
  void queries(int64_t g, int64_t block) {
    select_queries(g, block);
    self().pack_queries(false);
    std::fill_n(buf_.dq, n_rows_ * dq_stride_, 0.0f);
    const KeyRange keys = span(block);
    for (int64_t b = keys.first / kKeyBlock; b * kKeyBlock < keys.last; ++b) {
      select_keys(b, 0);
      self().pack_keys(true);
      prefetcher_.near.clear();
      if ((b + 1) * kKeyBlock < keys.last) fetch_keys(prefetcher_.near, batch_, kv_head_, b + 1, 1);
      add_block_pair(false, buf_.dq);
    }
    check_finite(buf_.dq, n_rows_ * dq_stride_);
    self().write_dq(buf_.dq, first_row_, n_rows_);
  }

  // Returns the range of keys that a block of queries sees.
  KeyRange span(int64_t block) const {
    if (s_.intervals) return a_.spans[batch_ * a_.plan.query_blocks + block];
    return {0, visible_keys(s_, std::min((block + 1) * kQueryBlock, s_.q_len) - 1)};
  }

  void add_block_pair(bool for_keys, float* dq) {
    self().add_block_pair(for_keys, dq);
    if (separates_nonfinite_) add_infinite(for_keys, dq);
  }

  void check_finite(const float* sums, int64_t n) {
    if (s_.intervals && !separates_nonfinite_) is_finite_ &= all_finite(sums, n);
  }

  // Adds the effect of numbers that finite() replaced, for pairs in which the query sees the key.
  // The probability of such a pair is not finite if the query or the key has such a number.
  void add_infinite(bool for_keys, float* dq) {
    constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
    const auto sees = [&](int64_t i, int64_t j) {
      return row_keys_[i].overlaps(first_key_ + j, first_key_ + j + 1);
    };
    for (int64_t j = 0; dq && keys_cleaned_[packed_index_] && j < n_keys_; ++j) {
      if (!key_marks_[packed_index_][j]) continue;
      each_infinite(s_.dtype, keys_source(), (first_key_ + j) * s_.k[1], dims_,
                    [&](int64_t d, float) {
                      for (int64_t i = 0; i < n_rows_; ++i)
                        if (sees(i, j)) dq[i * dq_stride_ + d] = kNaN;
                    });
    }
    if (!for_keys) return;
    const int64_t width = buf_.sums_size / round_up_to(std::min(kKeyBlock, s_.kv_len), kPanelCols);
    const auto to_keys = [&](const void* data, const std::array<int64_t, 4>& stride,
                             const uint8_t* marks, auto add) {
      for (int64_t i = 0; i < n_rows_; ++i) {
        if (!marks[i]) continue;
        each_infinite(s_.dtype, query_source(data, stride), (first_row_ + i) * stride[1], dims_,
                      [&](int64_t d, float x) {
                        for (int64_t j = 0; j < n_keys_; ++j)
                          if (sees(i, j))
                            add(j / kWidth * kWidth * width + d * kWidth + j % kWidth, x);
                      });
      }
    };
    if (q_cleaned_) to_keys(a_.q, s_.q, q_marks_, [&](int64_t at, float) { dk_[at] = kNaN; });
    if (do_cleaned_)
      to_keys(a_.d_out, s_.d_out, do_marks_, [&](int64_t at, float x) { dv_[at] += x; });
  }

  // Makes this block of keys the current one. `packed_index` is its index among the packed blocks.
  void select_keys(int64_t block, int64_t packed_index) {
    packed_index_ = packed_index;
    first_key_ = block * kKeyBlock;
    n_keys_ = std::min(kKeyBlock, s_.kv_len - first_key_);
    k_transposed_ = buf_.k_transposed + packed_index * buf_.transposed_size;
    v_transposed_ = buf_.v_transposed + packed_index * buf_.transposed_size;
    k_rows_ = buf_.k_rows + packed_index * buf_.rows_size;
    dk_ = buf_.dk + packed_index * buf_.sums_size;
    dv_ = buf_.dv + packed_index * buf_.sums_size;
  }

  void select_queries(int64_t g, int64_t block) {
    q_head_ = kv_head_ * a_.plan.group + g;
    first_row_ = block * kQueryBlock;
    n_rows_ = std::min(kQueryBlock, s_.q_len - first_row_);
    for (int64_t i = 0; i < n_rows_; ++i)
      row_keys_[i] = visible_range(s_, a_.intervals, batch_, first_row_ + i);
  }

  void fetch_keys(LineQueue& queue, int64_t batch, int64_t kv_head, int64_t block, int64_t blocks) {
    const int64_t first = block * kKeyBlock, n = std::min(blocks * kKeyBlock, s_.kv_len - first);
    add_keys(queue, a_, batch, kv_head, first, n);
  }
  void fetch_queries(LineQueue& queue, int64_t batch, int64_t q_head, int64_t block,
                     bool with_delta) {
    const int64_t first = block * kQueryBlock, n = std::min(kQueryBlock, s_.q_len - first);
    if (with_delta) add_rows(queue, s_, a_.out, s_.out, batch, first, n, q_head);
    add_rows(queue, s_, a_.d_out, s_.d_out, batch, first, n, q_head);
    add_rows(queue, s_, a_.q, s_.q, batch, first, n, q_head);
  }

  // Queues prefetches for the time of the products of block b of the queries of head g with these
  // blocks of keys: of the next queries or, if the task computes a whole head (`all`), the next
  // keys.
  void fetch_after(int64_t g, int64_t b, int64_t block, int64_t blocks, bool all) {
    prefetcher_.near.clear();
    const int64_t head = kv_head_ * a_.plan.group;
    const bool with_delta = all && block == 0;
    if (b + 1 < a_.plan.query_blocks)
      return fetch_queries(prefetcher_.near, batch_, head + g, b + 1, with_delta);
    if (g + 1 < a_.plan.group)
      return fetch_queries(prefetcher_.near, batch_, head + g + 1, first_query_block(block),
                           with_delta);
    const int64_t next = block + blocks;
    if (!all || next >= a_.plan.key_blocks) return;
    fetch_keys(prefetcher_.near, batch_, kv_head_, next, a_.plan.key_run);
    fetch_queries(prefetcher_.near, batch_, head, first_query_block(next), false);
  }

  // Returns the first block of queries that see a key of a block of keys, without intervals.
  int64_t first_query_block(int64_t block) const {
    const int64_t unseen = s_.causal ? std::max<int64_t>(block * kKeyBlock - s_.offset, 0) : 0;
    return unseen / kQueryBlock;
  }

  // Queues prefetches of the lines that the task writes at its end, from this block of keys on, and
  // of those that the next task reads first.
  void fetch_end(int64_t block, int64_t next_head) {
    constexpr int64_t kMost = 1 << 19;  // bytes of the cache that prefetched dq may take
    const int64_t first = block * kKeyBlock, n = s_.kv_len - first, group = a_.plan.group;
    add_rows(prefetcher_.far, s_, a_.dk, s_.dk, batch_, first, n, kv_head_);
    add_rows(prefetcher_.far, s_, a_.dv, s_.dv, batch_, first, n, kv_head_);
    if (group * s_.q_len * dims_ * dtype_bytes(s_.dtype) <= kMost)
      add_rows(prefetcher_.far, s_, a_.dq, s_.dq, batch_, 0, s_.q_len, kv_head_ * group, group);
    if (next_head < 0) return;
    const int64_t batch = next_head / s_.kv_heads, kv_head = next_head % s_.kv_heads;
    fetch_keys(prefetcher_.far, batch, kv_head, 0, a_.plan.key_run);
    fetch_queries(prefetcher_.far, batch, kv_head * group, 0, true);
  }
};

}  // namespace stow::cpu
