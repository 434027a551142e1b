// How attention is cut into blocks and tasks, and where each buffer lies in the workspace.
// Not a kernel: nothing here depends on the instruction set.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "stowage/base/bytes.h"
#include "stowage/runtime/cpu/kernels/attention.h"

namespace stow::cpu {

inline constexpr int64_t kKeyBlock = 192;    // keys at a time: part of the order of sums
inline constexpr int64_t kQueryBlock = 96;   // query rows at a time in the backward pass: likewise
inline constexpr int64_t kKeyRun = 2;        // blocks of keys that a packed block of queries meets
inline constexpr int64_t kQueryColumns = 512;  // most query columns of a forward task
inline constexpr int64_t kFewColumns = 8;    // up to so many, a forward task walks rows of k and v
inline constexpr int64_t kFewLanes = 8;      // in vectors of this many
inline constexpr int64_t kSplitColumns = 64;  // up to so many, with intervals, tasks share the keys
inline constexpr int64_t kChunkBlocks = 2;    // blocks of keys of such a task at least
inline constexpr int64_t kMostChunks = 64;    // most chunks of a head
inline constexpr int64_t kPanelRows = 12;    // a multiple of every target's micro-kernel rows
inline constexpr int64_t kPanelCols = 32;    // likewise of its columns

/// Hands out pieces of a workspace, each aligned to 64 bytes; measures when the base is null.
class Carver {
 public:
  explicit Carver(void* base) : base_(static_cast<char*>(base)) {}
  template <typename T>
  T* take(int64_t n) {
    T* piece = base_ ? reinterpret_cast<T*>(base_ + used_) : nullptr;
    used_ += align_up(n * static_cast<int64_t>(sizeof(T)), 64);
    return piece;
  }
  int64_t used() const { return used_; }

