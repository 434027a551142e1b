// Products: matmul, dot_general, einsum, attention.
// Not elementwise; see math.h.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "stowage/api/shaping.h"
#include "stowage/ir/params.h"

namespace stow {

// Operands are promoted to one dtype; the result has it too unless another is asked for: integers
// whose product is to be a float are converted first. Sums of f16 and bf16 products are in f32 and
// rounded once. Of bools a product is "and", a sum "or".

/// NumPy's matrix product.
/// Shapes:  a [..., m, k], b [..., k, n], the leading axes broadcasting; returns [..., m, n]. A
///          vector is a row on the left, a column on the right, and its axis is dropped.
/// Errors:  TraceError if k differs, an operand is a scalar, or the leading axes do not broadcast.
Array matmul(const Operand& a, const Operand& b, std::optional<DType> out = {});
/// matmul of vectors and matrices; of more axes, the last of a with the last but one of b.
Array dot(const Operand& a, const Operand& b);
/// Every product of an element of a with one of b, both flattened.
Array outer(const Operand& a, const Operand& b);
/// Sums of products over the last `n` axes of a and the first `n` of b.
Array tensordot(const Operand& a, const Operand& b, int n = 2);
/// The same over these axes.
Array tensordot(const Operand& a, const Operand& b, const Dims& a_axes, const Dims& b_axes);
/// The sum over the last axis of both, other axes as in an outer product.
Array inner(const Operand& a, const Operand& b);
/// The sum of products of both, flattened.
Array vdot(const Operand& a, const Operand& b);
/// Every element of a times b, block by block.
Array kron(const Operand& a, const Operand& b);
/// The sum of the k-th diagonal of two axes.
Array trace(const Operand& x, int64_t k = 0, int axis1 = 0, int axis2 = 1);
/// (sum |x|^ord)^(1/ord) over the axes; infinity gives the largest, -infinity the smallest, 0 the
/// number of elements that are not 0. Of all axes: as one vector (for a matrix: Frobenius).
Array norm(const Operand& x, const Axes& axes = {}, double ord = 2, bool keepdims = false);
/// XLA's general product; axes of the result are batch, free of a, free of b.
Array dot_general(const Operand& a, const Operand& b, const Dims& a_contract,
                  const Dims& b_contract, const Dims& a_batch = {}, const Dims& b_batch = {},
                  std::optional<DType> out = {});
/// Einstein summation: "bthd,bshd->bhts"; repeated letters take diagonals, "..." stands for leading
/// axes that broadcast, without "->" the letters that occur once come out in order.
/// Errors:  TraceError if the spec is malformed or the extents of a letter differ.
Array einsum(std::string_view spec, const std::vector<Array>& operands, STOW_AT);

struct AttentionOptions {
  std::optional<double> scale = {};  ///< 1 / sqrt(D) if not given.
  /// Query i sees keys 0 to i: aligned with the first key, as jax.nn.dot_product_attention does
  /// also where there are more keys than queries.
  bool causal = false;
  /// With `causal`: the last query sees all keys instead (decoding with a cache of keys). One that
  /// then sees none has 0 as its result.
  bool align_last = false;
  std::optional<Array> bias = {};  ///< Added to the scores; broadcasts to [B,H,T,S].
  /// Bool; where false a score counts for nothing. As bias. A query without a true one gets the
  /// mean of v, as in JAX.
  std::optional<Array> mask = {};
  /// I32, broadcasting to [B,T]: query t of row b sees the keys j with lo[b,t] <= j < hi[b,t] alone,
  /// and of those what `causal` leaves. One not given is 0, or S. A query that sees none has 0 as its
  /// result and as its gradient. This is padding on either side, packed examples, a sliding window
  /// or a cache of fixed size; the work is in proportion to what is seen, by blocks of keys and
  /// queries.
  std::optional<Array> lo = {}, hi = {};
};
/// Scaled dot-product attention (jax.nn.dot_product_attention).
/// Shapes:  q [B,T,H,D]; k, v [B,S,G,D] with H a multiple of G; returns [B,T,H,D].
/// Types:   one float dtype; scores and sums in f32.
/// Memory:  the gradient needs q, k, v, the result and f32 [B,H,T]; no scores are stored. With a
///          bias, a mask or f64 it is a composition that does store scores [B,H,T,S]; so are the
///          second derivative and those of higher order.
///          A NaN or an infinity in v of a key that is hidden by `causal` or a mask may reach queries
///          still, as 0 times it is NaN. One that `lo` and `hi` hide reaches no query and no gradient
///          of first order, as long as no scores are stored.
/// Errors:  TraceError if the shapes do not fit, the mask is no bool, or lo or hi no i32.
/// Source:  Dao et al. 2022, Algorithm 1; jax.nn.dot_product_attention.
Array attention(const Operand& q, const Operand& k, const Operand& v,
                const AttentionOptions& options = {});

}  // namespace stow
