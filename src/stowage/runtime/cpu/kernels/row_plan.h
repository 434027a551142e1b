// RowPlan: a row program as the executor runs it. Built by row_compiler.h.
// Not for callers; see row_program.h.
//
// A value depends on its row, its column, both or neither (its Span), and is computed once for
// each row, column or point:
//
//   for each unit (a block of rows x a block of columns; units are distributed over threads)
//     for each tile of rows                          r_tile rows of one run of the inner row dim
//       for each phase                               a phase ends where a row reduction is used
//         row_steps                                  [1, rows] values
//         for each strip of columns: strip_steps     [rows, c_tile] values; reductions, stores
//       row_stores
//
// With column reductions, a unit is a chunk of a group's rows, or all chunks of a group in order.
//
// If a row has several strips, a value that a later phase reads is kept for the whole row: in the
// memory of an output that is stored later, else in scratch if all such values are small. Otherwise
// the later phase computes it again.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/row_program.h"
#include "stowage/runtime/cpu/kernels/row_kernels.h"
#include "stowage/runtime/cpu/kernels/row_overlaps.h"

namespace stow::cpu {

/// The indices on which a value depends: a subset of {row, column}.
enum class Span : uint8_t { kOne = 0, kRow = 1, kColumn = 2, kFull = 3 };
constexpr bool has_row(Span s) {
  return (static_cast<int>(s) & 1) != 0;
}
constexpr bool has_column(Span s) {
  return (static_cast<int>(s) & 2) != 0;
}
constexpr Span operator|(Span a, Span b) {
  return static_cast<Span>(static_cast<int>(a) | static_cast<int>(b));
}

/// A value in a thread's scratch.
struct Register {
  Span span = Span::kFull;
  bool whole_row = false;  ///< Has all columns of its rows, not only those of the strip.
  bool is_needed = true;   ///< False: it is not used and takes no scratch.
  int64_t elem_bytes = 4;
  int64_t offset = 0;
};

/// An input, output or iota over the merged dimensions; strides in elements.
struct PlanOperand {
  DType dtype = DType::kF32;
  int64_t elem_bytes = 4;
  Dims row_strides, col_strides;
  Span span = Span::kOne;
  bool unit_columns = false;  ///< Adjacent columns are adjacent in memory, as kernels require.
  bool may_stream = false;    ///< An output that one kernel writes in whole lines, and none reads.
  /// Strides along the innermost row and column dimension.
  int64_t inner_row = 0, inner_col = 0;
};

/// The place from which a step reads a value, or to which it writes one.
struct Place {
  enum Kind : uint8_t { kNone, kRegister, kOperand, kConstant };
  Kind kind = kNone;
  Form form = Form::kNative;
  int32_t index = -1;
  int32_t elem_bytes = 4;

  // The address, in bytes: row r of the tile is at
  // bases[base] + offset + r * (row_const + row_per_col * columns of the tile).
  int32_t base = 0;
  bool splat = false;
  int64_t offset = 0, row_const = 0, row_per_col = 0;
};

/// Indices of the base addresses of a thread: its scratch, the constants, its scratch moved by the
/// strip's first column for elements of 1, 4 and 8 bytes, then every input and output at the tile.
enum Base : int32_t {
  kOwnBase,
  kConstantBase,
  kStripBase1,
  kStripBase4,
  kStripBase8,
  kOperandBase
};

/// One kernel call for each tile, with its places.
struct PlanStep {
  enum Kind : uint8_t { kMap, kLoad, kIota, kStore, kReduceRows, kReduceColumns };
  Kind kind = kMap;
  Span span = Span::kFull;  ///< Span of the values computed; for a store, of the output.
  Form round = Form::kNative;
  int n_args = 0, n_more = 0;
  Place out, args[kMaxKernelArgs];
  Place more[2];  ///< Further results of a map kernel; kReduceColumns: `out` of norm_gradient.
  MapKernel map = nullptr;
  MoveKernel move = nullptr;
  IotaKernel iota = nullptr;
  ReduceKernels reduce;
  int64_t lanes_offset = 0;     ///< kReduceRows: of its lanes in the thread's scratch.
  /// Reductions: of partial results in the shared scratch; of row reductions only with can_go_wide.
  int64_t partials_offset = 0;
  int64_t sums_offset = 0;      ///< kReduceColumns in order: of a group's sums, in thread scratch.
  int64_t chunk_offset = 0;     ///< The same, of the sums of the current chunk.
  int64_t partial_cols = 0;     ///< kReduceColumns: columns, or 1 if all columns have one value.
  bool by_runs = false;         ///< kReduceRows: arg 0 is an input, read run by run of the columns.
  bool keeps = false;           ///< kReduceRows: the last of `args` is a register to write.
  int32_t square_register = -1;  ///< kReduceRows: result of the second sum of and_squares.
  int64_t square_lanes_offset = 0;
  bool by_position = false;     ///< Its kernel needs column numbers: rows are not merged into one.
  int64_t weight = 1;           ///< Estimated time of an element (addition: 1), for prefetching.
  const std::string* pattern = nullptr;  ///< The name of its formula in row_patterns.h, or null.
};

/// The steps of a phase.
struct PlanPhase {
  std::vector<PlanStep> row_steps, strip_steps;
  std::vector<int32_t> direct;  ///< Operands that kernels of its strips access in memory directly.
  int64_t weight = 0;           ///< Sum of the weights of its strip_steps.
};

/// A compiled row program.
struct RowPlan {
  Dims row_dims, col_dims;  ///< Merged; may be empty. The first n_group_dims row_dims are groups.
  int64_t rows = 1, cols = 1;
  int n_group_dims = 0;       ///< Number of row_dims of groups; 0 without column reductions.
  int64_t groups = 1, group_rows = 1;  ///< `rows` is their product.
  /// Inputs, then outputs, then iotas.
  std::vector<PlanOperand> operands;
  int n_inputs = 0, n_outputs = 0;
  std::vector<Register> registers;
  std::vector<uint64_t> constants;   ///< In a register's form.
  std::vector<PlanStep> once_steps;  ///< Values of Span::kOne; each thread computes them first.
  std::vector<PlanPhase> phases;
  std::vector<int32_t> direct;       ///< Operands that kernels access in memory directly.
  int64_t fetch_elems = 0;  ///< If not 0, prefetches are this many elements ahead, not a strip.
  bool fetches = true;      ///< False: nothing is prefetched.
  bool fetch_rows = false;  ///< True: prefetches the next tile of rows; else the next strip.
  std::vector<PlanStep> row_stores;
  std::vector<PlanStep> column_stores;  ///< The kReduceColumns steps, in order.

