// Products: matmul, dot_general, einsum, attention.
// Not elementwise; see math.h.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "stowage/api/shaping.h"
#include "stowage/ir/params.h"

namespace stow {

// Operands are promoted to one dtype, which the result has too unless `out` asks for another.
// Integers are converted first if the result is to be a float. Sums of f16 and bf16 products are in
// f32 and rounded once. For bools a product is "and" and a sum is "or".

/// NumPy's matrix product.
/// Shapes:  a [..., m, k], b [..., k, n], the leading axes broadcasting; returns [..., m, n]. A
///          vector is a row on the left, a column on the right, and its axis is dropped.
/// Errors:  TraceError if k differs, an operand is a scalar, or the leading axes do not broadcast.
Array matmul(const Operand& a, const Operand& b, std::optional<DType> out = {});
/// NumPy's dot: matmul for vectors and matrices. For more axes, sums products over the last axis of
/// a and the last but one of b.
Array dot(const Operand& a, const Operand& b);
/// The outer product of a and b, both flattened: [n] and [m] give [n, m].
Array outer(const Operand& a, const Operand& b);
/// Sums products over the last `n` axes of a and the first `n` of b.
Array tensordot(const Operand& a, const Operand& b, int n = 2);
/// Sums products over axis a_axes[i] of a paired with axis b_axes[i] of b.
Array tensordot(const Operand& a, const Operand& b, const Dims& a_axes, const Dims& b_axes);
/// Sums products over the last axis of both: [..a, k] and [..b, k] give [..a, ..b].
Array inner(const Operand& a, const Operand& b);
/// The scalar product of a and b, both flattened.
Array vdot(const Operand& a, const Operand& b);
/// The Kronecker product.
Array kron(const Operand& a, const Operand& b);
/// The sum of the k-th diagonal of two axes.
Array trace(const Operand& x, int64_t k = 0, int axis1 = 0, int axis2 = 1);
/// The vector norm (sum |x|^ord)^(1/ord) over the axes. `ord` infinity gives the largest |x|,
/// -infinity the smallest, and 0 the number of elements that are not 0. Without axes x is taken as
/// one vector, so that a matrix has its Frobenius norm.
Array norm(const Operand& x, const Axes& axes = {}, double ord = 2, bool keepdims = false);
/// XLA's general product: sums over the contracting axes and pairs the batch axes. Axes of the
/// result: batch, then the remaining axes of a, then those of b. `out`: dtype of the result.
Array dot_general(const Operand& a, const Operand& b, const Dims& a_contract,
                  const Dims& b_contract, const Dims& a_batch = {}, const Dims& b_batch = {},
                  std::optional<DType> out = {});
/// Einstein summation: "bthd,bshd->bhts". A letter that repeats within an operand takes its
/// diagonal. "..." stands for leading axes that broadcast. Without "->" the result has the letters
/// that occur once, in alphabetical order.
/// Errors:  TraceError if the spec is malformed or the extents of a letter differ.
Array einsum(std::string_view spec, const std::vector<Array>& operands, STOW_AT);

struct AttentionOptions {
  std::optional<double> scale = {};  ///< 1 / sqrt(D) if not given.
  /// Query i sees keys 0 to i. Queries and keys are aligned at the first key even if there are more
  /// keys than queries, as in jax.nn.dot_product_attention.
  bool causal = false;
  /// With `causal`, aligns at the last key instead: the last query sees all keys (decoding with a
  /// cache of keys). A query that sees no key has the result 0.
  bool align_last = false;
  std::optional<Array> bias = {};  ///< Added to the scores; broadcasts to [B,H,T,S].
  /// Bool, broadcasting to [B,H,T,S]: a score counts only where it is true. A query whose mask is
  /// all false gets the mean of v, as in JAX.
  std::optional<Array> mask = {};
  /// I32, broadcasting to [B,T]: query t of row b sees only keys j with lo[b,t] <= j < hi[b,t] that
  /// `causal` also allows. Without lo it is 0, without hi S. A query that sees no key has the
  /// result 0 and a zero gradient. Intervals express padding on either side, packed examples, a
  /// sliding window or a cache of fixed size. The work is proportional to the blocks of (query,
  /// key) pairs that are seen.
  std::optional<Array> lo = {}, hi = {};
};
/// Scaled dot-product attention (jax.nn.dot_product_attention).
/// Shapes:  q [B,T,H,D]; k, v [B,S,G,D] with H a multiple of G; returns [B,T,H,D].
/// Types:   one float dtype; scores and sums in f32.
/// Memory:  the gradient keeps q, k, v, the result and f32 [B,H,T]; no scores are stored. With a
///          bias, a mask or f64, attention is a composition of ops that stores scores [B,H,T,S]; so
///          are second and higher derivatives.
/// NaN: a NaN or infinity in v of a key that `causal` or a mask hides may still reach queries,
///          because 0 times it is NaN. One that `lo` and `hi` hide reaches no query and no
///          first-order gradient, as long as no scores are stored.
/// Errors:  TraceError if the shapes do not fit, the mask is no bool, or lo or hi no i32.
/// Source:  Dao et al. 2022, Algorithm 1; jax.nn.dot_product_attention.
Array attention(const Operand& q, const Operand& k, const Operand& v,
                const AttentionOptions& options = {});

}  // namespace stow
