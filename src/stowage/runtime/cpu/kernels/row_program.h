// Running row programs on the CPU: over cache-sized tiles, with vector kernels, on OpenMP threads.
// Not the meaning of a program; that is ir/row_program.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "stowage/runtime/cpu/kernels/row_overlaps.h"
#include "stowage/runtime/cpu/kernels/row_unroll.h"

namespace stow::cpu {

class RowCalls;
struct RowPlan;

/// A row program made ready to run: dimensions merged, tiles chosen, steps given registers.
/// Immutable; one may be run by several threads at once, each with scratch of its own.
/// Aborts on a program that breaks the contract (a checked invariant of the passes).
class CompiledRowProgram {
 public:
  /// Every run must have the overlaps that `overlaps` states as kNever or kAlways. A program for
  /// them needs less scratch than one for kMaybe.
  explicit CompiledRowProgram(const RowProgram& program, const RowOverlaps& overlaps = {});

  /// Bytes of scratch a run on `threads` threads needs.
  int64_t scratch_bytes(int threads) const;

  /// Runs the program. `inputs` and `outputs` are base addresses; `scratch` is 64-byte aligned and
  /// holds scratch_bytes(threads). The bits of the outputs do not depend on `threads`.
  void run(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
           void* scratch, int threads) const;

 private:
  friend class RowProgramRunner;
  struct Copy;

  /// Null unless the program does nothing but copy one array.
  static std::shared_ptr<const Copy> find_copy(const RowProgram& program);

  std::shared_ptr<const Copy> copy_;  ///< If not null, what runs do instead of the plan.
  size_t n_inputs_, n_outputs_;
  std::vector<UnrolledRows::Base> inputs_, outputs_;  ///< Operands' bases; none if the same.
  std::shared_ptr<const RowPlan> plan_;
  std::shared_ptr<const RowPlan> careful_plan_;  ///< Used if outputs lie over the wrong inputs.
};

/// A row program that is run again and again, by one thread at a time: where it is small, a run does little
/// but call its kernels (row_calls.h).
class RowProgramRunner {
 public:
  RowProgramRunner(const RowProgram& program, int threads, const RowOverlaps& overlaps = {});
  ~RowProgramRunner();

  /// As CompiledRowProgram::run() with the threads given above.
  void run(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
           void* scratch);

  /// Returns the calls that every run makes, wherever the operands lie; null if the calls depend on
  /// that.
  RowCalls* only_calls() const;

 private:
  // An output and an input that must not share an address where `plan_` is to be right.
  struct Pair {
    size_t output, input;
    int64_t offset;  // the input's address less the output's if they share it
  };

  CompiledRowProgram program_;
  int threads_;
  std::vector<Pair> must_differ_;
  std::unique_ptr<RowCalls> calls_, careful_calls_;
};

/// A row program without column reductions, made ready to run on one block of its space at a time.
class RowBlocks {
 public:
  explicit RowBlocks(const RowProgram& program);

  /// True if a block must have all columns of its rows, which share a reduction or a result.
  bool whole_rows() const;
  /// Bytes of scratch of a thread.
  int64_t scratch_bytes() const;

  /// Runs the program on rows [row, row_end) and columns [col, col_end), counted row-major over the
  /// program's dimensions of each. As CompiledRowProgram::run(); blocks may run at the same time.
  void run(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
           void* scratch, int64_t row, int64_t row_end, int64_t col, int64_t col_end) const;

 private:
  std::shared_ptr<const RowPlan> plan_, careful_plan_;
};

/// Bytes of scratch (tile registers, column partials) that running `program` with `threads` needs.
int64_t row_program_scratch_bytes(const RowProgram& program, int threads,
                                  const RowOverlaps& overlaps = {});

}  // namespace stow::cpu
