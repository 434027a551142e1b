// Batched matrix products over any strides, packed, on threads, with a fixed order of sums.
// Not an operator: it knows no graph, checks no shapes and allocates nothing.
//
// C[batch, m, n] = sum over k of A[batch, m, k] * B[batch, k, n]
//
// Bits. K is cut into blocks of 256 (the last may be shorter), counted along the flat k index with
// the first of `k` outermost. Inside a block every element of C has one accumulator that starts at
// zero and takes fma(a, b, acc) for k in order; the results of the blocks are added in order. Sums
// are f32 (f64 when the operands or C are); the total is rounded to C's dtype once. So an element's
// bits depend on its row of A and its column of B only: not on threads, strides, the split of m, n
// or batch, nor on which FMA target runs (AVX2 and AVX-512 agree; the fallback without FMA rounds
// the product too). The payload of a NaN may differ. In products of bf16 with K of at least 16,
// subnormal operands and results may count as zeros, if the machine has instructions for them.
//
// If the machine multiplies tiles of bf16 (AMX), products of two bf16 operands with K of at least
// 16 have other bits, those of the instruction: k goes in steps of 32; in each step the products at
// even k are summed by fma in order from zero, those at odd k likewise, the two sums are added, and
// the result is added to the total. These bits do not depend on threads, strides or splits either.
//
// With AMX, two f32 operands with at least 128 rows, 128 columns and K of at least 128 are each
// split into three bf16, x = x0 + x1 + x2, where each part is the bf16 nearest to the rest (ties
// away from zero); the sum is exact. K is cut into blocks of 256, added in order, as above. Within
// a block k goes in steps of 32, and in each step the products a2 b0, a1 b0, a1 b1, a0 b1, a0 b0,
// a0 b2 are summed in this order, each as the product of two bf16 is. For dense operands the error
// is half of that of the order above.
//   A row of A, or column of B, whose largest magnitude in a block of K is below 2^-40 is
//   multiplied by a power of two before it is split, and its results are divided by it.
//   A row or column that holds an infinity, or 2^63 and more, is not split but multiplied element
//   by element, by fma in order.
//   The instructions take subnormal parts, and give subnormal products, as zeros. In each block
//   that loses less than 2^-34 of the largest of a row times the largest of a column.
// An element's bits then also depend on whether rows, columns and K are at least 128.
//
// accumulate: C = round(C + round(product)): the bits of the product alone, then of an addition.
// Integer operands are widened with their sign; their products wrap in C's dtype.
//
// An epilogue works on C piece by piece, as soon as a piece holds its final values and is still in
// cache. A prologue computes an operand piece by piece, right before each piece is packed; the
// whole operand is never in memory. A prologue may compute an element several times: an element of
// A once for each 1024 columns of C (for f32 on tiles 512, or fewer if the workspace is short), an
// element of B once on each thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "stowage/core/dtype.h"