  /// Pairs of an output and an input for which the plan requires different memory.
  std::vector<std::pair<int, int>> must_differ;

  int64_t r_tile = 1, c_tile = 1;        ///< Rows of a tile, columns of a strip.
  int64_t unit_rows = 1, unit_cols = 1;  ///< With column reductions unit_rows is a chunk's.
  bool has_row_reductions = false;
  bool in_blocks = false;   ///< For run_row_block(): rows and columns keep their order.
  bool whole_rows = false;  ///< A unit, or a block, must have all columns of its rows.
  bool can_go_wide = false;  ///< Threads may share one row: its strips, phase by phase.
  int64_t inner_rows() const {
    return row_dims.size() == static_cast<size_t>(n_group_dims) ? 1 : row_dims.back();
  }
  int64_t inner_cols() const { return col_dims.empty() ? 1 : col_dims.back(); }

  /// chunks() returns the number of chunks of rows in a group, col_units() of blocks of columns.
  int64_t chunks() const { return std::max<int64_t>(1, (group_rows + unit_rows - 1) / unit_rows); }
  int64_t col_units() const { return cols == 0 ? 1 : (cols + unit_cols - 1) / unit_cols; }
  /// True if a thread computes all chunks of a group and block of columns in order. Column sums
  /// then need no partial results for each chunk.
  bool sums_in_order(int threads) const {
    return threads <= 1 || chunks() == 1 || groups * col_units() >= 2 * threads;
  }
  /// Return the bytes of scratch that all threads share, and of each thread, for a run on `threads`
  /// threads.
  int64_t shared_bytes_of(int threads) const {
    return !column_stores.empty() && sums_in_order(threads) ? 0 : shared_bytes;
  }
  int64_t thread_bytes_of(int threads) const {
    return thread_bytes + (!column_stores.empty() && sums_in_order(threads) ? column_bytes : 0);
  }

  int64_t thread_bytes = 0, shared_bytes = 0;
  int64_t column_bytes = 0;  ///< Added to thread_bytes if sums_in_order().
  int64_t kept_bytes = 0;  ///< Part of thread_bytes: whole rows kept from one phase to another.
  int64_t work = 0;  ///< Points times steps; less than kSmallRowWork runs on one thread.
};
inline constexpr int64_t kSmallRowWork = 1 << 15;

/// Returns the bytes at the start of a thread's scratch that hold each operand's row offset, then
/// the base addresses.
inline int64_t bookkeeping_bytes(const RowPlan& plan) {
  return (2 * static_cast<int64_t>(plan.operands.size()) + kOperandBase) * 8;
}

/// True if prefetches should go to the L1 cache. In an L1 of 32 KiB they evict data in use, and
/// programs take up to 1.5 times as long. Intel's L1 of 48 KiB fetches too few lines at a time, and
/// programs take up to 1.35 times as long.
bool prefetches_to_l1();
/// True if two kinds of programs should leave prefetching to the hardware: those without sums or
/// scratch, which read their arrays once, and those of one array. On Zen 4 they then take 0.75 to
/// 0.95 of the time; a single kernel that runs to the end of its array takes 0.63. Other machines
/// have not been measured.
bool prefers_hardware_prefetch();
/// Sets the result of prefers_hardware_prefetch(), for tests; nullopt restores the machine's own.
void set_prefers_hardware_prefetch(std::optional<bool> prefers);

/// Returns the least bytes of outputs of one run that are written with non-temporal stores: more
/// than the caches hold. Ordinary stores would first read the lines that they overwrite. Returns
/// the largest int64 if such stores are slow on this machine. Tests set the value; 0 restores the
/// machine's own.
int64_t least_streamed_bytes();
void set_least_streamed_bytes(int64_t bytes);

/// Compiles a row program. With `may_alias`, the plan is right whichever outputs are the same
/// memory as an input, as far as `overlaps` leaves that open. Otherwise stores come as early as
/// possible, and the plan is right if no pair of must_differ has the same address.
RowPlan compile_row_plan(const RowProgram& program, bool may_alias,
                         const RowOverlaps& overlaps = {});
/// The same for run_row_block(). The program has no column reductions.
RowPlan compile_row_blocks(const RowProgram& program, bool may_alias);
/// Runs a plan. `inputs` and `outputs` are base addresses; `scratch` holds shared_bytes_of(threads)
/// and thread_bytes_of(threads) for each thread.
void run_row_plan(const RowPlan& plan, const std::byte* const* inputs, std::byte* const* outputs,
                  std::byte* scratch, int threads);
/// Runs rows [row, row_end) and columns [col, col_end) on this thread; scratch of thread_bytes.
void run_row_block(const RowPlan& plan, const std::byte* const* inputs, std::byte* const* outputs,
                   std::byte* scratch, int64_t row, int64_t row_end, int64_t col, int64_t col_end);

}  // namespace stow::cpu
