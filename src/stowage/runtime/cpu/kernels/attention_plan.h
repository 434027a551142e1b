// The plan of an attention: its blocks and tasks, and the location of each buffer in the workspace.
// Not a kernel: nothing here depends on the instruction set.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "stowage/base/bytes.h"
#include "stowage/runtime/cpu/kernels/attention.h"

namespace stow::cpu {

inline constexpr int64_t kKeyBlock = 192;    // keys of a block; it defines the order of sums
inline constexpr int64_t kQueryBlock = 96;   // queries of a block of the backward pass; likewise
inline constexpr int64_t kKeyRun = 2;        // most blocks of keys that are packed at a time
inline constexpr int64_t kQueryColumns = 512;  // most query columns of a forward task
inline constexpr int64_t kFewColumns = 8;    // most query columns for attention_few-inl.h
inline constexpr int64_t kFewLanes = 8;      // lanes of its vectors
inline constexpr int64_t kSplitColumns = 64;  // most query columns for which tasks share the keys
inline constexpr int64_t kChunkBlocks = 2;    // least blocks of keys of such a task
inline constexpr int64_t kMostChunks = 64;    // most chunks of a head
inline constexpr int64_t kPanelRows = 12;    // a multiple of every target's micro-kernel rows
inline constexpr int64_t kPanelCols = 32;    // a multiple of every micro-kernel's columns

/// A bump allocator over a workspace. If the base is null, it only counts bytes, and take() returns
/// null.
class BumpAllocator {
 public:
  explicit BumpAllocator(void* base) : base_(static_cast<char*>(base)) {}
  /// Returns room for n objects, aligned to 64 bytes.
  template <typename T>
  T* take(int64_t n) {
    T* piece = base_ ? reinterpret_cast<T*>(base_ + used_) : nullptr;
    used_ += align_up(n * static_cast<int64_t>(sizeof(T)), 64);
    return piece;
  }
  /// Returns the bytes that have been taken.
  int64_t used() const { return used_; }

