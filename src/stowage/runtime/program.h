// Program: a schedule bound to offsets, ready to run on CPU devices.
// Not a compiler; session/ makes one from a graph.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "stowage/plan/memory_plan.h"
#include "stowage/runtime/cpu/bound_kernel.h"
#include "stowage/runtime/device.h"

namespace stow {

class Program {
 public:
  Program(Schedule schedule, MemoryPlan plan, int threads);

  const Schedule& schedule() const { return schedule_; }
  const MemoryPlan& plan() const { return plan_; }

  /// One buffer an input, in; one an output, out: an argument's own where it was donated.
  /// Errors: CapacityError before anything runs.
  std::vector<DeviceBufferPtr> run(Device& device,
                                   std::span<const DeviceBufferPtr> arguments) const;

 private:
  struct Operand {
    size_t buffer;
    int64_t offset_bytes;
    std::vector<LoopTerm> terms;
    int64_t slot_bytes = 0;  // of a buffer whose slots lie apart
    LoopId each;             // whose iterations lie apart
  };
  struct Step {
    std::unique_ptr<cpu::BoundKernel> kernel;  // null for a loop
    std::vector<Operand> operands;             // inputs, then outputs
    size_t n_inputs = 0;
    size_t scratch = 0;  // buffer; read only where has_scratch
    bool has_scratch = false;
    LoopId scratch_each;
    LoopId loop;
    int64_t trip_count = 0;
    std::vector<Step> body;
  };
  struct Frame;

  std::vector<Step> bind(const std::vector<Instruction>& body, int threads) const;
  void run_steps(const std::vector<Step>& steps, Frame& frame) const;

  Schedule schedule_;
  MemoryPlan plan_;
  std::vector<Step> steps_;
};

}  // namespace stow
