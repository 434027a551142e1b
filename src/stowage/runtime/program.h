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

  /// Runs the program once. Takes one buffer for each input and returns one for each output; an
  /// output in donated memory is the argument's own buffer. `observer`: null, or told of every
  /// kernel. `mesh`: the position at which a program with collectives runs; all other positions
  /// must run it at the same time. Only the device's collective stream calls the communicator. An
  /// error ends the collectives of all positions.
  /// Errors: CapacityError before anything runs; DiskError if a transfer fails, after which the
  /// contents of donated arguments are undefined; CommunicationError if another position is lost.
  std::vector<DeviceBufferPtr> run(Device& device, std::span<const DeviceBufferPtr> arguments,
                                   RunObserver* observer = nullptr,
                                   const comm::MeshPosition* mesh = nullptr) const;

 private:
  struct Operand {
    size_t buffer;
    int64_t offset_bytes;
    std::vector<LoopTerm> terms;
    const Buffer* places = nullptr;  // the buffer, if each slot or iteration has its own offset
    // The operand's elements lie in bytes [low_bytes, high_bytes) relative to its address.
    int64_t low_bytes = 0, high_bytes = 0;
    bool in_arena = false;

    bool has_term_of(LoopId loop) const {
      return std::any_of(terms.begin(), terms.end(),
                         [&](const LoopTerm& term) { return term.loop == loop; });
    }
  };
  // An operand whose address depends on the iteration of the innermost loop around it.
  struct MovingOperand {
    size_t operand;  // index in Step::operands
    // The address changes by deltas[i mod n] bytes from iteration i - 1 to iteration i, n being the
    // number of deltas. Empty: locate() computes each address.
    std::vector<int64_t> deltas;
  };
  // An operand whose slots have offsets of their own, and that uses `period` slots in turn.
  struct RotatingOperand {
    size_t operand;  // index in Step::operands
    LoopId loop;
    size_t period;
    // Index in Frame::addresses of the operand's address in iteration 1; those of iterations up to
    // period - 1 follow.
    size_t first_other;
  };
  enum class StepKind : uint8_t { kKernel, kLoop, kOpenLoop, kBranch };
  struct Step {
    StepKind kind = StepKind::kKernel;
    // A step of kind kKernel has exactly one of `kernel`, `collective` and `move`.
    std::unique_ptr<BoundKernel> kernel;
    std::unique_ptr<const comm::BoundCollective> collective;
    std::unique_ptr<const MoveShape> move;
    bool runs_here = false;          // true if `kernel` runs on the calling thread
    const Kernel* source = nullptr;  // the kernel in the schedule
    // Operands of a kernel: inputs, then outputs, then the scratch if there is any. The only
    // operand of an open loop is the predicate, that of a branch the index.
    std::vector<Operand> operands;
    size_t n_inputs = 0, n_outputs = 0;
    // Index in Frame::addresses of the first operand's address. Moves have no addresses there.
    size_t first_address = 0;
    std::vector<MovingOperand> moving;
    std::vector<RotatingOperand> rotating;
    Guard guard;
    MovePhase phase = MovePhase::kWhole;
    StreamKind stream = StreamKind::kCompute;  // stream of a start, a done or a collective
    size_t transfer = 0;  // number that a start and its done share
    int64_t scratch_bytes = 0;
    bool has_scratch = false;
    LoopId loop;
    int64_t trip_count = 0;
    bool is_bool_index = false;
    // The loop as the target runs it by itself; null if the program runs it step by step.
    std::unique_ptr<BoundLoop> target_loop;
    // Nested steps. A loop has its body, then its condition; a branch has its alternatives.
    std::vector<std::vector<Step>> parts;
  };
  struct Frame;

  std::vector<Step> bind(const std::vector<Instruction>& body, LoopId innermost);
  Step bind_kernel(const Kernel& kernel, LoopId innermost);
  Operand bind_operand(const View& view) const;
  // True if each slot or iteration of the buffer has an offset of its own.
  static bool has_places(const Buffer& buffer);
  MovingOperand moving_operand(const Step& step, size_t operand, LoopId innermost) const;
  void find_rotating(Step& step);
  // Returns the loop as the target runs it by itself; null if the program must run it step by step.
  std::unique_ptr<BoundLoop> bind_target_loop(const Step& loop) const;
  // Clears Step::target_loop of all nested steps.
  static void drop_target_loops(std::vector<Step>& steps);
  // These translate steps for Target::bind_loop(). They return false if the program must run a
  // step.
  bool describe_loop(const Step& loop, LoopSteps& to) const;
  bool describe(const std::vector<Step>& steps, std::vector<LoopStep>& to) const;
  bool find_moving(const std::vector<Step>& steps, LoopId loop, LoopSteps& to) const;

  // `is_first`: true if Frame::addresses must be computed from scratch, as in a loop's first
  // iteration. `iteration`: of the innermost loop around the steps.
  void run_steps(const std::vector<Step>& steps, Frame& frame, bool is_first,
                 int64_t iteration = 0) const;
  void start_move(const Step& step, const Place& from, const Place& to,
                  std::span<std::byte> bounce, Frame& frame) const;
  void finish_move(const Step& step, Frame& frame) const;
  // Runs a loop through Step::target_loop and returns true; false if this run must go step by step.
  bool run_target_loop(const Step& step, Frame& frame) const;
  // Sets Frame::addresses of the step and all nested steps to those of iteration 0.
  void set_to_begin(const Step& step, Frame& frame) const;
  Place locate(const Operand& operand, const Frame& frame) const;
  [[gnu::always_inline]] void run_kernel(const Step& step, Frame& frame, bool is_first,
                                         int64_t iteration) const;
  // Runs a collective, or submits a kernel to the compute stream. `at`: addresses of the operands.
  void run_on_stream(const Step& step, Frame& frame, std::byte** at) const;
  void run_collective(const Step& step, Frame& frame, std::byte** at) const;
  // Waits until all kernels submitted to the compute stream are done.
  void finish_kernels(Frame& frame) const;
  void run_move(const Step& step, Frame& frame) const;
  // Tells the observer, fills bytes that die (checking builds), and counts the instant.
  void end_instant(const Step& step, Frame& frame, double begin_s) const;
  // Copies an index or a predicate, of at most 8 bytes, into `copy` and returns `copy`.
  const std::byte* read_on_host(const Operand& operand, Frame& frame, std::byte* copy) const;
  // Unpoisons (`accessible`) or poisons the operand's bytes in an arena. For checking builds.
  void set_accessible(const Operand& operand, const Place& at, const Frame& frame,
                      bool accessible) const;
  // Fills deaths_.
  void find_deaths();

  Schedule schedule_;
  MemoryPlan plan_;
  TargetPtr target_;
  bool reads_directly_;  // true if the host can read device memory at its address
  std::vector<Step> steps_;
  size_t n_transfers_ = 0, n_addresses_ = 0;
  // For builds with assertions: the bytes that die after each instant. Empty if the plan's timeline
  // is not that of every run.
  struct Death {
    MemoryKind kind;
    int64_t offset, bytes;
  };
  std::vector<std::vector<Death>> deaths_;
};

}  // namespace stow
