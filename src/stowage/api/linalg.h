// Products: matmul, dot_general, einsum, attention.
// Not elementwise; see math.h.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "stowage/api/array.h"
#include "stowage/ir/params.h"

namespace stow {

// Operands are promoted to one dtype; the result has it too unless another is asked for. Sums of
// f16 and bf16 products are in f32 and rounded once.

/// NumPy's matrix product.
/// Shapes:  a [..., m, k], b [..., k, n], the leading axes broadcasting; returns [..., m, n]. A
///          vector is a row on the left, a column on the right, and its axis is dropped.
/// Errors:  TraceError if k differs, an operand is a scalar, or the leading axes do not broadcast.
Array matmul(const Operand& a, const Operand& b, std::optional<DType> out = {});
/// matmul of vectors and matrices; of more axes, the last of a with the last but one of b.
Array dot(const Operand& a, const Operand& b);
/// Every product of an element of a with one of b, both flattened.
Array outer(const Operand& a, const Operand& b);
/// XLA's general product; axes of the result are batch, free of a, free of b.
Array dot_general(const Operand& a, const Operand& b, const Dims& a_contract,
                  const Dims& b_contract, const Dims& a_batch = {}, const Dims& b_batch = {},
                  std::optional<DType> out = {});
/// Einstein summation: "bthd,bshd->bhts"; repeated letters take diagonals, "..." stands for leading
/// axes that broadcast, without "->" the letters that occur once come out in order.
/// Errors:  TraceError if the spec is malformed or the extents of a letter differ.
Array einsum(std::string_view spec, const std::vector<Array>& operands, STOW_AT);

struct AttentionOptions {
  std::optional<float> scale = {};  ///< 1 / sqrt(D) if not given.
  bool causal = false;
};
/// Scaled dot-product attention.
/// Shapes:  q [B,T,H,D]; k, v [B,S,G,D] with H a multiple of G; returns [B,T,H,D].
/// Types:   one float dtype; scores and sums in f32.
/// Memory:  the gradient needs q, k, v, the result and f32 [B,H,T].
/// Errors:  TraceError if the shapes do not fit.
/// Source:  Dao et al. 2022, Algorithm 1; jax.nn.dot_product_attention.
Array attention(const Operand& q, const Operand& k, const Operand& v,
                const AttentionOptions& options = {});

}  // namespace stow
