// BoundKernel: a kernel of a schedule made ready for the CPU: strides, specs, row programs.
// Not its memory; each run takes addresses. One thread at a time runs it.
#pragma once

#include <memory>
#include <span>

#include "stowage/base/inside.h"
#include "stowage/ir/schedule.h"
#include "stowage/runtime/cpu/kernels/row_calls.h"
#include "stowage/runtime/target.h"

namespace stow::cpu {

/// Returns the scratch in bytes that a kernel needs with `threads` threads.
int64_t kernel_scratch_bytes(const Kernel& kernel, int threads);
/// True if the scratch of a row program depends only on the program, not on which results share
/// memory with which operands.
bool scratch_follows_from_program(const Kernel& rows);

class BoundKernel final : public stow::BoundKernel {
 public:
  BoundKernel(const Kernel& kernel, int threads);
  ~BoundKernel() override;
  /// See stow::BoundKernel::run(). `scratch`: kernel_scratch_bytes() bytes, 64-byte aligned.
  void run(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
           void* scratch) const override {
    if (calls_)  // in line: a loop over scalars does little else
      calls_->run(inputs.data(), outputs.data(), static_cast<std::byte*>(scratch));
    else
      impl_->run(inputs, outputs, scratch);
  }

  /// Returns the calls that make up every run, for any addresses; null if a run does more.
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
