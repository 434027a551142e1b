// Batched matrix products over any strides, packed, threaded, with bits given by K alone.
// Not an operator: no graph, no shapes to check, no allocation of its own.
//
// C[batch, m, n] = sum over k of A[batch, m, k] * B[batch, k, n]
//
// Bits. K is cut into blocks of 256 (the last may be shorter), counted along the flat k index with
// the first of `k` outermost. Inside a block every element of C has one accumulator that starts at
// zero and takes fma(a, b, acc) for k in order; the results of the blocks are added in order. Sums
// are f32 (f64 when the operands or C are); the total is rounded to C's dtype once. So an element's bits
// depend on its row of A and its column of B only: not on threads, strides, the split of m, n or
// batch, nor on which FMA target runs (AVX2 and AVX-512 agree; the fallback without FMA rounds the
// product too). The payload of a NaN is not covered; nor are subnormal numbers in products of bf16
// with K of at least 16, which machines with instructions for them may take and give as zeros.
//
// If the machine multiplies tiles of bf16 (AMX), two bf16 operands with K of at least 16 have
// other bits, the instruction's, on which all of the above does not depend either: k goes in steps
// of 32; in each, the products at even k are summed by fma in order from zero, those at odd k
// likewise, the two sums are added, and that is added to the total.
//
// On such a machine two f32 operands with at least 128 rows, 128 columns and K of at least 128 are
// each split into three bf16, x = x0 + x1 + x2, of which each is the nearest bf16 to what is left
// (ties away from zero); that is exact. K is cut into blocks of 256, added in order, as above;
// within a block k goes in steps of 32, and in each the products a2 b0, a1 b0, a1 b1, a0 b1, a0 b0,
// a0 b2 are summed in this order, each as the product of two bf16 is. Of dense operands that loses
// half of what the order above loses. A row of A, or column of B, whose largest magnitude in a
// block of K is below 2^-40 is multiplied by a power of two before it is split, and its results are
// divided by it; one that holds an infinity, or 2^63 and more, is not split but multiplied element
// by element, by fma in order. Parts and products that the instructions take or give as zeros,
// being subnormal, then make less than 2^-34 of the largest of a row times the largest of a column,
// for each block. So an element's bits depend, besides its row and its column, on whether rows,
// columns and K are that many.
//
// accumulate: C = round(C + round(product)): the bits of the product alone, then of an addition.
// Integer operands are widened with their sign; their products wrap in C's dtype.
//
// An epilogue works on C piece by piece, as soon as a piece holds its final values and while it is
// near. A prologue makes an operand piece by piece, right before each is packed; the operand is
// never all there. An element may be made several times: of A once for 1024 columns of C (512, or
// fewer where workspace is short, of f32 on tiles), of B by each thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "stowage/core/dtype.h"

