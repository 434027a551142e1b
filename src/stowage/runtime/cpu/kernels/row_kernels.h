// The kernels a row program is made of: one step over one tile.
// Not the tiling; row_executor.cpp calls these with addresses filled in.
//
// In a register f32, bf16 and f16 are all f32 (rounded to the step's dtype); any other dtype is
// itself, bool one byte. In memory a value has its dtype's own form.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "stowage/base/inside.h"
#include "stowage/core/dtype.h"
#include "stowage/ir/op_list.h"

namespace stow::cpu {

/// The dtype that holds values of `t` in a register.
constexpr DType register_dtype(DType t) {
  return t == DType::kBF16 || t == DType::kF16 ? DType::kF32 : t;
}

/// The form of a float of an f32 register at an address, or what a result is rounded to.
enum class Form : uint8_t { kNative, kBF16, kF16 };
constexpr Form form_of(DType t) {
  return t == DType::kBF16 ? Form::kBF16 : t == DType::kF16 ? Form::kF16 : Form::kNative;
}

/// Memory that later steps will touch. The kernels of f32 fetch a little of it with every kTurnElems
/// elements, so that memory is at work while they compute; what others leave the executor fetches.
class Ahead {
 public:
  static constexpr size_t kTurnElems = 64;

  /// `to_nearest`: into the first cache, else the second.
  explicit Ahead(bool to_nearest) : to_nearest_(to_nearest) {}
  void clear() { n_ranges_ = 0, lines_ = 0, next_ = 0; }
  /// Adds `bytes` bytes at `offset` from `base` to the ranges to fetch. Addresses are numbers here,
  /// as a guess may lie outside of any array. Does nothing if there are kMaxRanges already.
  void add(const std::byte* base, int64_t offset, int64_t bytes) {
    if (n_ranges_ == kMaxRanges || bytes == 0) return;
    const uintptr_t from = reinterpret_cast<uintptr_t>(base) + static_cast<uintptr_t>(offset);
    from_[n_ranges_] = from;
    to_[n_ranges_++] = from + static_cast<uintptr_t>(bytes);
    lines_ += (bytes + kLineBytes - 1) / kLineBytes;
  }
  /// Spreads the fetches over `weight` steps of weight 1.
  void share_out(int64_t weight) {
    a_weight_ = lines_ * kOne / std::max<int64_t>(1, weight);
    pop();
  }
  /// A kernel over `elems` elements begins.
  void begin(int64_t weight, int64_t elems) {
    left_ = a_weight_ * weight;
    a_turn_ = left_ / std::max<int64_t>(1, elems / int64_t{kTurnElems});
  }
  void turn() {
    left_ -= a_turn_;
    due_ += a_turn_;
    if (due_ >= kOne) fetch();
  }
  /// Fetches what the kernel did not.
  void end() {
    due_ += std::max<int64_t>(0, left_);
    if (due_ >= kOne) fetch();
  }

