// The functions that run_op() calls, one for each op or family of ops; internal to the op kernels.
// Not their contract; that is in op_kernels.h.
#pragma once

#include <span>

#include "stowage/base/inside.h"
#include "stowage/ir/params.h"
#include "stowage/runtime/cpu/kernels/nest.h"
#include "stowage/runtime/tensor_view.h"

namespace stow::cpu::kernels {

using Views = std::span<const TensorView>;

// copy.cpp
/// dst[...] = src[...] for elements of `width` bytes; operand 0 of the nest is dst, 1 is src.
void copy_nest(std::byte* dst, const std::byte* src, Nest<2> nest, int64_t width, int threads);
/// As copy_nest() on the caller's thread, for nests with few axes that are copied many times.
void copy_small(std::byte* dst, const std::byte* src, const Nest<2>& nest, int64_t width);
/// Sets every element of dst to the one at `element`.
void fill(const TensorView& dst, const std::byte* element, int threads);
/// Copies row-major element i of src to row-major element i of dst; the shapes may differ.
void copy_reshaped(const TensorView& src, const TensorView& dst, int threads);
/// Returns the part of `view` that begins at indices `starts` and has extents `sizes`.
TensorView window(const TensorView& view, const Dims& starts, const Dims& sizes);

// leaf.cpp
void constant(const ConstantParams& params, Views out, int threads);
int64_t iota_scratch_bytes(const IotaParams& params, Views out);
void iota(const IotaParams& params, Views out, void* scratch, int threads);

// random.cpp
void random_bits(Views in, Views out, int threads);

// collective.cpp
/// Throws TraceError for a group of several positions, for which the kernels have no communicator.
void collective(OpKind op, const CollectiveParams& params, Views in, Views out, int threads);

// movement.cpp
void broadcast(const BroadcastParams& params, Views in, Views out, int threads);
void transpose(const AxesParams& params, Views in, Views out, int threads);
void slice(const SliceParams& params, Views in, Views out, int threads);
void reverse(const AxesParams& params, Views in, Views out, int threads);
void pad(const PadParams& params, Views in, Views out, int threads);
void concatenate(const AxisParams& params, Views in, Views out, int threads);
void dynamic_slice(Views in, Views out, int threads);
void dynamic_update_slice(Views in, Views out, int threads);

// gather.cpp
void gather(const GatherParams& params, Views in, Views out, int threads);

// scatter.cpp
int64_t scatter_scratch_bytes(OpKind op, const GatherParams& params, Views in, Views out);
void scatter(OpKind op, const GatherParams& params, Views in, Views out, void* scratch,
             int threads);

// reduce.cpp
int64_t reduce_scratch_bytes(OpKind op, const AxesParams& params, Views in, Views out, int threads);
void reduce(OpKind op, const AxesParams& params, Views in, Views out, void* scratch, int threads);

// lanes.cpp
void arg_reduce(const ArgReduceParams& params, bool max, Views in, Views out, int threads);

// cumulative.cpp
void cumulative(OpKind op, const AxisParams& params, Views in, Views out, int threads);
void linear_scan(const AxisParams& params, Views in, Views out, int threads);

// sort.cpp
/// Returns the bytes of scratch of sort() and top_k().
int64_t sort_scratch_bytes(int64_t axis, Views in, int threads);
void sort(const AxisParams& params, Views in, Views out, void* scratch, int threads);
void top_k(const TopKParams& params, Views in, Views out, void* scratch, int threads);

// window.cpp
int64_t window_scratch_bytes(const WindowParams& params, Views in, Views out, int threads);
void reduce_window(OpKind op, const WindowParams& params, Views in, Views out, void* scratch,
                   int threads);
void window_arg(OpKind op, const WindowParams& params, Views in, Views out, void* scratch,
                int threads);

// convolution.cpp
int64_t convolution_scratch_bytes(const ConvParams& params, Views in, Views out, int threads);
void convolution(const ConvParams& params, Views in, Views out, void* scratch, int threads);

}  // namespace stow::cpu::kernels