namespace stow::cpu {

/// One dimension of a product. Strides in elements, of any sign; zero where an operand is broadcast
/// along it. A class uses only the strides of operands that have it: m of a and c, n of b and c,
/// k of a and b, batch of all three. The elements of C must be distinct.
struct GemmDim {
  int64_t extent = 1, a_stride = 0, b_stride = 0, c_stride = 0;
};

/// Properties of the epilogue that runs on each piece of C.
struct GemmEpilogue {
  bool whole_rows = false;    ///< Pieces have all columns.
  int64_t scratch_bytes = 0;  ///< Bytes of scratch of one piece at work.
};

/// Rows [row, row_end) and columns [col, col_end) of C, counted along m and n with the first of each
/// outermost, are final; each element once. Several threads may call it, each with scratch of its own,
/// aligned to 64 bytes.
using GemmFinish = std::function<void(int64_t row, int64_t row_end, int64_t col, int64_t col_end,
                                      void* scratch)>;

/// Properties of the prologue that makes an operand.
struct GemmPrologue {
  bool rows_are_k = false;    ///< Rows of its pieces run along k, else along m (of B: n).
  int64_t scratch_bytes = 0;  ///< Bytes of scratch of one piece at work.
};
/// Elements from one row of a piece to the next: of A, or of B.
constexpr int64_t gemm_piece_stride(bool of_b, bool rows_are_k) {
  return !rows_are_k ? 256 : of_b ? 32 : 192;
}

/// Writes rows [row, row_end) and columns [col, col_end) of an operand to `piece`, rows as far apart
/// as gemm_piece_stride() says. Scratch as above.
using GemmFill = std::function<void(void* piece, int64_t row, int64_t row_end, int64_t col,
                                    int64_t col_end, void* scratch)>;

/// Location of a prologue's input, if that is mainly one array: element [row, col] of the operand
/// is made of `bytes` at `base` + (row * row_step + col) * bytes. Serves prefetching alone.
struct GemmSource {
  const void* base = nullptr;  ///< Null: not known.
  int64_t bytes = 0, row_step = 0;
};

/// Functions that a product calls if its spec says so, and arrays that it may prefetch.
struct GemmHooks {
  GemmFinish finish;
  GemmFill fill_a, fill_b;
  GemmSource source_a = {}, source_b = {};
};

/// Dtypes: f32, bf16 and f16 in any mix; or a and b of one dtype and c of another, all floats or all
/// integers.
/// Each class lists its dimensions, outermost first, and may be empty (extent 1).
struct GemmSpec {
  DType a, b, c;
  std::vector<GemmDim> batch, m, n, k;
  bool accumulate = false;
  /// Only where a, b and c are f32, bf16 or f16 and there is no batch.
  std::optional<GemmEpilogue> epilogue = std::nullopt;
  std::optional<GemmPrologue> a_prologue = std::nullopt, b_prologue = std::nullopt;  ///< Likewise.
};

/// Bytes of workspace that gemm() needs, a multiple of 64 and a function of the spec and the number
/// of threads alone. Per thread that gets work, each part rounded up to 64 bytes:
///   depth * tile_n + depth * block_m elements of packed operands: depth is K, at most 256;
///   tile_n <= 1024 (128 for at most 12 rows); block_m <= 192;
///   tile_m * tile_n <= 2^19 partial sums where K > 256 and C cannot hold them (C is narrower
///   than sums are, or accumulate).
/// An element is an f32, or an f64 where a, b or C are; of integers, it has 8 bytes if C's have,
/// else 4. For two bf16 and K >= 16, what packing them as pairs needs where that is more, on every
/// machine:
///   as above with elements of 2 bytes and a depth of at most 2048, even (for at most 12 rows a
///   depth of at most 256 and tile_n <= 512);
///   block_m * depth <= 96 * 2048; block_m * 32 sums of f32 where K > 256; and partial sums where K
///   exceeds the depth;
/// or what packing them for tiles needs, where that is more still: the same with a depth that is a
/// multiple of 32, and 32 for those 12 rows. Two f32 that are split on some machines have the same
/// room there, or where that is less than 32 x 256 and 256 x 32 elements of 6 bytes a thread,
/// those. To each thread's share are added the scratch of an epilogue and, for each operand with a
/// prologue, that one's scratch and a piece: 192 x 256 elements of A's dtype, or 256 x 32 of B's.
int64_t gemm_workspace_bytes(const GemmSpec& spec, int threads);

/// Computes the product. K = 0 writes zeros, or leaves C alone when accumulating; another extent of
/// 0 does nothing. `workspace` is aligned to 64 bytes and has gemm_workspace_bytes(spec, threads).
/// C may not overlap A, B or the workspace. Runs on up to `threads` OpenMP threads. The hooks are called
/// where the spec has an epilogue or a prologue; the address of an operand with one is not used.
void gemm(const GemmSpec& spec, const void* a, const void* b, void* c, void* workspace,
          int threads, const GemmHooks& hooks = {});

struct GemmPlan;

/// A product that is computed again and again, by one thread at a time: it is planned once.
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
