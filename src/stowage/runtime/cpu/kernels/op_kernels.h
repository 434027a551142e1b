// Kernels of the ops that are neither row programs nor products, over strided views.
// Not elementwise maps (row programs), not dot_general or attention; no heap but the scratch given.
#pragma once

#include <span>

#include "stowage/base/inside.h"
#include "stowage/ir/params.h"
#include "stowage/runtime/tensor_view.h"

namespace stow::cpu {

/// Scratch in bytes that run_op needs for these views with so many threads; the data of the views
/// may be null. What it depends on is dtypes, dims, strides and `threads` alone.
int64_t op_scratch_bytes(OpKind op, const Params& params, std::span<const TensorView> inputs,
                         std::span<const TensorView> outputs, int threads);

/// Runs the op with at most `threads` threads: a leaf, a view (as a copy), an identity (as a copy), pad,
/// concatenate, a dynamic slice, gather, scatter, a reduction, an arg-reduction, a cumulative op, sort,
/// top_k, a windowed reduction, convolution. Views may have any strides (0 only in inputs);
/// data is aligned to its element, `scratch` to 64 bytes. The result's bits depend on shapes,
/// dtypes and values, not on threads, strides or scratch.
///
/// An output may be the very view (address and strides) of an input only so:
///   identities, dynamic_update_slice and scatters with operand 0: the rest is left alone;
///   concatenate: an operand that already lies where it belongs is not moved;
///   cumulative ops of one operand: any. Else outputs and inputs do not overlap.
///
/// Sums: reductions in the order of ir/row_program.h: when the operand's last axis is reduced, the
/// kept axes are rows and the reduced axes columns, both row-major (kReduceRow), otherwise the
/// reduced axes are the rows of a column reduction. Cumulative ops go along the axis in order
/// (cumlogsumexp of f32 in f64), window sums through the window in row-major order, convolutions as
/// gemm.h says with k = (place in the kernel, channel), of the places that fall on elements or
/// padding, not into holes that lhs_dilation makes.
/// Scatters bring to each element its updates in row-major order of the index vectors. f16 and
/// bf16 accumulate in f32 in all of them and are rounded once an element written.
/// Sums of bool are "or", products "and". Other semantics: reference/reference.h.
void run_op(OpKind op, const Params& params, std::span<const TensorView> inputs,
            std::span<const TensorView> outputs, void* scratch, int threads);

/// dst = src, element by element: equal dims and dtypes (or dtypes of equal width).
void copy(const TensorView& src, const TensorView& dst, int threads);

}  // namespace stow::cpu
