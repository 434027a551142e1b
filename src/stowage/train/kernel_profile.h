// KernelProfile: the time of a program's kernels by op and by source, with the work they did.
// Not a trace; when each ran is not kept.
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
  double flops = 0;  ///< Flops of products and attention; masked scores do not count. Else 0.
  double bytes = 0;  ///< Read and written, each element of an operand once.
  double least_seconds = 0;  ///< The calls of each kernel, were all as fast as its fastest.
  KernelTotals& operator+=(const KernelTotals& other);
};
/// The work of one call; `calls` and `seconds` are 0.
KernelTotals kernel_work(const Kernel& kernel);
/// "dot_general", "rows add", "attention_grad".
std::string kernel_name(const Kernel& kernel);

class KernelProfile final : public RunObserver {
 public:
  /// Profiles a program that runs on `threads` threads. One thread's compute is timed by its
  /// processor time, which a busy neighbour disturbs less: the time from the end of one kernel to
  /// the end of
  /// the next.
  explicit KernelProfile(int threads) : one_thread_(threads == 1) {}
  void ran(const RunEvent& event) override;

  KernelTotals total() const;
  double gemm_share() const;  ///< Share of products in the kernels' time.
  std::map<std::string, KernelTotals> by_op() const;
  std::map<std::string, KernelTotals> by_source() const;  ///< "layers/mlp/up (decoder.cpp:41)"
  /// By source, kind and sizes: what a person would look at to make one of them faster.
  std::map<std::string, KernelTotals> by_kernel() const;

 private:
  bool one_thread_;
  double processor_s_ = 0;  // when the last kernel ended
  std::mutex mutex_;
  std::map<const Kernel*, KernelTotals> work_;
};

}  // namespace stow
