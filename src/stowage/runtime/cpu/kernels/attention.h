// Scaled dot-product attention, forward and backward, without the matrix of scores in memory.
// Not an operator and not a mask language: causal or not, grouped heads, no dropout, no bias.
//
//   out = softmax(scale * q k^T) v        per batch element and query head
//
// Sums, scores and softmax are f32 whatever the storage. Bits depend on the spec's extents, dtype,
// scale, causality and offset alone: not on strides, threads or batch neighbours. Keys are taken in
// blocks of 192 from the first; exp is within 2 ulp and gives 0 for results below 2^-126.
//
// P are the probabilities and dS the gradients of the scores.
//
// f32 and f16: AVX2 and AVX-512 have the same bits. f32 has other bits if the machine multiplies
// tiles of bf16 (AMX), the scale is positive, head_dim is 32 to 256, and each key-value head has at
// least 256 keys and 256 queries (query heads times positions). Numbers are then split into three
// bf16 and multiplied as gemm.h says, a block of keys or queries at a time. Rows of the inputs
// whose parts would be lost, or would overflow, are treated as gemm.h says; a row includes the
// elements that the mask hides. Rows of P and dS are not treated so: their products below some
// 2^-100 keep fewer bits, and an infinite or nearly infinite dS gives NaN. So do scores that are
// infinite before they are scaled.
//
// bf16 with a positive scale is multiplied in pairs if the machine can (attention_pairs.h). P and
// dS are then rounded to bf16 for their products, as FlashAttention does, and bits differ from
// those of other machines. The forward pass of a few queries does not use pairs, since it waits for
// memory.
//
// NaN and infinity without intervals: at a key (or, backward, at a query) that the mask hides from
// a query, such a number has no effect on most of these queries. Some that share a block with it
// get NaN, from its product with a probability of zero; which ones depends on the machine.
//
// With intervals, blocks and panels of keys that no query sees are skipped. That changes no bits:
// the intervals [0, end of a causal mask) give the bits of the mask. The exception is decoding, up
// to 64 query columns of a key-value head with more than 384 keys: chunks of keys are summed
// separately and joined in order. A NaN or infinity affects only pairs of a query and a key that it
// sees: if sums are not finite, they are computed again with such numbers handled separately.
// Source: Dao 2023, FlashAttention-2, Algorithms 1 and 2.
#pragma once

#include <array>
#include <cstdint>

#include "stowage/core/dtype.h"

namespace stow::cpu {

/// Shapes, strides and mask of an attention.
struct AttentionSpec {
  DType dtype;  // dtype of all tensors but lse: f32, bf16 or f16
  int64_t batch, q_heads, kv_heads;  // q_heads is a multiple of kv_heads; query head h reads
                                     // key-value head h / (q_heads / kv_heads)
  int64_t q_len, kv_len, head_dim;
  float scale;
  bool causal;
  // Strides in elements of [batch, position, head, dim].
  std::array<int64_t, 4> q, k, v, out, d_out, dq, dk, dv;
  int64_t offset = 0;  // causal: query i sees keys j <= i + offset
  bool intervals = false;  // a query sees only keys of its interval, and only those `causal` allows
  std::array<int64_t, 2> lo = {}, hi = {};  // strides of KeyIntervals, of [batch, position]
};

/// Intervals of keys, [batch, q_len] each, if AttentionSpec::intervals: a query sees only keys j
/// with lo <= j < hi. Both may be below zero or above kv_len.
struct KeyIntervals {
  const int32_t *lo = nullptr, *hi = nullptr;
};

/// Return the bytes of workspace, a multiple of 64. They depend on the spec and the number of
/// threads alone and grow at most linearly with the sequence.
int64_t attention_forward_workspace_bytes(const AttentionSpec& spec, int threads);
int64_t attention_backward_workspace_bytes(const AttentionSpec& spec, int threads);

/// Computes out and lse.
/// Shapes: q, out [batch, q_len, q_heads, head_dim]; k, v [batch, kv_len, kv_heads, head_dim];
/// kv_len is below 2^31. lse [batch, q_heads, q_len], f32, contiguous: the log of the sum of exp of
/// each query's scaled scores. A query that sees no key gives zeros and lse = -inf. `workspace` is
/// aligned to 64 bytes; nothing else is allocated. Outputs may not overlap inputs.
void attention_forward(const AttentionSpec& spec, const void* q, const void* k, const void* v,
                       void* out, float* lse, void* workspace, int threads,
                       const KeyIntervals& intervals = {});

/// Computes the gradients dq, dk and dv of sum(out * d_out). `out` and `lse` are results of
/// attention_forward(). Shapes as there; d_out and dq have that of q, dk and dv that of k. Writes
/// every element of dq, dk and dv.
void attention_backward(const AttentionSpec& spec, const void* q, const void* k, const void* v,
                        const void* out, const float* lse, const void* d_out, void* dq, void* dk,
                        void* dv, void* workspace, int threads,
                        const KeyIntervals& intervals = {});

}  // namespace stow::cpu
