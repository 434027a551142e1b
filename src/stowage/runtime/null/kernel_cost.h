// The work of a kernel, and the seconds it takes on a described device: a roofline.
// Not a measurement; calibration measures the figures that it stands on.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/ir/schedule.h"
#include "stowage/runtime/null/device_description.h"

namespace stow {

/// One run of a kernel.
struct KernelCost {
  double product_flops = 0;  ///< Flops of products, convolutions and attention.
  DType product_dtype = DType::kF32;
  bool attention = false;   ///< True if they are attention's.
  double vector_ops = 0;    ///< Elements that an add, a compare, a move between registers takes.
  double special_ops = 0;   ///< Elements that an exp, a root, a division takes.
  double bytes = 0;  ///< Read and written, each operand and result once; of a collective sent.
  MemoryKind from = MemoryKind::kDevice, to = MemoryKind::kDevice;  ///< Memory kinds of a move.
  /// Parameters, in the kernel, of a collective of several positions; null for all other kernels.
  const CollectiveParams* collective = nullptr;
  OpKind collective_op = OpKind::kAllGather;
  double whole_bytes = 0;  ///< Bytes of a collective: the larger of its operand and its result.

  /// Its stream: for a move between two memories that of its direction, for a collective its own.
  StreamKind stream() const { return collective ? StreamKind::kCollective : stream_of(from, to); }
  /// True for a move within pinned host memory, or within the disk.
  bool within_host() const { return from == to && from != MemoryKind::kDevice; }
};

/// The work of a kernel of this schedule. Row programs are counted step by step, other kernels by the
/// cost of their op; where an op that changes a part of its operand writes elsewhere, the copy of
/// the rest counts too. A collective sends what a ring sends: S (n - 1) / n of a whole of S bytes, an
/// all_reduce twice that, a permute S.
KernelCost kernel_cost(const Kernel& kernel, const Schedule& schedule);

/// Seconds of it: the launch, and the longer of computing and of reading and writing; of a move, the
/// copy; of a collective, collective_seconds(), or where the description joins no such mesh the time to
/// read and write its whole in memory.
double kernel_seconds(const KernelCost& work, const DeviceDescription& description);

}  // namespace stow
