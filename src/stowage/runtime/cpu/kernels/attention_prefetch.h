// Prefetches the rows that attention packs or writes next into the L2 cache, a few lines after each
// product: rows of a head are too short for the hardware prefetcher.
// Not arithmetic: a wrong guess costs only time.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "stowage/runtime/cpu/kernels/attention_thread.h"

namespace stow::cpu {

/// A queue of cache lines to prefetch.
class LineQueue {
 public:
  void clear() { count_ = next_ = 0; }

  /// Appends the lines of `rows` rows of `row_bytes` bytes, `step` bytes apart. Does nothing if the
  /// queue is full.
  void add(uintptr_t at, int64_t step, int64_t rows, int64_t row_bytes) {
    if (rows <= 0 || row_bytes <= 0 || count_ == kMost) return;
    rows_[static_cast<size_t>(count_++)] = {at, step, rows, (row_bytes + kLine - 1) / kLine, 0};
  }

  /// Prefetches up to `lines` lines. Returns how many of them the queue did not have.
  int64_t fetch(int64_t lines) {
    while (lines > 0 && next_ < count_) {
      Rows& r = rows_[static_cast<size_t>(next_)];
      const int64_t n = std::min(lines, r.lines - r.line);
      uintptr_t at = r.at + static_cast<uintptr_t>(r.line * kLine);
      for (int64_t i = 0; i < n; ++i, at += kLine)
        __builtin_prefetch(reinterpret_cast<const void*>(at), 0, 2);
      lines -= n;
      r.line += n;
      if (r.line < r.lines) continue;
      r.line = 0, r.at += static_cast<uintptr_t>(r.step);
      if (--r.left == 0) ++next_;
    }
    return lines;
  }

 private:
  static constexpr int64_t kLine = 64;
  static constexpr int kMost = 32;  // most calls of add() that are queued
  struct Rows {
    uintptr_t at;  // address of the current row; a number, as it may end up beyond the array
    // Bytes to the next row; rows left; lines of a row; the next line of the current row.
    int64_t step, left, lines, line;
  };
  std::array<Rows, kMost> rows_;
  int count_ = 0, next_ = 0;
};

/// Lines to prefetch: first those of the next block (`near`), then those that the task writes at
/// its end and the next task reads first (`far`).
class AttentionPrefetcher {
 public:
  static constexpr int64_t kStepsALine = 8;
  LineQueue near, far;
  /// Prefetches one line for every `steps_a_line` steps of a product.
  explicit AttentionPrefetcher(int64_t steps_a_line) : steps_a_line_(steps_a_line) {}
  /// Prefetches the lines that are due after a product of `steps` steps of k.
  void fetch(int64_t steps) { far.fetch(near.fetch(steps / steps_a_line_)); }

 private:
  int64_t steps_a_line_;
};

/// Queues rows [first, first + n) of heads [head, head + heads) of a tensor [batch, position, head,
/// dim], if their dims are contiguous.
inline void add_rows(LineQueue& queue, const AttentionSpec& s, const void* base,
                     const std::array<int64_t, 4>& stride, int64_t batch, int64_t first, int64_t n,
                     int64_t head, int64_t heads = 1) {
  if (stride[3] != 1 || n <= 0) return;
  const int64_t bytes = dtype_bytes(s.dtype);
  const bool one = stride[2] == s.head_dim;  // the heads of a position are contiguous
  for (int64_t h = 0; h < (one ? 1 : heads); ++h) {
    const int64_t at = batch * stride[0] + first * stride[1] + (head + h) * stride[2];
    queue.add(reinterpret_cast<uintptr_t>(base) + static_cast<uintptr_t>(at * bytes),
              stride[1] * bytes, n, (one ? heads : 1) * s.head_dim * bytes);
  }
}

/// Queues keys [first, first + n) and their values. `Args` are forward or backward arguments.
template <class Args>
void add_keys(LineQueue& queue, const Args& a, int64_t batch, int64_t kv_head, int64_t first,
              int64_t n) {
  add_rows(queue, a.spec, a.k, a.spec.k, batch, first, n, kv_head);
  add_rows(queue, a.spec, a.v, a.spec.v, batch, first, n, kv_head);
}

/// The prefetches of a forward task. The task calls packed() after it has packed a block of keys.
class AttentionForwardPrefetcher : public AttentionPrefetcher {
 public:
  /// The task reads no key from `last_key` on. `next` is the next task of the thread, or -1.
  AttentionForwardPrefetcher(const AttentionForwardArgs& args, const AttentionForwardPlace& here,
                        int64_t last_key, int64_t next)
      : AttentionPrefetcher(args.spec.intervals ? 1 : kStepsALine),  // there may be few products
        a_(args),
        here_(here),
        last_key_(last_key),
        next_(next) {}

  /// Queues the block of keys that follows keys [first, first + n), which are packed. Near the end
  /// of the task, also queues the outputs and the first data of the next task.
  void packed(int64_t first, int64_t n) {
    const int64_t left = last_key_ - first - n;
    near.clear();
    add_keys(near, a_, here_.batch, here_.kv_head, first + n, std::min(left, kKeyBlock));
    if ((left > kKeyBlock && !a_.spec.intervals) || ends_) return;
    ends_ = true;
    add_columns(a_.out, a_.spec.out, here_);
    if (next_ < 0 || a_.plan.splits_keys()) return;
    const AttentionForwardPlace next(a_.spec, a_.plan, next_);
    add_columns(a_.q, a_.spec.q, next);
    const KeyRange keys = visible_range(a_.spec, a_.intervals, next.batch,
                                        next.position(a_.spec.intervals ? 0 : next.columns - 1));
    add_keys(far, a_, next.batch, next.kv_head, keys.first, std::min(keys.size(), kKeyBlock));
  }

 private:
  void add_columns(const void* base, const std::array<int64_t, 4>& stride,
                   const AttentionForwardPlace& of) {
    const int64_t first = of.position(0), last = of.position(of.columns - 1);
    add_rows(far, a_.spec, base, stride, of.batch, first, last - first + 1, of.kv_head * of.group,
             of.group);
  }

  const AttentionForwardArgs& a_;
  const AttentionForwardPlace& here_;
  int64_t last_key_, next_;
  bool ends_ = false;
};

}  // namespace stow::cpu