 private:
  void pop() {
    next_ = 0;
    if (n_ranges_ == 0) return;
    --n_ranges_;
    next_ = from_[n_ranges_];
    end_ = to_[n_ranges_];
  }
  void fetch() {
    const int64_t lines = due_ / kOne;
    due_ %= kOne;
    if (next_ == 0) return;
    const auto at = [&](int64_t i) {
      return reinterpret_cast<const void*>(next_ + static_cast<uintptr_t>(i * kLineBytes));
    };
    if (to_nearest_)
      for (int64_t i = 0; i < lines; ++i) __builtin_prefetch(at(i), 0, 3);
    else
      for (int64_t i = 0; i < lines; ++i) __builtin_prefetch(at(i), 0, 2);
    next_ += static_cast<uintptr_t>(lines * kLineBytes);
    if (next_ >= end_) pop();
  }
  static constexpr int64_t kLineBytes = 64, kOne = 1 << 16;
  static constexpr int kMaxRanges = 12;
  const bool to_nearest_;
  // Not pairs, which would be read in one piece before the two that were written are at hand.
  uintptr_t from_[kMaxRanges], to_[kMaxRanges];
  int n_ranges_ = 0;
  uintptr_t next_ = 0, end_ = 0;
  int64_t lines_ = 0;
  int64_t a_weight_ = 0, left_ = 0, a_turn_ = 0, due_ = 0;  // lines, in parts of kOne
};

/// An operand of a kernel: element (r, c) lies at data + r * row_step + c * its size, or, when it
/// is one value a row (`splat`), at data + r * row_step.
struct KernelArg {
  const std::byte* data = nullptr;
  int64_t row_step = 0;  ///< In bytes.
  bool splat = false;
  Form form = Form::kNative;
};

inline constexpr int kMaxKernelArgs = 14;
inline constexpr int64_t kSmallElems = 16;

/// out[r, c] = round(f(args[r, c]...)). `out` may be exactly the address of an argument of its
/// element size.
struct KernelCall {
  int64_t rows = 0, cols = 0;
  std::byte* out = nullptr;
  int64_t out_row_step = 0;  ///< In bytes.
  Form out_form = Form::kNative;
  Form round = Form::kNative;
  /// Results of f32_map_kernel and its like go past the caches; `out` is then a cache line's begin,
  /// in every row.
  bool streams = false;
  /// One row of at most kSmallElems elements in a register's form, nothing rounded; kernels of f32 then
  /// take a shorter way.
  bool is_small = false;
  KernelArg args[kMaxKernelArgs];
  KernelArg more[2];       ///< Further results of kernels that have several.
  int64_t first_col = 0;   ///< For f32_poke_kernel.
  Ahead* ahead = nullptr;  ///< Null where there is nothing to fetch.
};
using MapKernel = void (*)(const KernelCall&);

/// The kernel of an elementwise op from operands of dtype `in` (of the last operand) to a result
/// of dtype `out`, or null where the op has no meaning for them. `kReshape` stands for a copy.
MapKernel map_kernel(OpKind op, DType in, DType out);

/// Moves [rows, cols] elements between any two strided places, steps in bytes.
struct MoveCall {
  int64_t rows = 0, cols = 0;
  const std::byte* from = nullptr;
  int64_t from_row_step = 0, from_col_step = 0;
  std::byte* to = nullptr;
  int64_t to_row_step = 0, to_col_step = 0;
};
using MoveKernel = void (*)(const MoveCall&);
/// From memory of `dtype` to a register, and back.
MoveKernel load_kernel(DType dtype);
MoveKernel store_kernel(DType dtype);

/// Writes start + r * row_step + c * col_step into a register of register_dtype(dtype), `cols`
/// elements a row and rows `out_row_step` bytes apart.
struct IotaCall {
  int64_t rows = 0, cols = 0;
  int64_t start = 0, row_step = 0, col_step = 0;
  std::byte* out = nullptr;
  int64_t out_row_step = 0;
};
using IotaKernel = void (*)(const IotaCall&);
IotaKernel iota_kernel(DType dtype);

inline constexpr int64_t kReduceLanes = 16;

/// Fills `n` accumulators.
using FillKernel = void (*)(std::byte* acc, int64_t n);

/// Folds columns [first_col, first_col + cols) of the `total_cols` of some rows; calls go through
/// a row in order, and none crosses a multiple of kReduceBlock. At the last call `out[r]` is the
/// result, in a register's form.
struct ReduceRowsCall {
  int64_t rows = 0, cols = 0;
  int64_t first_col = 0, total_cols = 0;
  int64_t at_col = 0;  ///< For f32_pick_kernel: as first_col, where threads share a row too.
  KernelArg args[3];           ///< `rows` takes one; f32_pick_kernel an element's position as well.
  KernelArg keep;              ///< Destination of a term's inner value; none if its data is null.
  std::byte* lanes = nullptr;  ///< kReduceLanes accumulators a row, kept between calls.
  std::byte* out = nullptr;    ///< One accumulator a row.
  std::byte *square_lanes = nullptr, *square_out = nullptr;  ///< The same of a second sum.
  Form round = Form::kNative;
  Ahead* ahead = nullptr;
};
using ReduceRowsKernel = void (*)(const ReduceRowsCall&);

/// acc[c] = op(acc[c], arg[r, c]) for r in order.
struct ReduceColumnsCall {
  int64_t rows = 0, cols = 0;
  KernelArg arg;
  KernelArg factors[4];  ///< For `column_products`; for `norm_gradient` what is named there.
  int n_factors = 0;
  std::byte* acc = nullptr;
  std::byte* out = nullptr;  ///< For `norm_gradient`.
  int64_t out_row_step = 0;
  Ahead* ahead = nullptr;
};
using ReduceColumnsKernel = void (*)(const ReduceColumnsCall&);

/// Kernels of reductions by `op` of `dtype`; all null if the op has no meaning for that dtype.
/// Accumulators are of register_dtype(dtype).
struct ReduceKernels {
  ReduceRowsKernel rows = nullptr;
  // Sums of terms whose every op rounds; null where there are none. The inner value, written on
  // the way, may lie over arg 0.
  ReduceRowsKernel products = nullptr;         ///< Sums of the inner value arg 0 * arg 1.
  ReduceRowsKernel products_by_third = nullptr;  ///< Sums of inner * arg 2; inner: arg 0 * arg 1.
  ReduceRowsKernel and_squares = nullptr;        ///< The same, and the sum of the squares of arg 2.
  ReduceRowsKernel squares_of_differences = nullptr;  ///< Sums of squares; inner: arg 0 - arg 1.
  ReduceRowsKernel exps = nullptr;             ///< Sums of the inner value e^(arg 0 - arg 1).
  ReduceColumnsKernel columns = nullptr;
  /// Column sums of arg times the first factor, rounded, times the second if there is one.
  ReduceColumnsKernel column_products = nullptr;
  /// The same of x, s, dy where x is the argument, and with w and c for the next factors the
  /// gradient of x s w: out = (dy w) s + (p + p), p = x c. The splats are s and c; all are f32 in
  /// memory, and `out` may lie over x or dy.
  ReduceColumnsKernel norm_gradient = nullptr;
  /// Fills `n` accumulators with the identity.
  FillKernel fill_identity = nullptr;
};
ReduceKernels reduce_kernels(OpKind op, DType dtype);

// The parts that are vector code, by family; null where it is left to the portable kernels.
MapKernel f32_map_kernel(OpKind op);   ///< f32 to f32; arithmetic and copies.
MapKernel f32_math_kernel(OpKind op);  ///< f32 to f32; exp and its like.
MapKernel f32_test_kernel(OpKind op);  ///< f32 to bool.
MapKernel select32_kernel();           ///< bool and two of f32, i32 or u32.
ReduceKernels f32_reduce_kernels(OpKind op);

/// outer(inner(args 0, 1), arg 2), or outer(arg 2, inner(args 0, 1)); for an outer of one operand,
/// outer(inner(args 0, 1)). All f32; the inner result is rounded to f32. Null if there is none.
MapKernel f32_pair_kernel(OpKind outer, OpKind inner, bool inner_first);
/// outer(left(args 0, 1), right(args 2, 3)).
MapKernel f32_triple_kernel(OpKind outer, OpKind left, OpKind right);
/// left(args 0, 1) + (p + p) where p is args 2 times 3: what the gradient of a square is added to.
MapKernel f32_square_grad_kernel(OpKind left);
/// sqrt(a^2 + b^2) of f32, every op rounded: with m the larger of |a| and |b| and r the smaller divided by
/// it, m sqrt(1 + r r). Infinite where either is, even beside a NaN; 0 where both are 0.
MapKernel f32_hypot_kernel();
/// Kernel for the sum over a row in which all elements count as 0 except the one at column `factor`
/// (one i32 a row, in the row or not).
ReduceRowsKernel f32_pick_kernel();
/// x + (column == position ? c : 0), or x - it; x is arg 0, or args 0 times 1 for `of_product`; then
/// c, then the position, one i32 a row. Null for an outer that is no sum or difference.
MapKernel f32_poke_kernel(OpKind outer, bool of_product);
/// silu(arg 0), or silu(arg 0) times arg 1: f32, bf16 or f16, every op rounded to `round`.
MapKernel f32_gate_kernel(bool has_factor);
/// The gradient of the gate silu(x): with s = logistic(x), dy s + (dy x) (s (1 - s)) from args x and
/// dy. Of silu(x) y with several outputs: the same of dy y, from args x, y and dy; then dy silu(x);
/// then silu(x) y. No argument is a splat; f32, bf16 or f16, every op rounded to `round`.
MapKernel f32_gate_grad_kernel(int n_outs);

/// Kernel of a weight's update by its gradient's moments, of f32, every op rounded. Args are rows,
/// then values of a row: g, m, v, and p where it `updates`; then b1, c1, b2, c2, k1, k2, e; the
/// scale of g where it is `scaled`; the rate where it updates; the decay where it `decays`, which
/// updates too. With g times its scale for g: more[0] is m = m b1 + g c1, more[1] is v = v b2 + (g
/// g) c2, and `out` is r = (m k1) / (sqrt(v k2) + e), or p + r rate, or p + (r + p decay) rate; p less
/// that for `subtracts`. Results may lie over the rows.
MapKernel f32_moments_kernel(bool scaled, bool updates, bool decays, bool subtracts);

// Scalar conversions that the portable kernels and the executor share.
float bf16_to_f32(uint16_t bits);
float f16_to_f32(uint16_t bits);
uint16_t f32_to_bf16(float x);
uint16_t f32_to_f16(float x);

}  // namespace stow::cpu
