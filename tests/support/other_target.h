// A second target: the CPU's kernels under other rules, so that a test sees what builds on the CPU's own.
// Not a device description, and nothing to measure.
#pragma once

#include <atomic>
#include <thread>

#include "stowage/base/inside.h"
#include "stowage/runtime/device.h"
#include "stowage/runtime/target.h"

namespace stow::testing {

/// Buffers lie on 256 bytes, every kernel but a move has scratch, nothing is fused, the host has no address
/// of device memory, and kernels and moves go to streams that do them as late as can be, in an order among
/// streams that only waiting settles. A kernel finds NaNs in its scratch, and throws std::logic_error where
/// it gets scratch that is misaligned or writes beyond its own.
class OtherTarget final : public Target {
 public:
  /// Kernels are split among so many threads, at least 1.
  explicit OtherTarget(int threads);
  std::string_view name() const override { return "other"; }
  int64_t alignment_bytes() const override { return 256; }
  bool fuses() const override { return false; }
  bool has_host_memory() const override { return false; }
  bool submits_kernels() const override { return true; }
  StreamTiming stream_timing() const override;
  int64_t scratch_bytes(const ir::Kernel& kernel) const override;
  std::unique_ptr<BoundKernel> bind(const ir::Kernel& kernel) const override;
  void copy(const TensorView& from, const TensorView& to, int threads) const override;
  std::string instruction_set() const override { return cpu_->instruction_set(); }
  double product_rate(DType dtype) const override { return cpu_->product_rate(dtype); }
  double triad_rate() const override { return cpu_->triad_rate(); }

  /// Kernels that have run so far, and those that ran on another thread than the one that bound them.
  int64_t n_kernels() const { return n_kernels_; }
  int64_t n_beside() const { return n_beside_; }
  /// Kernels throw std::runtime_error("lost") from now on.
  void lose_kernels() { loses_kernels_ = true; }

 private:
  class Guarded;
  TargetPtr cpu_;
  mutable std::atomic<int64_t> n_kernels_ = 0, n_beside_ = 0;
  std::atomic<bool> loses_kernels_ = false;
};

/// A device of that target, whose kinds of memory are heaps apart.
DevicePtr other_device(const Device::Capacities& capacities, TargetPtr target);

}  // namespace stow::testing
