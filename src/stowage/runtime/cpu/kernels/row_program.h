// Runs row programs on the CPU: over cache-sized tiles, with vector kernels, on OpenMP threads.
// Not the meaning of a program; ir/row_program.h defines it.
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

/// A row program compiled to plans. Immutable; several threads may run it at the same time, each
/// with scratch of its own.
class CompiledRowProgram {
 public:
  /// Aborts on a program that breaks the contract (a checked invariant of the passes). Every run
  /// must have the overlaps that `overlaps` states as kNever or kAlways. A program for them needs
  /// less scratch than one for kMaybe.
  explicit CompiledRowProgram(const RowProgram& program, const RowOverlaps& overlaps = {});

  /// Returns the bytes of scratch of a run on `threads` threads.
  int64_t scratch_bytes(int threads) const;

  /// Runs the program. `inputs` and `outputs` are base addresses; `scratch` is 64-byte aligned and
  /// holds scratch_bytes(threads). The bits of the outputs do not depend on `threads`.
  void run(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
           void* scratch, int threads) const;

 private:
  friend class RowProgramRunner;
  struct Copy;

  /// Returns null unless the program only copies one array.
  static std::shared_ptr<const Copy> find_copy(const RowProgram& program);

  std::shared_ptr<const Copy> copy_;  ///< If not null, done by runs, unless the plan may stream.
  size_t n_inputs_, n_outputs_;
  /// The plan's operands in the program's, if unrolling has changed them; else empty.
  std::vector<UnrolledRows::Base> inputs_, outputs_;
  std::shared_ptr<const RowPlan> plan_;
  std::shared_ptr<const RowPlan> aliasing_plan_;  ///< Used if a must_differ pair has one address.
};

/// A row program that one caller runs many times. A run of a small program does little more than
/// call its kernels (row_calls.h).
class RowProgramRunner {
 public:
  RowProgramRunner(const RowProgram& program, int threads, const RowOverlaps& overlaps = {});
  ~RowProgramRunner();

  /// As CompiledRowProgram::run() with the threads given above.
  void run(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
           void* scratch);

  /// Returns the calls that every run makes, if they do not depend on the addresses of the
  /// operands; else null.
  RowCalls* only_calls() const;

 private:
  // An output and an input that must have different addresses for a run of program_.plan_.
  struct Pair {
    size_t output, input;
    int64_t offset;  // the input's address less the output's if they share it
  };

  CompiledRowProgram program_;
  int threads_;
  std::vector<Pair> must_differ_;
  std::unique_ptr<RowCalls> calls_, aliasing_calls_;
};

/// A row program without column reductions, compiled to run on one block of its iteration space at
/// a time.
class RowBlocks {
 public:
  explicit RowBlocks(const RowProgram& program);

  /// True if a block must have all columns of its rows: a row has a reduction or one result.
  bool whole_rows() const;
  /// Returns the bytes of scratch of a thread.
  int64_t scratch_bytes() const;

  /// Runs the program on rows [row, row_end) and columns [col, col_end), counted row-major over the
  /// program's dimensions of each. As CompiledRowProgram::run(); blocks may run at the same time.
  void run(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
           void* scratch, int64_t row, int64_t row_end, int64_t col, int64_t col_end) const;

 private:
  std::shared_ptr<const RowPlan> plan_, aliasing_plan_;
};

/// Returns the bytes of scratch that running `program` on `threads` threads needs.
int64_t row_program_scratch_bytes(const RowProgram& program, int threads,
                                  const RowOverlaps& overlaps = {});

}  // namespace stow::cpu
