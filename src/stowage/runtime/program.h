// Program: a schedule bound to offsets, ready to run on devices of one target.
// Not a compiler; session/ makes one from a graph.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/plan/memory_plan.h"
#include "stowage/runtime/comm/bound_collective.h"
#include "stowage/runtime/device.h"
#include "stowage/runtime/move.h"
#include "stowage/runtime/run_observer.h"
#include "stowage/runtime/target.h"

namespace stow {

class Program {
 public:
  Program(Schedule schedule, MemoryPlan plan, TargetPtr target);

  const Schedule& schedule() const { return schedule_; }
  const MemoryPlan& plan() const { return plan_; }

  /// One buffer an input, in; one an output, out: an argument's own where it was donated. The
  /// observer, where there is one, hears of every kernel. A program with collectives runs at a position
  /// of its mesh, and at all others at the same time; the device's collective stream makes all calls of
  /// the communicator, and an error ends the collectives of all positions.
  /// Errors: CapacityError before anything runs; DiskError when a transfer fails, and then donated
  /// arguments hold nothing of use; CommunicationError when another position is lost.
  std::vector<DeviceBufferPtr> run(Device& device, std::span<const DeviceBufferPtr> arguments,
                                   RunObserver* observer = nullptr,
                                   const comm::MeshPosition* mesh = nullptr) const;

 private:
  struct Operand {
    size_t buffer;
    int64_t offset_bytes;
    std::vector<LoopTerm> terms;
    const Buffer* places = nullptr;  // a buffer that has several, one a slot or iteration
    // For checking builds: the bytes around the address that it spans, in an arena.
    int64_t low_bytes = 0, high_bytes = 0;
    bool in_arena = false;

    bool has_term_of(LoopId loop) const {
      return std::any_of(terms.begin(), terms.end(),
                         [&](const LoopTerm& term) { return term.loop == loop; });
    }
  };
  // An operand whose address is another one in every iteration of the innermost loop around.
  struct MovingOperand {
    size_t operand;
    // From iteration i - 1 to iteration i by deltas[i mod their number], of slots taken in turn; none
    // where the operand is located again.
    std::vector<int64_t> deltas;
  };
  // An operand that has places, and takes a few of them in turn.
  struct TurningOperand {
    size_t operand;
    LoopId loop;
    size_t period;
    size_t first_other;  // index in Frame::addresses, of the places in iterations 1 to period - 1
  };
  enum class StepKind : uint8_t { kKernel, kLoop, kOpenLoop, kBranch };
  struct Step {
    StepKind kind = StepKind::kKernel;
    std::unique_ptr<BoundKernel> kernel;
    std::unique_ptr<const comm::BoundCollective> collective;  // instead of the above
    std::unique_ptr<const MoveShape> move;  // shape of a kernel that moves, instead of the above
    bool runs_here = false;                 // a kernel that is done when its run() returns
    const Kernel* source = nullptr;         // the kernel of either, in the schedule
    // Operands of a kernel: inputs, then outputs, then the scratch if there is any. An open loop
    // has the predicate here, a branch the index.
    std::vector<Operand> operands;
    size_t n_inputs = 0, n_outputs = 0;
    // Index in Frame::addresses; for a move none. A branch and an open loop have one for the operand.
    size_t first_address = 0;
    std::vector<MovingOperand> moving;
    std::vector<TurningOperand> turning;
    Guard guard;
    MovePhase phase = MovePhase::kWhole;
    StreamKind stream = StreamKind::kCompute;  // stream of a start, a done or a collective
    size_t transfer = 0;
    int64_t scratch_bytes = 0;
    bool has_scratch = false;
    LoopId loop;
    int64_t trip_count = 0;
    bool is_bool_index = false;
    // A loop that the target runs without this runner; null if it does not.
    std::unique_ptr<BoundLoop> whole;
    // Nested steps. A loop has its body, then its condition; a branch has its alternatives.
    std::vector<std::vector<Step>> parts;
  };
  struct Frame;

  std::vector<Step> bind(const std::vector<Instruction>& body, LoopId innermost);
  Step bind_kernel(const Kernel& kernel, LoopId innermost);
  Operand bind_operand(const View& view) const;
  // True if the place depends on the slot or on the iteration.
  static bool has_places(const Buffer& buffer);
  MovingOperand moving_operand(const Step& step, size_t operand, LoopId innermost) const;
  void find_turning(Step& step);
  // Null if the target leaves the loop to the runner.
  std::unique_ptr<BoundLoop> bind_whole(const Step& loop) const;
  static void drop_whole(std::vector<Step>& steps);
  // Describe steps to the target. They return false if a step needs the runner.
  bool describe_loop(const Step& loop, LoopSteps& to) const;
  bool describe(const std::vector<Step>& steps, std::vector<LoopStep>& to) const;
  bool find_moving(const std::vector<Step>& steps, LoopId loop, LoopSteps& to) const;

  // `is_first`: no kernel of the steps has an address yet that is of use, as at a loop's beginning.
  void run_steps(const std::vector<Step>& steps, Frame& frame, bool is_first,
                 int64_t iteration = 0) const;
  void start_move(const Step& step, const Place& from, const Place& to,
                  std::span<std::byte> bounce, Frame& frame) const;
  void finish_move(const Step& step, Frame& frame) const;
  // Has the target run a loop; false if this run has to step through it.
  bool run_whole(const Step& step, Frame& frame) const;
  void set_to_begin(const Step& step, Frame& frame) const;
  Place locate(const Operand& operand, const Frame& frame) const;
  [[gnu::always_inline]] void run_kernel(const Step& step, Frame& frame, bool is_first,
                                         int64_t iteration) const;
  void run_apart(const Step& step, Frame& frame, std::byte** at) const;
  void run_collective(const Step& step, Frame& frame, std::byte** at) const;
  // Until the kernels that were given to the compute stream are done.
  void finish_kernels(Frame& frame) const;
  void run_move(const Step& step, Frame& frame) const;
  void end_instant(const Step& step, Frame& frame, double begin_s) const;
  const std::byte* read_on_host(const Operand& operand, Frame& frame, std::byte* copy) const;
  void show(const Operand& operand, const Place& at, const Frame& frame, bool visible) const;
  void find_deaths();

  Schedule schedule_;
  MemoryPlan plan_;
  TargetPtr target_;
  bool reads_directly_;  // the host, at addresses in device memory
  std::vector<Step> steps_;
  size_t n_transfers_ = 0, n_addresses_ = 0;
  // For debug builds: what dies after each instant; empty where the timeline is not that of a run.
  struct Death {
    MemoryKind kind;
    int64_t offset, bytes;
  };
  std::vector<std::vector<Death>> deaths_;
};

}  // namespace stow
