// BoundLoop: a loop of bound kernels, compiled to one list of instructions.
// Not the interpreter of the list; kernels/loop_code.h has it.
#pragma once

#include <deque>
#include <memory>
#include <set>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/runtime/cpu/kernels/loop_code.h"
#include "stowage/runtime/target.h"

namespace stow::cpu {

/// Row programs are flattened into their calls, and single elements are computed inline; each other
/// kernel is one instruction. If operands use slots in turn, the list is unrolled by the number of
/// slots, which makes their addresses constant. A nested loop is a part of the list.
class BoundLoop final : public stow::BoundLoop {
 public:
  /// Compiles `steps`, whose kernels must be cpu::BoundKernels. Returns null if the loop cannot be
  /// unrolled as far as the slots that its iterations use in turn require.
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
  struct KernelInstruction {
    const stow::BoundKernel* kernel;
    size_t first_address, n_inputs, n_outputs;
    bool has_scratch;
    std::byte** at = nullptr;  // the kernel's first address, in this run
  };
  // A single element of a row program, and an instruction that computes it.
  struct Element {
    size_t instruction;
    const Single* single;
  };
  // A row program, and an instruction that makes one of its calls.
  struct CallInstruction {
    size_t instruction;
    const RowCalls* calls;
  };
  // An index or a predicate, and an instruction that reads it.
  struct Read {
    size_t instruction;
    size_t address;
  };
  // An argument whose address differs between iterations. A run sets it at first to
  // `addresses[address] + offset`.
  struct Argument {
    size_t address;
    int64_t offset = 0;
    // The argument is stored in the calls of a row program (`in_call`), in the operands of an
    // instruction at byte `field_bytes` (`is_in_code`), or among the addresses of the run.
    const std::byte** in_call = nullptr;
    bool is_in_code = false;
    size_t instruction = 0, field_bytes = 0;
  };
  // An instruction that changes an argument between iterations.
  struct Mover {
    size_t instruction, argument;
  };
  // A range of indices of addresses.
  struct Range {
    size_t first, n;
  };
  // The sizes of the lists below at some time, for add_copy().
  struct ListSizes {
    size_t code, elements, call_instructions, reads, arguments, movers;
  };

  BoundLoop() = default;
  void add(const std::vector<LoopStep>& steps);
  void add_kernel(const LoopStep& step);
  void add_branch(const LoopStep& step);
  void add_read(LoopCommand command, size_t address);
  LoopInstruction& add_instruction(LoopCommand command);
  // Adds a loop: the whole one, or one within it.
  void add_loop(const LoopSteps& steps, bool is_outermost);
  ListSizes list_sizes() const;
  // Returns the indices of the arguments, from `begin` on, that hold the run's address number
  // `address`. Adds them if there are none.
  std::vector<size_t> arguments_of(size_t address, const ListSizes& begin);
  // Appends a copy of the instructions [begin, end). Element i of the result is the index of the
  // copy of argument begin.arguments + i, or of that argument itself if it is not in the code.
  std::vector<size_t> add_copy(const ListSizes& begin, const ListSizes& end);
  void add_mover(const std::vector<int64_t>& deltas, size_t argument);
  // Writes the addresses of a run into the list.
  void set_addresses(std::byte** addresses);
  // Returns the location of the argument's address.
  const std::byte** place_of(const Argument& argument, std::byte** addresses);

  int64_t trip_count_ = 0;
  bool has_room_ = true;  // false if the list would be too long: make() returns null
  std::vector<LoopInstruction> code_;
  std::vector<uint8_t> moves_;  // by instruction: bits of the operands that movers change
  std::vector<Rows> rows_;
  std::vector<std::unique_ptr<KernelInstruction>> kernel_instructions_;
  std::vector<Element> elements_;
  std::vector<CallInstruction> call_instructions_;
  std::vector<Read> reads_;
  std::vector<Argument> arguments_;
  std::vector<Mover> movers_;
  std::set<RowCalls*> changed_;                // calls whose arguments a run changes
  std::deque<int64_t> counts_;                 // iteration counters of nested loops
  std::vector<std::vector<int32_t>> targets_;  // jump tables of branches
  std::vector<std::vector<int64_t>> deltas_;   // deltas of kMoveInTurn instructions
  std::vector<Range> ranges_;                  // addresses that the list depends on
  std::vector<std::byte*> last_addresses_;     // their values in the previous run
  LastResults last_results_ = {};
};

}  // namespace stow::cpu
