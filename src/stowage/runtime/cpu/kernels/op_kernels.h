// Kernels of the ops that are neither row programs nor products, over strided views.
// Not elementwise maps (row programs), not dot_general or attention.
#pragma once

#include <span>

#include "stowage/base/inside.h"
#include "stowage/ir/params.h"
#include "stowage/runtime/tensor_view.h"

namespace stow::cpu {

/// Returns the bytes of scratch that run_op() needs for these views and threads. They depend on the
/// params, dtypes, dims, strides and `threads` alone; the data of the views may be null.
int64_t op_scratch_bytes(OpKind op, const Params& params, std::span<const TensorView> inputs,
                         std::span<const TensorView> outputs, int threads);

/// Runs the op with at most `threads` threads: a leaf (OpClass::kLeaf: constant or iota), a view
/// (as a copy), an identity (as a copy), pad, concatenate, a dynamic slice, gather, scatter, a
/// reduction, an arg-reduction, a cumulative op, sort, top_k, a windowed reduction or a
/// convolution. Views may have any strides (0 only in inputs); data is aligned to its element,
/// `scratch` to 64 bytes. The result's bits depend on shapes, dtypes and values, not on threads,
/// strides or scratch. Allocates no heap memory.
///
/// Outputs and inputs do not overlap. An output may only be exactly the view of an input (the same
/// address and strides), in these cases:
///   identities, dynamic_update_slice and scatters: operand 0, of which the op leaves the elements
///   that it does not change;
///   concatenate: an operand that already lies at its place in the result, and is not moved;
///   cumulative ops: the operand, if there is only one.
///
/// Order of sums:
///   Reductions sum in the order of ir/row_program.h. If the operand's last axis is reduced, the
///   kept axes are rows and the reduced axes columns, both row-major (kReduceRow); otherwise the
///   reduced axes are the rows of a column reduction.
///   Cumulative ops go along the axis in order (cumlogsumexp of f32 in f64), window sums through
///   the window in row-major order.
///   Convolutions sum as gemm.h says with k = (tap, channel), over the taps that read elements or
///   padding, not the holes that lhs_dilation makes.
///   Scatters apply the updates of an element in row-major order of the index vectors.
/// f16 and bf16 accumulate in f32, and each element written is rounded once.
/// Sums of bool are "or", products "and". Other semantics: runtime/reference/reference.h.
void run_op(OpKind op, const Params& params, std::span<const TensorView> inputs,
            std::span<const TensorView> outputs, void* scratch, int threads);

/// dst = src, element by element: equal dims and dtypes (or dtypes of equal width).
void copy(const TensorView& src, const TensorView& dst, int threads);

}  // namespace stow::cpu