namespace stow::cpu {

/// One dimension of a product. Strides are in elements, of any sign, and zero if the operand is
/// broadcast along the dimension. Each class of dimensions uses only the strides of the operands
/// that have it: m those of a and c, n of b and c, k of a and b, batch of all three. The elements
/// of C must be distinct.
struct GemmDim {
  int64_t extent = 1, a_stride = 0, b_stride = 0, c_stride = 0;
};

/// Properties of the epilogue that runs on each piece of C.
struct GemmEpilogue {
  bool whole_rows = false;    ///< Pieces must have all columns.
  int64_t scratch_bytes = 0;  ///< Bytes of scratch of one call.
};

/// The epilogue of rows [row, row_end) and columns [col, col_end) of C, which are final. Rows and
/// columns are counted along m and n, the first dimension of each outermost. The calls cover each
/// element once. Several threads may call it at a time, each with scratch of its own, aligned to 64
/// bytes.
using GemmEpilogueFn = std::function<void(int64_t row, int64_t row_end, int64_t col,
                                          int64_t col_end, void* scratch)>;

/// Properties of the prologue that computes an operand.
struct GemmPrologue {
  bool rows_are_k = false;    ///< True: a piece has a row for each k; false: for each m (of B: n).
  int64_t scratch_bytes = 0;  ///< Bytes of scratch of one call.
};
/// Returns the elements from one row of a prologue's piece to the next, for a piece of A or of B.
constexpr int64_t gemm_piece_stride(bool of_b, bool rows_are_k) {
  return !rows_are_k ? 256 : of_b ? 32 : 192;
}

/// The prologue: writes rows [row, row_end) and columns [col, col_end) of an operand to `piece`,
/// whose rows are gemm_piece_stride() elements apart. Called as GemmEpilogueFn is, with scratch of
/// its own.
using GemmPrologueFn = std::function<void(void* piece, int64_t row, int64_t row_end, int64_t col,
                                          int64_t col_end, void* scratch)>;

/// Location of a prologue's input, if it is mainly one array: element [row, col] of the operand is
/// computed from `bytes` bytes at `base` + (row * row_step + col) * bytes. For prefetching only.
struct GemmSource {
  const void* base = nullptr;  ///< Null: not known.
  int64_t bytes = 0, row_step = 0;
};

/// Epilogue and prologues of a product, called if its spec has them, and inputs to prefetch.
struct GemmHooks {
  GemmEpilogueFn epilogue;
  GemmPrologueFn prologue_a, prologue_b;
  GemmSource source_a = {}, source_b = {};
};

/// Dtypes: f32, bf16 and f16 in any mix; or a and b of one dtype and c of another, all floats or
/// all integers.
/// Each class lists its dimensions, outermost first, and may be empty (extent 1).
struct GemmSpec {
  DType a, b, c;
  std::vector<GemmDim> batch, m, n, k;
  bool accumulate = false;
  /// Only where a, b and c are f32, bf16 or f16 and there is no batch.
  std::optional<GemmEpilogue> epilogue = std::nullopt;
  std::optional<GemmPrologue> a_prologue = std::nullopt, b_prologue = std::nullopt;  ///< Likewise.
};

/// Returns the bytes of workspace that gemm() needs, a multiple of 64. They depend on the spec and
/// the number of threads alone. Each thread that gets work needs, each part rounded up to 64 bytes:
///   depth * tile_n + depth * block_m elements of packed operands: depth is K, at most 256;
///   tile_n <= 1024 (128 for at most 12 rows); block_m <= 192;
///   tile_m * tile_n <= 2^19 partial sums where K > 256 and C cannot hold them (C is narrower
///   than sums are, or accumulate).
/// A packed element is an f32, or an f64 if a, b or C are; for integers it has 8 bytes if C's
/// elements have 8, else 4. Two bf16 with K >= 16 need, on every machine, the most of that, of the
/// room to pack them as pairs:
///   as above with elements of 2 bytes and a depth of at most 2048, even (for at most 12 rows a
///   depth of at most 256 and tile_n <= 512);
///   block_m * depth <= 96 * 2048; block_m * 32 sums of f32 where K > 256; and partial sums where K
///   exceeds the depth;
/// and of the room to pack them for tiles: as pairs, with a depth that is a multiple of 32, and
/// with 32 instead of 12 rows. Two f32 that some machines split need what other f32 need, and at
/// least 32 x 256 and 256 x 32 elements of 6 bytes a thread. To each thread's share are added the
/// scratch of the epilogue and, for each operand with a prologue, its scratch and a piece: 192 x
/// 256 elements of A's dtype, or 256 x 32 of B's.
int64_t gemm_workspace_bytes(const GemmSpec& spec, int threads);

/// Computes the product. K = 0 writes zeros, or leaves C alone when accumulating; any other extent
/// of 0 does nothing. `workspace` is aligned to 64 bytes and has gemm_workspace_bytes(spec,
/// threads). C may not overlap A, B or the workspace. Runs on up to `threads` OpenMP threads. Calls
/// those hooks of which the spec has properties; the address of an operand with a prologue is not
/// used.
void gemm(const GemmSpec& spec, const void* a, const void* b, void* c, void* workspace,
          int threads, const GemmHooks& hooks = {});

struct GemmPlan;

/// A product that is planned once and computed many times, by one caller at a time.
class GemmRunner {
 public:
  GemmRunner(GemmSpec spec, int threads);
  ~GemmRunner();

  /// As gemm().
  void run(const void* a, const void* b, void* c, void* workspace, const GemmHooks& hooks = {});

 private:
  GemmSpec spec_;
  int threads_;
  std::unique_ptr<GemmPlan> plan_;
};

}  // namespace stow::cpu
