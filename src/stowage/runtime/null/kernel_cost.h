// The work of a kernel, and the seconds it takes on a described device: a roofline.
// Not a measurement; calibration measures the figures that it stands on.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/ir/schedule.h"
#include "stowage/runtime/null/device_description.h"

namespace stow {

/// One run of a kernel.
struct KernelCost {
  double product_flops = 0;  ///< Of products, convolutions and attention.
  DType product_dtype = DType::kF32;
  bool attention = false;   ///< Whether they are attention's.
  double vector_ops = 0;    ///< Elements that an add, a compare, a move between registers takes.
  double special_ops = 0;   ///< Elements that an exp, a root, a division takes.
  double bytes = 0;         ///< Read and written, each operand and result once.
  MemoryKind from = MemoryKind::kDevice, to = MemoryKind::kDevice;  ///< Of a move.

  /// Where it runs: a move between two memories on the stream of its direction.
  StreamKind stream() const { return stream_of(from, to); }
  bool within_host() const { return from == to && from != MemoryKind::kDevice; }
};

/// What a kernel of this schedule does. Row programs are counted step by step, other kernels by the
/// cost of their op; where an op that changes a part of its operand writes elsewhere, the copy of
/// the rest counts too.
KernelCost kernel_cost(const Kernel& kernel, const Schedule& schedule);

/// Seconds of it: the launch, and the longer of computing and of reading and writing; of a move, the
/// copy.
double kernel_seconds(const KernelCost& work, const DeviceDescription& description);

}  // namespace stow
