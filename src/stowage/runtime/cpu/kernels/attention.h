// Scaled dot-product attention, forward and backward, without the matrix of scores in memory.
// Not an operator and not a mask language: causal or not, grouped heads, no dropout, no bias.
//
//   out = softmax(scale * q k^T) v        per batch element and query head
//
// Sums, scores and softmax are f32 whatever the storage. Bits depend on the spec's extents, dtype,
// scale, causality and offset alone: not on strides, threads or batch neighbours. Keys are taken in
// blocks of 192 from the first; exp is within 2 ulp and gives 0 for results below 2^-126.
//
// In f32 and f16 AVX2 and AVX-512 agree. Where the machine multiplies tiles of bf16 (AMX), f32 has
// other bits, under a positive scale, with head_dim of 32 to 256, at least 256 keys and, for each
// key-value head, at least 256 queries: numbers are split into three bf16 and multiplied as gemm.h
// says, a block of keys or queries at a time; rows of the inputs with numbers that parts would lose
// are treated as there, a row of a block with what the mask hides. P and dS are not: of their
// products what is below some 2^-100 keeps fewer bits, and a dS that is infinite, or nearly, gives
// NaN; so do scores that are infinite before they are scaled.
//
// bf16 under a positive scale is multiplied in pairs where the machine does that
// (attention_pairs.h): there P and dS are rounded to bf16 for their products, as FlashAttention
// rounds them, and bits differ from other machines'. Not so the forward pass of a few queries,
// which waits for memory.
//
// Without intervals a NaN or infinity at a key (or, backward, a query) that the mask hides counts as little as any
// other value for most of those it is hidden from, but not for all: those that share a block with
// it get NaN from its product with a probability of zero. Which they are depends on the machine.
// With intervals no work is done for blocks and panels that no query of them sees, nor bits changed by
// that: [0, end of a causal mask) has the bits of the mask. Up to 64 query columns of a key-value head
// with more than 384 keys, as in decoding, are the exception: chunks of keys are summed by themselves
// and joined in order. A NaN or infinity at a key or query counts nowhere that it is not seen: sums that
// are not finite are made again with such numbers apart.
// Source: Dao 2023, FlashAttention-2, Algorithms 1 and 2.
#pragma once

#include <array>
#include <cstdint>

#include "stowage/core/dtype.h"

namespace stow::cpu {

struct AttentionSpec {
  DType dtype;  // dtype of all tensors: f32, bf16 or f16
  int64_t batch, q_heads, kv_heads;  // q_heads is a multiple of kv_heads; query head h reads
                                     // key-value head h / (q_heads / kv_heads)
  int64_t q_len, kv_len, head_dim;
  float scale;
  bool causal;
  // Strides in elements of [batch, position, head, dim].
  std::array<int64_t, 4> q, k, v, out, d_out, dq, dk, dv;
  int64_t offset = 0;  // causal: query i sees keys j <= i + offset
  bool intervals = false;  // queries see the keys of their interval alone, of those that they see without
  std::array<int64_t, 2> lo = {}, hi = {};  // strides in elements of [batch, position]
};

/// With AttentionSpec::intervals: query i of batch element b sees the keys j with lo <= j < hi, which
/// may be below zero or above kv_len.
struct KeyIntervals {
  const int32_t *lo = nullptr, *hi = nullptr;
};

/// Bytes of workspace, a multiple of 64 and a function of the spec and the number of threads alone;
/// linear in the sequence at most.
int64_t attention_forward_workspace_bytes(const AttentionSpec& spec, int threads);
int64_t attention_backward_workspace_bytes(const AttentionSpec& spec, int threads);

/// Shapes: q, out [batch, q_len, q_heads, head_dim]; k, v [batch, kv_len, kv_heads, head_dim];
/// kv_len is below 2^31. lse [batch, q_heads, q_len] f32 contiguous, the log of the sum of exp of each query's scores.
/// A query that sees no key gives zeros and lse = -inf. `workspace` is aligned to 64 bytes; nothing
/// else is allocated. Outputs may not overlap inputs.
void attention_forward(const AttentionSpec& spec, const void* q, const void* k, const void* v,
                       void* out, float* lse, void* workspace, int threads,
                       const KeyIntervals& intervals = {});

/// The gradients of sum(out * d_out); `out` and `lse` are the forward's. Shapes as above; dq like
/// q, dk and dv like k. Every element of dq, dk and dv is written.
void attention_backward(const AttentionSpec& spec, const void* q, const void* k, const void* v,
                        const void* out, const float* lse, const void* d_out, void* dq, void* dk,
                        void* dv, void* workspace, int threads,
                        const KeyIntervals& intervals = {});

}  // namespace stow::cpu
