// BoundLoop: a loop of bound kernels as one list of instructions, which runs without the program's runner.
// Not the execution of the list; kernels/loop_code.h has it.
#pragma once

#include <deque>
#include <memory>
#include <set>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/runtime/cpu/kernels/loop_code.h"
#include "stowage/runtime/target.h"

namespace stow::cpu {

/// The calls of the loop's row programs stand in the list one after another, single elements in line; other
/// kernels run as they are. If operands take slots in turn, the list has as many iterations as there are slots,
/// so that their addresses are fixed. A loop within the loop is a part of the list.
class BoundLoop final : public stow::BoundLoop {
 public:
  /// The kernels of `steps` are BoundKernels of this folder. Null if a loop within the loop has more slots that
  /// iterations take in turn than the list has room for.
  static std::unique_ptr<BoundLoop> make(const LoopSteps& steps);
  void run(std::byte** addresses) override;

  /// The instructions.
  const std::vector<LoopInstruction>& code() const { return code_; }

 private:
  // A row program whose calls are in the list.
  struct Rows {
    RowCalls* calls;
    size_t first_address, n_inputs, n_outputs;
    bool has_scratch;
  };
  // A kernel that an instruction runs as it is.
  struct Whole {
    const stow::BoundKernel* kernel;
    size_t first_address, n_inputs, n_outputs;
    bool has_scratch;
    std::byte** at = nullptr;  // of the first address, in this run
  };
  // A single element of a row program, and an instruction that computes it.
  struct Element {
    size_t instruction;
    const Single* single;
  };
  // A call of a row program, and an instruction that makes it.
  struct Made {
    size_t instruction;
    const RowCalls* calls;
  };
  // An index or a predicate, and an instruction that reads it.
  struct Read {
    size_t instruction;
    size_t address;
  };
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
  };
  // An instruction that changes an argument.
  struct Mover {
    size_t instruction, argument;
  };
  struct Range {
    size_t first, n;
  };
  // How much there is of what instructions refer to.
  struct Mark {
    size_t code, elements, made, reads, arguments, movers;
  };

  BoundLoop() = default;
  void add(const std::vector<LoopStep>& steps);
  void add_kernel(const LoopStep& step);
  void add_branch(const LoopStep& step);
  void add_read(LoopCommand command, size_t address);
  LoopInstruction& add_instruction(LoopCommand command);
  // Adds a loop: the whole one, or one within it.
  void add_loop(const LoopSteps& steps, bool is_outermost);
  Mark mark() const;
  // The numbers of the arguments that hold an address of the run, of instructions from `begin` on.
  std::vector<size_t> arguments_of(size_t address, const Mark& begin);
  // Adds the instructions [begin, end) once more, and returns the numbers of the arguments in them, by the
  // number of the one that they are copied from less that of the first.
  std::vector<size_t> add_copy(const Mark& begin, const Mark& end);
  void add_mover(const std::vector<int64_t>& deltas, size_t argument);
  // Writes the addresses of a run into the list.
  void set_addresses(std::byte** addresses);
  const std::byte** place_of(const Argument& argument, std::byte** addresses);

  int64_t trip_count_ = 0;
  bool has_room_ = true;
  std::vector<LoopInstruction> code_;
  std::vector<uint8_t> moves_;  // for link_loop()
  std::vector<Rows> rows_;
  std::vector<std::unique_ptr<Whole>> whole_;
  std::vector<Element> elements_;
  std::vector<Made> made_;
  std::vector<Read> reads_;
  std::vector<Argument> arguments_;
  std::vector<Mover> movers_;
  std::set<RowCalls*> changed_;                // calls whose arguments a run changes
  std::deque<int64_t> counts_;                 // of loops in the list
  std::vector<std::vector<int32_t>> targets_;  // of branches
  std::vector<std::vector<int64_t>> deltas_;   // of what moves in turn
  std::vector<Range> ranges_;                  // of addresses that the list depends on
  std::vector<std::byte*> last_addresses_;     // those of the run before
  LastResults last_results_ = {};
};

}  // namespace stow::cpu
