// The plan of a product: its tasks, tiles, packed blocks and workspace, by the formula of gemm.h.
// Not a kernel: nothing here depends on the instruction set.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "stowage/core/sums.h"
#include "stowage/runtime/cpu/kernels/gemm.h"

namespace stow::cpu {

inline constexpr int64_t kGemmBlockK = kProductBlock;  // k of a K block
inline constexpr int64_t kGemmRowUnit = 12;      // a multiple of every target's micro-kernel rows
inline constexpr int64_t kGemmTiledRowUnit = 32;  // the same for products of tiles (AMX)
inline constexpr int64_t kGemmColUnit = 32;      // a multiple of every micro-kernel's columns
inline constexpr int64_t kGemmMaxBlockM = 192;   // most rows of A packed at a time, for L2
inline constexpr int64_t kGemmMaxTileN = 1024;   // most columns of B packed at a time
inline constexpr int64_t kGemmFewRowsTileN = 128;  // the same if a task has few rows (a row unit)
inline constexpr int64_t kGemmMaxSums = 1 << 19;   // most partial sums of a tile in the workspace
// Packing as pairs of bf16:
inline constexpr int64_t kGemmPairedDepth = 1024;  // most k packed at a time
inline constexpr int64_t kGemmPairedWhole = 2048;  // the same with many rows: C is written once
inline constexpr int64_t kGemmPairedFewTileN = 512;  // most columns of B if a task has few rows
inline constexpr int64_t kGemmPairedBlock = 96 * 2048;  // most elements of A packed at a time
inline constexpr int64_t kGemmPairsInTile = 16;  // unit of the pairs of a K block in tiles
// Operands are exchanged, so that tiles read rows of B in place, if C has at most kGemmReadCols
// rows and K is at least kGemmReadLeastK.
inline constexpr int64_t kGemmReadCols = 512;
inline constexpr int64_t kGemmReadLeastK = 128;
inline constexpr int64_t kGemmParts = 3;         // bf16 that an f32 is split into, for tiles
inline constexpr int64_t kGemmTripledTileN = 512;  // most columns of B packed as parts at a time
inline constexpr int64_t kGemmTripledBlockM = 64;  // most rows of A packed as parts at a time
inline constexpr int64_t kGemmEpilogueCols = 256;  // columns of a block for one epilogue call
inline constexpr int kGemmMaxDims = 16;          // most dimensions of one class, after merging

/// The dimensions of one class, merged where all strides allow, without extents of 1. `extent` is
/// the product of their extents.
struct GemmDims {
  std::array<GemmDim, kGemmMaxDims> dims;
  int count = 0;
  int64_t extent = 1;
  std::span<const GemmDim> span() const { return {dims.data(), static_cast<size_t>(count)}; }
};

/// How operands are multiplied: as f32 (gemm_f32.cpp); two of bf16 also packed as pairs
/// (gemm_bf16.cpp), or as pairs in tiles (gemm_amx.cpp); and two of f32 split into three bf16 each,
/// in tiles (gemm_triples.cpp).
enum class GemmForm { kPlain, kPaired, kTiled, kTripled };

/// A product ready to run. If `swapped`, A and B (and m and n) are exchanged in all other fields:
/// the plan computes C^T = B^T A^T, which has the same bits.
struct GemmPlan {
  DType a, b, c;
  bool accumulate = false, swapped = false;
  GemmForm form = GemmForm::kPlain;
  GemmDims batch, m, n, k;
  int64_t task_m = 0, task_n = 0;      // rows and columns of one task (multiples of the units)
  int64_t tasks_m = 0, tasks_n = 0;    // tasks of a batch element along m and n
  int64_t tile_m = 0, tile_n = 0;      // a task is computed in tiles; B is packed a tile at a time
  int64_t block_m = 0;                 // rows of A packed at a time
  int64_t depth = 0;                   // k packed at a time: a K block, or several if paired
  bool partial_sums = false;           // sums between depths are in the workspace, not in C
  int threads = 1;                     // threads that get work
  // Bytes of each thread's workspace: packed B, packed A, partial sums of a tile, sums of a block
  // of rows between K blocks of one depth; and all of it.
  int64_t b_pack_bytes = 0, a_pack_bytes = 0, sums_bytes = 0, kept_bytes = 0, thread_bytes = 0;
  int64_t epilogue_bytes = 0;          // scratch of the epilogue, at the end of thread_bytes
  bool whole_rows = false;             // pieces of the epilogue have all columns; never if swapped
  const GemmEpilogueFn* epilogue = nullptr;  // the epilogue; set when the product runs
  // The prologue of an operand, if it has one (`exists`). Its piece and its scratch begin at these
  // offsets of a thread's workspace; `run` and `source` are set when the product runs.
  struct Prologue {
    bool exists = false, rows_are_k = false;
    int64_t piece_at = 0, scratch_at = 0;
    const GemmPrologueFn* run = nullptr;
    GemmSource source;
  } a_prologue, b_prologue;

