// Loop code: the iterations of a loop as a list of instructions. A single element is computed in line, other
// work is a call.
// Not how the list is made; runtime/cpu/bound_loop.cpp makes it of bound kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "stowage/runtime/cpu/kernels/row_calls.h"
#include "stowage/runtime/cpu/kernels/row_single.h"

namespace stow::cpu {

enum class LoopCommand : uint8_t {
  kSingle,        ///< The element `op` of `single`.
  kCallMap,       ///< map(*map_arguments)
  kCall,          ///< call->run()
  kRunKernel,     ///< run(context)
  kMove,          ///< *address += delta
  kMoveInTurn,    ///< *address += deltas[number of the next iteration mod n_deltas]
  kJump,          ///< To `target`: so many instructions on.
  kJumpIfTrue,    ///< To `target` if the bool at `index` is true.
  kJumpByBool,    ///< To targets[the bool at `index`, clamped to them].
  kJumpByIndex,   ///< To targets[the i32 at `index`, clamped to them].
  kJumpIfFalse,   ///< To `target` if the bool at `index` is false.
  kLeaveIfFalse,  ///< Ends the loop if the bool at `index` is false.
  kNext,          ///< Ends the loop after the last iteration, or goes on to the next one.
  kAgain,         ///< As kNext, but goes to the first instruction.
  // For a loop in the list:
  kEnter,     ///< Fills the registers with `at_begin`; the loop's first instruction follows.
  kNextOf,    ///< Counts an iteration in *count. If it was the last one, sets that to 0 and goes to `target`.
  kAgainOf    ///< The same, but goes to `target` if it was not the last one.
};

/// Addresses of the results that registers hold at the begin of every iteration of a loop; null for none. A
/// chain of elements that find them in registers does not wait for memory.
struct LastResults {
  const std::byte* f32;         ///< The last f32.
  const std::byte* f32_before;  ///< The last but one.
  const std::byte* word;        ///< The last i32, u32 or bool.
  bool is_byte;                 ///< The word is a bool.
};

struct LoopInstruction {
  void* handler = nullptr;  ///< The code in run_loop() that executes it; set by link_loop().
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

/// Makes a list ready to run whose instructions have their addresses. Bit 0 of moving[i] says that
/// what instruction i writes moves from iteration to iteration, bit k + 1 that args[k] does; such
/// values are read from memory.
LastResults link_loop(std::span<LoopInstruction> code, std::span<const uint8_t> moving);

/// Runs the instructions, `trip_count` times or until the predicate is false.
void run_loop(const LoopInstruction* code, int64_t trip_count, const LastResults& last);

}  // namespace stow::cpu
