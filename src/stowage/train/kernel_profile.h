// KernelProfile: the time and work of a program's kernels, by op and by source.
// Not a trace; it does not keep the times of single runs.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "stowage/base/inside.h"
#include "stowage/runtime/run_observer.h"

namespace stow {

/// The work and the time of some kernels.
struct KernelTotals {
  int64_t calls = 0;
  double seconds = 0;
  double flops = 0;  ///< FLOPs of products and of attention without masked scores; else 0.
  double bytes = 0;  ///< Bytes read and written, each element of an operand once.
  double least_seconds = 0;  ///< `seconds` if every call were as fast as its kernel's fastest call.
  KernelTotals& operator+=(const KernelTotals& other);
};
/// Returns the work of one call, with `calls` and `seconds` 0.
KernelTotals kernel_work(const Kernel& kernel);
/// Returns the name of a kernel: "dot_general", "rows add", "attention_grad".
std::string kernel_name(const Kernel& kernel);

class KernelProfile final : public RunObserver {
 public:
  /// Profiles a program that runs on `threads` threads. A single thread is timed by its processor
  /// time from the end of one kernel to the end of the next, which other processes disturb less.
  explicit KernelProfile(int threads) : one_thread_(threads == 1) {}
  void ran(const RunEvent& event) override;

  KernelTotals total() const;
  double gemm_share() const;  ///< Share of products in the time of all kernels.
  std::map<std::string, KernelTotals> by_op() const;
  std::map<std::string, KernelTotals> by_source() const;  ///< "layers/mlp/up (decoder.cpp:41)"
  /// By source, kind and sizes: one entry for each kernel that a person might make faster.
  std::map<std::string, KernelTotals> by_kernel() const;

 private:
  bool one_thread_;
  double processor_s_ = 0;  // when the last kernel ended
  std::mutex mutex_;
  std::map<const Kernel*, KernelTotals> work_;
};

}  // namespace stow