 private:
  char* base_;
  int64_t used_ = 0;
};

inline int64_t round_up_to(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }
inline int64_t blocks_of(int64_t n, int64_t block) { return (n + block - 1) / block; }

/// True if machines that can multiply pairs of bf16 may do so for this attention. The scale must be
/// positive: scores are scaled after their maximum is taken.
inline bool attention_may_pair(const AttentionSpec& s) {
  return s.dtype == DType::kBF16 && s.scale > 0 && s.scale <= std::numeric_limits<float>::max();
}
/// True if machines that can multiply tiles of bf16 may split the f32 of this attention to use
/// them. There are enough products to repay packing, and head_dim is at most a K block of a
/// product.
inline bool attention_may_triple(const AttentionSpec& s) {
  constexpr int64_t kLeast = 256;  // query columns, and keys
  return s.dtype == DType::kF32 && s.scale > 0 && s.scale <= std::numeric_limits<float>::max() &&
         s.head_dim >= 32 && s.head_dim <= 256 && s.kv_len >= kLeast &&
         s.q_len * (s.q_heads / s.kv_heads) >= kLeast;
}
inline int64_t pairs_of(int64_t n) { return (n + 1) / 2; }

/// Units of packing of a kernel. Panels are padded to multiples of `rows` rows in left operands,
/// and of `pairs` pairs in both. Each number is packed as `parts` bf16.
struct AttentionUnits {
  int64_t rows, pairs, parts = 1;
  /// Returns n rows padded.
  constexpr int64_t rows_of(int64_t n) const { return (n + rows - 1) / rows * rows; }
  /// Returns the pairs of n k, padded.
  constexpr int64_t pairs_of(int64_t n) const { return (n + 2 * pairs - 1) / (2 * pairs) * pairs; }
  /// Returns the number of marks of n rows.
  constexpr int64_t marks_of(int64_t n) const { return parts > 1 ? n : 0; }
  /// Returns the number of buffers for scores: 2 if softmax runs during the products of the next
  /// panel.
  constexpr int64_t n_buffers() const { return parts > 1 ? 2 : 1; }
};
inline constexpr AttentionUnits kPairUnits = {12, 1};   // AVX-512-BF16
inline constexpr AttentionUnits kTileUnits = {32, 16};  // AMX
inline constexpr AttentionUnits kTripleUnits = {32, 16, 3};  // AMX, of f32

/// Returns the number of keys that the query at position `pos` sees without intervals: the first
/// ones.
inline int64_t visible_keys(const AttentionSpec& s, int64_t pos) {
  if (!s.causal) return s.kv_len;
  return std::clamp<int64_t>(pos + s.offset + 1, 0, s.kv_len);
}

/// Keys [first, last).
struct KeyRange {
  int64_t first, last;
  int64_t size() const { return last - first; }
  bool overlaps(int64_t begin, int64_t end) const { return first < end && begin < last; }
  /// Returns the intersection; {0, 0} if that is empty.
  KeyRange within(const KeyRange& other) const {
    const KeyRange both{std::max(first, other.first), std::min(last, other.last)};
    return both.first < both.last ? both : KeyRange{0, 0};
  }
  /// Returns the smallest range that contains both; an empty range adds nothing.
  KeyRange joined(const KeyRange& other) const {
    if (other.size() <= 0) return *this;
    if (size() <= 0) return other;
    return {std::min(first, other.first), std::max(last, other.last)};
  }
};

/// Returns the keys that query `pos` of a batch element sees; {0, 0} if none.
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

/// The plan of the forward pass. A task computes some query columns of one batch element and
/// key-value head; a column is a (position, head of the group) pair, with the head innermost. With
/// intervals and few columns a head, as in decoding, a task instead takes all columns and a chunk
/// of the keys. The chunks give partial results, which are joined.
struct AttentionForwardPlan {
  // Query heads of a key-value head; columns of one, and of a task; tasks of one; all tasks. The
  // tasks of a head here are those for one chunk of its keys.
  int64_t group, columns, task_columns, tasks_per_head, n_tasks;
  int64_t chunks, chunk_keys;  // chunks of a head and their keys; 1 and all keys if not split
  int threads;
  int64_t thread_bytes;  // workspace of a thread, the same on all machines
  int64_t partial_floats, partials_bytes;  // size of one chunk's partial result, and of all
  bool few() const { return columns <= kFewColumns; }
  bool splits_keys() const { return chunks > 1; }
};
AttentionForwardPlan plan_attention_forward(const AttentionSpec& spec, int threads);

/// The share of a forward task: columns [first, first + columns) of a batch element and key-value
/// head. Tasks of a head follow one another, so that its keys stay in cache.
struct AttentionForwardPlace {
  int64_t batch, kv_head, first, columns, group;
  KeyRange keys;  // keys that the task takes
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

/// One thread's buffers in the forward pass. Operands are packed in panels [.., depth, width].
struct AttentionForwardBuffers {
  // Queries and outputs of the task; keys and values of a block; scores [keys, columns] of a panel;
  // running maximum and sum of each column; rows of few queries' keys or values, as f32.
  float *q, *o, *k, *v, *scores, *max, *sum, *rows;
  int64_t* dims;  // offsets of the dims of a row
  void* finite;   // with intervals: the copy of finite_rows(), for a block of keys
  AttentionForwardBuffers(const AttentionSpec& s, const AttentionForwardPlan& p,
                          BumpAllocator& from);
};

/// The same for products of pairs of bf16. Operands are packed as words of two, in panels [..,
/// pairs, width], or as parts with marks of their rows (triples.h).
struct AttentionForwardPairs {
  uint32_t *q, *k, *v, *p;  // p: probabilities of a panel
  int8_t *q_marks, *k_marks, *v_marks;
  float *o, *scores, *max, *sum, *factors;  // factors: of SoftmaxStep
  int64_t* dims;
  void* finite;  // as above
  AttentionForwardPairs(const AttentionSpec& s, const AttentionForwardPlan& p,
                        const AttentionUnits& units, BumpAllocator& from);
};

/// The plan of the backward pass. If `fused`, one task for each batch element and key-value head
/// does all five products. Else one task for each block of keys does four, and then one task for
/// each block of queries does three. The bits are the same.
struct AttentionBackwardPlan {
  int64_t group, heads, key_blocks, query_blocks;  // heads: batch elements times key-value heads
  bool fused;
  int64_t key_run;  // blocks of keys that are packed at a time
  int threads;
  // Workspace for AttentionBackwardArgs::delta and ::spans, and of each thread.
  int64_t delta_bytes, spans_bytes, thread_bytes;
};
AttentionBackwardPlan plan_attention_backward(const AttentionSpec& spec, int threads);

/// One thread's buffers in the backward pass. A matrix is packed once for each product that takes
/// it: as k, [keys, dims], and transposed, [dims, keys]; likewise v, q and d_out ("do").
struct AttentionBackwardBuffers {
  // key_run blocks of keys: k^T and v^T as right operands of S and dP, k as right operand of dq,
  // and the sums dk^T and dv^T.
  float *k_transposed, *v_transposed, *k_rows, *dk, *dv;
  // Elements of a block of keys: in k_transposed and v_transposed; in k_rows; in dk and dv.
  int64_t transposed_size, rows_size, sums_size;
  // A block of queries: q and d_out as left operands of S and dP, q^T and d_out^T as left operands
  // of dk^T and dv^T.
  float *q_rows, *do_rows, *q_transposed, *do_transposed;
  // P and dS of a panel of keys; dS of a block of queries as left operand of dq; the sums of dq.
  float *p, *ds, *ds_rows, *dq;
  int64_t* dims;  // offsets of the dims of a row
  void* finite;   // with intervals: the copy of finite_rows(), a block of keys or queries
  AttentionBackwardBuffers(const AttentionSpec& s, const AttentionBackwardPlan& p,
                           BumpAllocator& from);
};

/// The same for products of pairs of bf16.
struct AttentionBackwardPairs {
  uint32_t *k_transposed, *v_transposed, *k_rows;
  float *dk, *dv;
  // Elements of a block of keys: in k_transposed and v_transposed; in k_rows; in dk and dv.
  int64_t transposed_size, rows_size, sums_size;
  uint32_t *q_rows, *do_rows, *q_transposed, *do_transposed;
  uint32_t *p, *ds;  // P and dS of kPanelCols keys, as pairs of queries; n_buffers() of each
  int64_t panel_size;  // words of one of these buffers
  uint32_t* ds_rows;  // dS, [queries, pairs of kKeyBlock keys]
  // Marks of a block of keys: in k_transposed_marks and v_transposed_marks; in k_rows_marks.
  int64_t n_transposed_marks, n_rows_marks;
  int8_t *k_transposed_marks, *v_transposed_marks, *k_rows_marks;
  int8_t *q_rows_marks, *do_rows_marks, *q_transposed_marks, *do_transposed_marks;
  float *scores, *dp, *lse, *dq;  // S and dP of a tile; lse times log2(e); the sums of dq
  int64_t* dims;
  void* finite;  // as above
  AttentionBackwardPairs(const AttentionSpec& s, const AttentionBackwardPlan& p,
                         const AttentionUnits& units, BumpAllocator& from);
};

}  // namespace stow::cpu
