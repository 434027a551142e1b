// The work of a kernel, and the seconds it takes on a described device: a roofline.
// Not a measurement; calibration measures the rates of a description.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/ir/schedule.h"
#include "stowage/runtime/null/device_description.h"

namespace stow {

/// The work of one run of a kernel.
struct KernelCost {
  double product_flops = 0;  ///< FLOPs of products, convolutions and attention.
  DType product_dtype = DType::kF32;
  bool attention = false;   ///< True if product_flops are those of attention.
  double vector_ops = 0;    ///< Elementwise operations: an add, a compare, a register move.
  double special_ops = 0;   ///< Elementwise operations: an exp, a root, a division.
  double bytes = 0;  ///< Bytes read and written, each operand once; of a collective, bytes sent.
  MemoryKind from = MemoryKind::kDevice, to = MemoryKind::kDevice;  ///< Memory kinds of a move.
  /// Parameters, in the kernel, of a collective of several positions; null for all other kernels.
  const CollectiveParams* collective = nullptr;
  OpKind collective_op = OpKind::kAllGather;
  double whole_bytes = 0;  ///< Bytes of a collective: the larger of its operand and its result.

  /// Returns the stream that runs the kernel: of a move, that of its direction.
  StreamKind stream() const { return collective ? StreamKind::kCollective : stream_of(from, to); }
  /// True for a move within pinned host memory, or within the disk.
  bool within_host() const { return from == to && from != MemoryKind::kDevice; }
};

/// Returns the work of a kernel of this schedule. Row programs are counted step by step, other
/// kernels by the cost of their op. If an op that updates a part of its operand does not write in
/// place, the copy of the remaining elements counts too. A collective of S `whole_bytes` over n
/// positions sends as many bytes as a ring: S (n - 1) / n, an all_reduce twice that, a permute S.
KernelCost kernel_cost(const Kernel& kernel, const Schedule& schedule);

/// Returns the seconds of one run: the launch, plus the longer of compute time and memory time. For
/// a move: the time of the copy. For a collective: collective_seconds(), or, if the description's
/// network does not join the mesh, the time to read and write `whole_bytes` in memory.
double kernel_seconds(const KernelCost& work, const DeviceDescription& description);

/// Fails if the description's network does not join the mesh of a collective of the schedule. The
/// message is that of check_network() of collective_time.h.
Result<void> check_network(const DeviceDescription& description, const Schedule& schedule);

}  // namespace stow
