// Loop code: the body of a loop as a list of instructions for an interpreter. Operations on one
// element are done inline, other work by calls.
// Not the compiler of the list; runtime/cpu/bound_loop.cpp makes it from bound kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "stowage/runtime/cpu/kernels/row_calls.h"
#include "stowage/runtime/cpu/kernels/row_single.h"

namespace stow::cpu {

/// The commands of instructions. Targets of jumps are relative to the instruction.
enum class LoopCommand : uint8_t {
  kSingle,        ///< run_single(op, single)
  kCallMap,       ///< map(*map_arguments)
  kCall,          ///< call->run()
  kRunKernel,     ///< run(context)
  kMove,          ///< *address += delta
  kMoveInTurn,    ///< *address += deltas[number of the next iteration mod n_deltas]
  kJump,          ///< Jumps to `target`.
  kJumpIfTrue,    ///< Jumps to `target` if the bool at `index` is true.
  kJumpByBool,    ///< Jumps to targets[i], where i is the bool at `index`, clamped to the targets.
  kJumpByIndex,   ///< Jumps to targets[i], where i is the i32 at `index`, clamped to the targets.
  kJumpIfFalse,   ///< Jumps to `target` if the bool at `index` is false.
  kLeaveIfFalse,  ///< Ends the loop if the bool at `index` is false.
  kNext,          ///< Counts an iteration; ends the loop after the last one. Else continues.
  kAgain,         ///< As kNext, but else continues with the first instruction.
  // For a nested loop in the list:
  kEnterNested,  ///< Loads the registers from `at_begin`. The loop's first instruction follows.
  kNextNested,   ///< Counts an iteration in *count; after the last, resets it, jumps to `target`.
  kAgainNested   ///< The same, but jumps to `target` if the iteration was not the last one.
};

/// Addresses of the results that the interpreter's registers hold at the start of every iteration
/// of a loop; null for none. Operations that find their operands in registers do not wait for
/// memory.
struct LastResults {
  const std::byte* f32;         ///< The last f32.
  const std::byte* f32_before;  ///< The last but one.
  const std::byte* word;        ///< The last i32, u32 or bool.
  bool is_byte;                 ///< The word is a bool.
};

struct LoopInstruction {
  void* handler = nullptr;  ///< The code of run_loop() that executes it; set by link_loop().
  LoopCommand command = LoopCommand::kAgain;
  SingleOp op = SingleOp::kNone;
  int32_t target = 0;
  union {
    Single single = {};
    struct {
      MapKernel map;
      const KernelCall* map_arguments;
    };
    const RowCalls::Call* call;
    struct {
      void (*run)(const void* context);
      const void* context;
    };
    struct {
      const std::byte** address;
      int64_t delta;
      const int64_t* deltas;
      int64_t n_deltas;
    };
    struct {
      const std::byte* index;
      const int32_t* targets;
      int64_t n_targets;
    };
    struct {
      int64_t* count;
      int64_t trip_count;
    };
    LastResults at_begin;  ///< Set by link_loop().
  };
};

/// Prepares a list for run_loop(), after the addresses of its instructions are set. Returns the
/// registers at the start of an iteration. Bit 0 of moving[i] is set if the address to which
/// instruction i writes changes between iterations, bit k + 1 if that of args[k] does; such values
/// are read from memory.
LastResults link_loop(std::span<LoopInstruction> code, std::span<const uint8_t> moving);

/// Runs a list `trip_count` times, or until a kLeaveIfFalse ends it. `last` is the result of
/// link_loop().
void run_loop(const LoopInstruction* code, int64_t trip_count, const LastResults& last);

}  // namespace stow::cpu