 private:
  char* base_;
  int64_t used_ = 0;
};

inline int64_t round_up_to(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }
inline int64_t blocks_of(int64_t n, int64_t block) { return (n + block - 1) / block; }

/// True if machines that multiply pairs of bf16 do so for this attention. Scores are scaled after
/// their maximum is taken, so the scale has to keep their order.
inline bool attention_may_pair(const AttentionSpec& s) {
  return s.dtype == DType::kBF16 && s.scale > 0 && s.scale <= std::numeric_limits<float>::max();
}
/// True if machines that multiply tiles of bf16 split the f32 of this attention to use them: enough
/// is multiplied by what is packed, and no more than a block of products is summed at once.
inline bool attention_may_triple(const AttentionSpec& s) {
  constexpr int64_t kLeast = 256;  // query columns, and keys
  return s.dtype == DType::kF32 && s.scale > 0 && s.scale <= std::numeric_limits<float>::max() &&
         s.head_dim >= 32 && s.head_dim <= 256 && s.kv_len >= kLeast &&
         s.q_len * (s.q_heads / s.kv_heads) >= kLeast;
}
inline int64_t pairs_of(int64_t n) { return (n + 1) / 2; }

/// Multiples to which panels of pairs are padded: rows of a left operand, and pairs of either
/// operand. Also the number of parts as which each number is packed.
struct AttentionUnits {
  int64_t rows, pairs, parts = 1;
  constexpr int64_t rows_of(int64_t n) const { return (n + rows - 1) / rows * rows; }
  constexpr int64_t pairs_of(int64_t n) const { return (n + 2 * pairs - 1) / (2 * pairs) * pairs; }
  /// Marks of so many rows, and places for what is made beside products of what was made before.
  constexpr int64_t marks_of(int64_t n) const { return parts > 1 ? n : 0; }
  constexpr int64_t turns() const { return parts > 1 ? 2 : 1; }
};
inline constexpr AttentionUnits kPairUnits = {12, 1};   // AVX-512-BF16
inline constexpr AttentionUnits kTileUnits = {32, 16};  // AMX
inline constexpr AttentionUnits kTripleUnits = {32, 16, 3};  // AMX, of f32

/// Keys that query position `pos` sees: a prefix of the keys, of this length.
inline int64_t visible_keys(const AttentionSpec& s, int64_t pos) {
  if (!s.causal) return s.kv_len;
  return std::clamp<int64_t>(pos + s.offset + 1, 0, s.kv_len);
}

/// Keys [first, last).
struct KeyRange {
  int64_t first, last;
  int64_t size() const { return last - first; }
  bool overlaps(int64_t begin, int64_t end) const { return first < end && begin < last; }
  KeyRange within(const KeyRange& other) const {
    const KeyRange both{std::max(first, other.first), std::min(last, other.last)};
    return both.first < both.last ? both : KeyRange{0, 0};
  }
  /// The smallest range with both; an empty one adds nothing.
  KeyRange joined(const KeyRange& other) const {
    if (other.size() <= 0) return *this;
    if (size() <= 0) return other;
    return {std::min(first, other.first), std::max(last, other.last)};
  }
};

/// Keys that query `pos` of a batch element sees; {0, 0} if none.
inline KeyRange visible_range(const AttentionSpec& s, const KeyIntervals& intervals, int64_t batch,
                              int64_t pos) {
  KeyRange range{0, visible_keys(s, pos)};
  if (!s.intervals) return range;
  range.first = std::max<int64_t>(range.first, intervals.lo[batch * s.lo[0] + pos * s.lo[1]]);
  range.last = std::min<int64_t>(range.last, intervals.hi[batch * s.hi[0] + pos * s.hi[1]]);
  return range.first < range.last ? range : KeyRange{0, 0};
}

/// Returns the divisor of a query's outputs, given its sum of exponentials and the number of keys
/// it sees. Zeros stay zeros if it sees no key. They become NaN, as in a softmax, if all its scores
/// are -inf.
inline float softmax_divisor(float sum, int64_t seen) {
  if (sum != 0) return sum;
  return seen == 0 ? 1.0f : std::numeric_limits<float>::quiet_NaN();
}

/// Forward: a task is some columns, (position, head of the group) with the head innermost, of one
/// batch element and key-value head. With intervals, where there are few columns of a head, as in
/// decoding, it is all of them with a chunk of the keys: chunks give partial results, which are joined.
struct AttentionForwardPlan {
  int64_t group, columns, task_columns, tasks_per_head, n_tasks;
  int64_t chunks, chunk_keys;  // chunks of a head and their keys; 1 and all keys if not split
  int threads;
  int64_t thread_bytes;  // the same on machines with products of pairs and on others
  int64_t partial_floats, partials_bytes;  // size of one chunk's partial result, and of all
  bool few() const { return columns <= kFewColumns; }
  bool splits_keys() const { return chunks > 1; }
};
AttentionForwardPlan plan_attention_forward(const AttentionSpec& spec, int threads);

/// Range of a forward task: columns [first, first + columns) of a batch element and key-value
/// head. Tasks of a head come one after the other, for the cache.
struct AttentionForwardPlace {
  int64_t batch, kv_head, first, columns, group;
  KeyRange keys;  // no others are the task's
  AttentionForwardPlace(const AttentionSpec& s, const AttentionForwardPlan& p, int64_t task)
      : batch(task / p.chunks / p.tasks_per_head / s.kv_heads),
        kv_head(task / p.chunks / p.tasks_per_head % s.kv_heads),
        first(task / p.chunks % p.tasks_per_head * p.task_columns),
        columns(std::min(p.task_columns, p.columns - first)),
        group(p.group),
        keys{task % p.chunks * p.chunk_keys,
             std::min((task % p.chunks + 1) * p.chunk_keys, s.kv_len)} {}
  int64_t position(int64_t column) const { return (first + column) / group; }
  int64_t q_head(int64_t column) const { return kv_head * group + (first + column) % group; }
};

/// One thread's buffers in the forward pass; panels are [.., depth, width].
struct AttentionForwardBuffers {
  float *q, *o, *k, *v, *scores, *max, *sum, *rows;
  int64_t* dims;
  void* finite;  // with intervals, for rows of a block of keys in the tensors' dtype
  AttentionForwardBuffers(const AttentionSpec& s, const AttentionForwardPlan& p, Carver& from);
};

/// The same where products are of pairs of bf16: words of two, panels are [.., pairs, width], or of
/// several parts as in triples.h; these have marks of their rows.
struct AttentionForwardPairs {
  uint32_t *q, *k, *v, *p;
  int8_t *q_marks, *k_marks, *v_marks;
  float *o, *scores, *max, *sum, *factors;
  int64_t* dims;
  void* finite;  // as above
  AttentionForwardPairs(const AttentionSpec& s, const AttentionForwardPlan& p,
                        const AttentionUnits& units, Carver& from);
};

/// Backward: either one task a batch element and key-value head does all five products (fused), or
/// tasks a block of keys and then tasks a block of queries do four and three. Same bits.
struct AttentionBackwardPlan {
  int64_t group, heads, key_blocks, query_blocks;
  bool fused;
  int64_t key_run;  // blocks of keys that lie packed at a time
  int threads;
  int64_t delta_bytes, spans_bytes, thread_bytes;
};
AttentionBackwardPlan plan_attention_backward(const AttentionSpec& spec, int threads);

struct AttentionBackwardBuffers {
  // Blocks of keys, one after the other.
  float *k_lanes, *v_lanes, *k_deep, *dk, *dv;
  // Sizes of a block of keys, in elements: in k_lanes and v_lanes; in k_deep; in dk and dv.
  int64_t lanes_size, deep_size, sums_size;
  float *q_rows, *do_rows, *q_deep, *do_deep;       // a block of queries
  float *p, *ds, *ds_turned, *dq;
  int64_t* dims;
  void* finite;  // with intervals, for rows of a block of keys or queries in the tensors' dtype
  AttentionBackwardBuffers(const AttentionSpec& s, const AttentionBackwardPlan& p, Carver& from);
};

/// The same where products are of pairs of bf16.
struct AttentionBackwardPairs {
  uint32_t *k_lanes, *v_lanes, *k_deep;
  float *dk, *dv;
  // Sizes of a block of keys, in elements: in k_lanes and v_lanes; in k_deep; in dk and dv.
  int64_t lanes_size, deep_size, sums_size;
  uint32_t *q_rows, *do_rows, *q_deep, *do_deep;
  uint32_t *p, *ds;  // pairs of queries, of kPanelCols keys; panel_size of them, or twice
  int64_t panel_size;
  uint32_t* ds_rows;  // [queries, pairs of kKeyBlock keys]
  // Marks, of a block of keys so many as it has columns: k_lanes' and v_lanes', k_deep's; and
  // others'.
  int64_t lanes_marks, deep_marks;
  int8_t *k_lanes_marks, *v_lanes_marks, *k_deep_marks;
  int8_t *q_rows_marks, *do_rows_marks, *q_deep_marks, *do_deep_marks;
  float *scores, *dp, *lse, *dq;
  int64_t* dims;
  void* finite;  // as above
  AttentionBackwardPairs(const AttentionSpec& s, const AttentionBackwardPlan& p,
                         const AttentionUnits& units, Carver& from);
};

}  // namespace stow::cpu
