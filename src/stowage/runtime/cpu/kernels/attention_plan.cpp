#include "stowage/runtime/cpu/kernels/attention_plan.h"

#include "stowage/base/error.h"

namespace stow::cpu {
namespace {

void check(const AttentionSpec& s) {
  STOW_CHECK(s.dtype == DType::kF32 || s.dtype == DType::kBF16 || s.dtype == DType::kF16,
             "attention of {}", dtype_name(s.dtype));
  STOW_CHECK(s.kv_heads > 0 && s.q_heads % s.kv_heads == 0, "{} query heads on {} key heads",
             s.q_heads, s.kv_heads);
}

// Room for the finite numbers of some rows.
void* take_rows(const AttentionSpec& s, int64_t rows, BumpAllocator& from) {
  return s.intervals ? from.take<char>(rows * s.head_dim * dtype_bytes(s.dtype)) : nullptr;
}

template <typename Buffers, typename Plan, typename... Units>
int64_t measured(const AttentionSpec& s, const Plan& p, const Units&... units) {
  BumpAllocator measure(nullptr);
  Buffers(s, p, units..., measure);
  return measure.used();
}

}  // namespace

AttentionForwardPlan plan_attention_forward(const AttentionSpec& s, int threads) {
  check(s);
  AttentionForwardPlan p;
  p.group = s.q_heads / s.kv_heads;
  p.columns = s.q_len * p.group;
  p.task_columns = std::min(kQueryColumns, round_up_to(p.columns, kPanelCols));
  const int64_t heads = s.batch * s.kv_heads;
  // A few tasks a thread, so that the short and the long ones of a causal mask even out.
  while (p.task_columns > 2 * kPanelCols &&
         heads * blocks_of(p.columns, p.task_columns) < 4 * int64_t{threads})
    p.task_columns = round_up_to(p.task_columns / 2, kPanelCols);
  p.tasks_per_head = p.columns ? blocks_of(p.columns, p.task_columns) : 0;
  p.chunks = 1, p.chunk_keys = s.kv_len;
  if (s.intervals && p.columns > 0 && p.columns <= kSplitColumns &&
      s.kv_len > kChunkBlocks * kKeyBlock) {
    const int64_t blocks = blocks_of(s.kv_len, kKeyBlock);
    p.chunk_keys = std::max(kChunkBlocks, blocks_of(blocks, kMostChunks)) * kKeyBlock;
    p.chunks = blocks_of(s.kv_len, p.chunk_keys);
  }
  p.n_tasks = heads * p.tasks_per_head * p.chunks;
  p.partial_floats = p.splits_keys() ? round_up_to(p.columns * (s.head_dim + 2), 16) : 0;
  p.partials_bytes = p.n_tasks * p.partial_floats * int64_t{sizeof(float)};
  p.threads = static_cast<int>(std::min<int64_t>(std::max(threads, 1), p.n_tasks));
  p.thread_bytes = measured<AttentionForwardBuffers>(s, p);
  for (const AttentionUnits& units : {kPairUnits, kTileUnits})
    if (attention_may_pair(s))
      p.thread_bytes = std::max(p.thread_bytes, measured<AttentionForwardPairs>(s, p, units));
  if (attention_may_triple(s))
    p.thread_bytes = std::max(p.thread_bytes, measured<AttentionForwardPairs>(s, p, kTripleUnits));
  return p;
}

AttentionForwardBuffers::AttentionForwardBuffers(const AttentionSpec& s,
                                                 const AttentionForwardPlan& p,
                                                 BumpAllocator& from) {
  static_assert(kFewColumns <= kPanelCols && kKeyBlock % kFewLanes == 0);
  const int64_t keys = std::min(kKeyBlock, s.kv_len);
  const int64_t dims_up = p.few() ? round_up_to(s.head_dim, kFewLanes) : s.head_dim;
  q = from.take<float>(p.task_columns * dims_up);
  o = from.take<float>(p.task_columns * dims_up);
  k = from.take<float>(round_up_to(keys, kPanelRows) * s.head_dim);
  v = from.take<float>(keys * round_up_to(s.head_dim, kPanelRows));
  scores = from.take<float>(kKeyBlock * kPanelCols);
  max = from.take<float>(p.task_columns);
  sum = from.take<float>(p.task_columns);
  dims = from.take<int64_t>(s.head_dim);
  rows = p.few() ? from.take<float>(keys * round_up_to(s.head_dim, kFewLanes)) : nullptr;
  finite = take_rows(s, keys, from);
}

AttentionForwardPairs::AttentionForwardPairs(const AttentionSpec& s, const AttentionForwardPlan& p,
                                             const AttentionUnits& units, BumpAllocator& from) {
  static_assert(kKeyBlock % kTileUnits.rows == 0 && kKeyBlock % (2 * kTileUnits.pairs) == 0);
  const int64_t keys = std::min(kKeyBlock, s.kv_len), dim_pairs = units.pairs_of(s.head_dim);
  const int64_t dim_rows = units.rows_of(s.head_dim);
  q = from.take<uint32_t>(p.task_columns * dim_pairs * units.parts);
  k = from.take<uint32_t>(units.rows_of(keys) * dim_pairs * units.parts);
  v = from.take<uint32_t>(units.pairs_of(keys) * dim_rows * units.parts);
  const int64_t n_buffers = units.n_buffers();
  this->p = from.take<uint32_t>(n_buffers * kKeyBlock / 2 * kPanelCols * units.parts);
  q_marks = from.take<int8_t>(units.marks_of(p.task_columns));
  k_marks = from.take<int8_t>(units.marks_of(units.rows_of(keys)));
  v_marks = from.take<int8_t>(units.marks_of(dim_rows));
  o = from.take<float>(p.task_columns * dim_rows);
  scores = from.take<float>(n_buffers * kKeyBlock * kPanelCols);
  max = from.take<float>(p.task_columns);
  sum = from.take<float>(p.task_columns);
  factors = from.take<float>(n_buffers * kPanelCols);
  dims = from.take<int64_t>(s.head_dim);
  finite = take_rows(s, keys, from);
}

AttentionBackwardPlan plan_attention_backward(const AttentionSpec& s, int threads) {
  check(s);
  AttentionBackwardPlan p;
  p.group = s.q_heads / s.kv_heads;
  p.heads = s.batch * s.kv_heads;
  p.key_blocks = blocks_of(s.kv_len, kKeyBlock);
  p.query_blocks = blocks_of(s.q_len, kQueryBlock);
  threads = std::max(threads, 1);
  // Five products of whole heads a thread, or seven of evenly shared blocks.
  p.fused = 5 * double(blocks_of(p.heads, threads)) <= 7 * double(p.heads) / threads;
  p.key_run = p.fused ? std::clamp<int64_t>(p.key_blocks, 1, kKeyRun) : 1;
  const int64_t most = p.fused ? p.heads
                               : p.heads * std::max(p.key_blocks, p.group * p.query_blocks);
  p.threads = static_cast<int>(std::min<int64_t>(threads, most));
  p.delta_bytes = align_up(s.batch * s.q_heads * s.q_len * int64_t{sizeof(float)}, 64);
  p.spans_bytes =
      s.intervals ? align_up(s.batch * p.query_blocks * int64_t{sizeof(KeyRange)}, 64) : 0;
  p.thread_bytes = measured<AttentionBackwardBuffers>(s, p);
  for (const AttentionUnits& units : {kPairUnits, kTileUnits})
    if (attention_may_pair(s))
      p.thread_bytes = std::max(p.thread_bytes, measured<AttentionBackwardPairs>(s, p, units));
  if (attention_may_triple(s))
    p.thread_bytes = std::max(p.thread_bytes, measured<AttentionBackwardPairs>(s, p, kTripleUnits));
  return p;
}

AttentionBackwardBuffers::AttentionBackwardBuffers(const AttentionSpec& s,
                                                   const AttentionBackwardPlan& p,
                                                   BumpAllocator& from) {
  const int64_t keys = std::min(kKeyBlock, s.kv_len), lanes = round_up_to(keys, kPanelCols);
  const int64_t rows = round_up_to(std::min(kQueryBlock, s.q_len), kPanelRows);
  const int64_t dim_rows = round_up_to(s.head_dim, kPanelRows);
  const int64_t dim_cols = round_up_to(s.head_dim, kPanelCols);
  transposed_size = sums_size = lanes * s.head_dim;
  rows_size = keys * dim_cols;
  k_transposed = from.take<float>(p.key_run * transposed_size);
  v_transposed = from.take<float>(p.key_run * transposed_size);
  k_rows = from.take<float>(p.key_run * rows_size);
  dk = from.take<float>(p.key_run * sums_size);
  dv = from.take<float>(p.key_run * sums_size);
  q_rows = from.take<float>(rows * s.head_dim);
  do_rows = from.take<float>(rows * s.head_dim);
  q_transposed = from.take<float>(rows * dim_rows);
  do_transposed = from.take<float>(rows * dim_rows);
  this->p = from.take<float>(rows * kPanelCols);
  ds = from.take<float>(rows * kPanelCols);
  ds_rows = from.take<float>(rows * keys);
  dq = from.take<float>((p.fused ? p.group * s.q_len : rows) * dim_cols);
  dims = from.take<int64_t>(s.head_dim);
  finite = take_rows(s, std::max(keys, rows), from);
}

AttentionBackwardPairs::AttentionBackwardPairs(const AttentionSpec& s,
                                               const AttentionBackwardPlan& p,
                                               const AttentionUnits& units, BumpAllocator& from) {
  static_assert(kPairUnits.rows % 2 == 0 && kQueryBlock % kPairUnits.rows == 0 &&
                kQueryBlock % kTileUnits.rows == 0 && kQueryBlock % (2 * kTileUnits.pairs) == 0);
  const int64_t keys = std::min(kKeyBlock, s.kv_len), lanes = round_up_to(keys, kPanelCols);
  const int64_t rows = units.rows_of(std::min(kQueryBlock, s.q_len));
  const int64_t dim_rows = units.rows_of(s.head_dim), dim_pairs = units.pairs_of(s.head_dim);
  const int64_t dim_cols = round_up_to(s.head_dim, kPanelCols);
  transposed_size = lanes * dim_pairs * units.parts;
  rows_size = units.pairs_of(keys) * dim_cols * units.parts;
  sums_size = lanes * dim_rows;
  k_transposed = from.take<uint32_t>(p.key_run * transposed_size);
  v_transposed = from.take<uint32_t>(p.key_run * transposed_size);
  k_rows = from.take<uint32_t>(p.key_run * rows_size);
  dk = from.take<float>(p.key_run * sums_size);
  dv = from.take<float>(p.key_run * sums_size);
  q_rows = from.take<uint32_t>(rows * dim_pairs * units.parts);
  do_rows = from.take<uint32_t>(rows * dim_pairs * units.parts);
  q_transposed = from.take<uint32_t>(rows / 2 * dim_rows * units.parts);
  do_transposed = from.take<uint32_t>(rows / 2 * dim_rows * units.parts);
  const int64_t n_buffers = units.n_buffers();
  panel_size = rows / 2 * kPanelCols * units.parts;
  this->p = from.take<uint32_t>(n_buffers * panel_size);
  ds = from.take<uint32_t>(n_buffers * panel_size);
  ds_rows = from.take<uint32_t>(rows * (kKeyBlock / 2) * units.parts);
  n_transposed_marks = units.marks_of(lanes), n_rows_marks = units.marks_of(dim_cols);
  k_transposed_marks = from.take<int8_t>(p.key_run * n_transposed_marks);
  v_transposed_marks = from.take<int8_t>(p.key_run * n_transposed_marks);
  k_rows_marks = from.take<int8_t>(p.key_run * n_rows_marks);
  q_rows_marks = from.take<int8_t>(units.marks_of(rows));
  do_rows_marks = from.take<int8_t>(units.marks_of(rows));
  q_transposed_marks = from.take<int8_t>(units.marks_of(dim_rows));
  do_transposed_marks = from.take<int8_t>(units.marks_of(dim_rows));
  scores = from.take<float>(n_buffers * units.rows * kPanelCols);
  dp = from.take<float>(n_buffers * units.rows * kPanelCols);
  lse = from.take<float>(rows);
  dq = from.take<float>((p.fused ? p.group * s.q_len : rows) * dim_cols);
  dims = from.take<int64_t>(s.head_dim);
  finite = take_rows(s, std::max(keys, rows), from);
}

}  // namespace stow::cpu