  int64_t row_unit() const {
    return form == GemmForm::kTiled || form == GemmForm::kTripled ? kGemmTiledRowUnit
                                                                  : kGemmRowUnit;
  }
  int64_t n_tasks() const { return batch.extent * tasks_m * tasks_n; }
};

/// True if machines that can multiply pairs, or tiles, of bf16 may do so for this product.
bool gemm_may_pair(const GemmSpec& spec);

/// True if machines that can multiply tiles of bf16 may split the f32 of this product to use them.
bool gemm_may_triple(const GemmSpec& spec);

/// Plans a product in this form. Aborts on a mix of dtypes, or hooks, that gemm.h does not allow.
GemmPlan plan_gemm(const GemmSpec& spec, int threads, GemmForm form);

/// Writes the offsets of flat indices [first, first + count) of a class of dimensions to out, for
/// the operand whose stride is given: the sum of index * stride over the dimensions.
void gemm_offsets(const GemmDims& dims, int64_t GemmDim::*stride, int64_t first, int64_t count,
                  int64_t* out);

/// Returns the number of ways of this machine's L1 data cache, to choose what is fast. Bits do not
/// depend on it.
int64_t l1_ways();

/// Calls f(batch element, first row, end, first column, end) for each tile of these tasks.
template <typename F>
void for_each_gemm_tile(const GemmPlan& p, int64_t first_task, int64_t last_task, F f) {
  for (int64_t t = first_task; t < last_task; ++t) {
    const int64_t im = t % p.tasks_m, in = t / p.tasks_m % p.tasks_n;
    const int64_t m_end = std::min((im + 1) * p.task_m, p.m.extent);
    const int64_t n_end = std::min((in + 1) * p.task_n, p.n.extent);
    for (int64_t n = in * p.task_n; n < n_end; n += p.tile_n)
      for (int64_t m = im * p.task_m; m < m_end; m += p.tile_m)
        f(t / (p.tasks_m * p.tasks_n), m, std::min(m + p.tile_m, m_end), n,
          std::min(n + p.tile_n, n_end));
  }
}

/// Runs the prologue of an operand for rows [first, first + n) (of B: columns) by [k, k + kc).
/// Returns the piece, which is valid until the next call for this operand. `workspace` is the
/// thread's.
inline const void* run_prologue(const GemmPlan::Prologue& of, int64_t first, int64_t n, int64_t k,
                                int64_t kc, void* workspace) {
  char* const piece = static_cast<char*>(workspace) + of.piece_at;
  void* const scratch = static_cast<char*>(workspace) + of.scratch_at;
  if (of.rows_are_k) (*of.run)(piece, k, k + kc, first, first + n, scratch);
  else (*of.run)(piece, first, first + n, k, k + kc, scratch);
  return piece;
}
/// Offsets in a prologue's piece, in elements: outer[i] of row i (of B: column i), ks[k] of k. Not
/// set if the operand has no prologue.
struct PieceOffsets {
  int64_t outer[kGemmMaxBlockM], ks[kGemmBlockK];
  PieceOffsets(const GemmPlan::Prologue& of, bool of_b) {
    if (!of.exists) return;
    const int64_t stride = gemm_piece_stride(of_b, of.rows_are_k);
    for (int64_t i = 0; i < kGemmMaxBlockM; ++i) outer[i] = of.rows_are_k ? i : i * stride;
    for (int64_t i = 0; i < kGemmBlockK; ++i) ks[i] = of.rows_are_k ? i * stride : i;
  }
};
static_assert(gemm_piece_stride(false, true) == kGemmMaxBlockM &&
              gemm_piece_stride(true, true) == kGemmColUnit &&
              gemm_piece_stride(false, false) == kGemmBlockK);

/// True if the epilogue should run now on a block of `cols` columns, which is computed up to column
/// `done`. The epilogue has run up to column `had`.
inline bool is_epilogue_due(const GemmPlan& p, int64_t had, int64_t done, int64_t cols) {
  return done == cols || (!p.whole_rows && done - had >= kGemmEpilogueCols);
}

/// Runs the epilogue on rows [m0, m1) and columns [n0, n1), which are final. An epilogue of whole
/// rows runs once their last columns are final. `workspace` is the thread's.
inline void run_epilogue(const GemmPlan& p, int64_t m0, int64_t m1, int64_t n0, int64_t n1,
                         void* workspace) {
  void* const scratch = static_cast<char*>(workspace) + p.thread_bytes - p.epilogue_bytes;
  if (p.swapped) (*p.epilogue)(n0, n1, m0, m1, scratch);
  else if (!p.whole_rows) (*p.epilogue)(m0, m1, n0, n1, scratch);
  else if (n1 == p.n.extent) (*p.epilogue)(m0, m1, 0, n1, scratch);
}

}  // namespace stow::cpu
