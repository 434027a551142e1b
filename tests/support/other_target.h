// OtherTarget: the CPU's kernels under different rules, to find code that relies on the CPU's.
// Not a device description; its rates are those of the CPU.
#pragma once

#include <atomic>
#include <thread>

#include "stowage/base/inside.h"
#include "stowage/runtime/device.h"
#include "stowage/runtime/target.h"

namespace stow::testing {

/// Buffers are aligned to 256 bytes; every kernel except a move has scratch; nothing is fused; the
/// host cannot address device memory; kernels and moves run on streams as late as possible
/// (kAtWait). Scratch is filled with NaNs before a kernel runs. A kernel throws std::logic_error if
/// its scratch is misaligned or if it writes beyond its scratch.
class OtherTarget final : public Target {
 public:
  /// `threads`: threads of a kernel, at least 1.
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

  /// The number of kernels that have run.
  int64_t n_kernels() const { return n_kernels_; }
  /// The number of kernels that ran on another thread than the one that bound them.
  int64_t n_on_other_threads() const { return n_on_other_threads_; }
  /// Kernels throw std::runtime_error("lost") from now on.
  void lose_kernels() { loses_kernels_ = true; }

 private:
  class Guarded;
  TargetPtr cpu_;
  mutable std::atomic<int64_t> n_kernels_ = 0, n_on_other_threads_ = 0;
  std::atomic<bool> loses_kernels_ = false;
};

/// Returns a device of `target`, whose memory kinds are separate heaps.
DevicePtr other_device(const Device::Capacities& capacities, TargetPtr target);

}  // namespace stow::testing
