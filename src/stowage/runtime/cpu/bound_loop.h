// BoundLoop: a loop of bound kernels as one list of instructions, which runs without the program's runner.
// Not the execution of the list; kernels/loop_code.h has it.
#pragma once

#include <memory>
#include <set>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/runtime/cpu/kernels/loop_code.h"
#include "stowage/runtime/target.h"

namespace stow::cpu {

/// The calls of the loop's row programs stand in the list one after another, single elements in line; other
/// kernels run as they are. If operands take slots in turn, the list has as many iterations as there are slots,
/// so that their addresses are fixed.
class BoundLoop final : public stow::BoundLoop {
 public:
  /// The kernels of `steps` are BoundKernels of this folder.
  explicit BoundLoop(const LoopSteps& steps);
  void run(std::byte** addresses) override;

  /// The instructions. Those of an iteration end with kNext or kAgain.
  const std::vector<LoopInstruction>& code() const { return code_; }

 private:
  // A row program whose calls are in the list.
  struct Rows {
    RowCalls* calls;
    size_t first_address, n_inputs, n_outputs;
    bool has_scratch;
    size_t first_instruction, n_instructions;
  };
  // A kernel that an instruction runs as it is.
  struct Whole {
    const stow::BoundKernel* kernel;
    size_t first_address, n_inputs, n_outputs;
    bool has_scratch;
    std::byte** at = nullptr;  // of the first address, in this run
  };
  // A single element of a row program, and the instruction that computes it.
  struct Element {
    size_t instruction;
    const Single* single;
  };
  // An index or a predicate, and the instruction that reads it.
  struct Read {
    size_t instruction;
    size_t address;
  };
  static constexpr size_t kNone = ~size_t{0};
  // An argument whose address differs between iterations. At the begin of a run it is an address of the run
  // plus `offset`.
  struct Argument {
    size_t address;
    int64_t offset = 0;
    // The argument's place: in the calls of a row program; or in an instruction, `field_bytes` into its
    // operands; or among the addresses of the run.
    const std::byte** in_call = nullptr;
    bool is_in_code = false;
    size_t instruction = 0, field_bytes = 0;
    size_t mover = kNone;  // the instruction that changes it; kNone if it keeps its address in this copy
  };
  struct Range {
    size_t first, n;
  };

  void add(const std::vector<LoopStep>& steps);
  void add_kernel(const LoopStep& step);
  void add_branch(const LoopStep& step);
  void add_read(LoopCommand command, size_t address);
  // Calls f(argument) for each argument that holds an address of the run.
  template <class F>
  void for_each_argument(size_t address, F f);
  // Ends the iteration in the list, and adds copies of it where operands take slots in turn.
  void add_iterations(const std::vector<MovingAddress>& moving);
  void add_mover(const std::vector<int64_t>& deltas, Argument argument);
  LoopInstruction& add_instruction(LoopCommand command);
  // Writes the addresses of a run into the list.
  void set_addresses(std::byte** addresses);

  int64_t trip_count_;
  std::vector<LoopInstruction> code_;
  std::vector<uint8_t> moves_;  // for link_loop()
  std::vector<Rows> rows_;
  std::vector<std::unique_ptr<Whole>> whole_;
  std::vector<Element> elements_;
  std::vector<Read> reads_;
  std::vector<Argument> arguments_;
  std::set<RowCalls*> changed_;                // calls whose arguments a run changes
  std::vector<std::vector<int32_t>> targets_;  // of branches
  std::vector<std::vector<int64_t>> deltas_;   // of what moves in turn
  std::vector<Range> ranges_;                  // of addresses that the list depends on
  std::vector<std::byte*> last_addresses_;     // those of the run before
  LastResults last_results_;
};

}  // namespace stow::cpu
