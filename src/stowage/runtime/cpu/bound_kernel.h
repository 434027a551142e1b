// BoundKernel: a kernel of a schedule made ready for the CPU: strides, specs, compiled programs.
// Not its memory; addresses come with each run. One thread at a time runs it.
#pragma once

#include <memory>
#include <span>

#include "stowage/base/inside.h"
#include "stowage/ir/schedule.h"
#include "stowage/runtime/cpu/kernels/row_calls.h"
#include "stowage/runtime/target.h"

namespace stow::cpu {

/// Scratch in bytes that a kernel needs with so many threads.
int64_t kernel_scratch_bytes(const Kernel& kernel, int threads);
/// True if the scratch of a kernel of rows follows from its program, whatever lies over what.
bool scratch_follows_from_program(const Kernel& rows);

class BoundKernel final : public stow::BoundKernel {
 public:
  BoundKernel(const Kernel& kernel, int threads);
  ~BoundKernel() override;
  /// Addresses of the operands' first elements; scratch of kernel_scratch_bytes, 64-byte aligned.
  void run(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
           void* scratch) const override {
    if (calls_)  // in line: a loop over scalars does little else
      calls_->run(inputs.data(), outputs.data(), static_cast<std::byte*>(scratch));
    else
      impl_->run(inputs, outputs, scratch);
  }

  /// The calls that every run makes, whatever the addresses; null if there is more to a run.
  RowCalls* only_calls() const { return calls_; }

  class Impl {
   public:
    virtual ~Impl() = default;
    virtual void run(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
                     void* scratch) = 0;
    /// Returns the calls that run() makes if they are the same in every run; else null.
    virtual RowCalls* only_calls() const { return nullptr; }
  };

 private:
  std::unique_ptr<Impl> impl_;
  RowCalls* calls_ = nullptr;  // only_calls() of impl_
};

}  // namespace stow::cpu
