// The kernels that row programs call: each computes one step, or several fused steps, over a tile.
// Not the tiling; row_worker.h calls them with addresses filled in.
//
// In a register, f32, bf16 and f16 values are f32 (rounded to the step's dtype); other dtypes have
// their own form, bool as one byte. In memory a value has the form of its dtype.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "stowage/base/inside.h"
#include "stowage/core/dtype.h"
#include "stowage/ir/op_list.h"

namespace stow::cpu {

/// Returns the dtype that holds values of dtype t in a register.
constexpr DType register_dtype(DType t) {
  return t == DType::kBF16 || t == DType::kF16 ? DType::kF32 : t;
}

/// The form in memory of values whose register dtype is f32, or the dtype to which a result is
/// rounded. kNative: f32, or any other dtype as it is; nothing is rounded.
enum class Form : uint8_t { kNative, kBF16, kF16 };
constexpr Form form_of(DType t) {
  return t == DType::kBF16 ? Form::kBF16 : t == DType::kF16 ? Form::kF16 : Form::kNative;
}

/// Memory that later steps will access. Kernels of f32 prefetch a little of it after every
/// kTickElems elements, so that memory and arithmetic overlap; the executor prefetches the rest
/// after a kernel.
class Prefetcher {
 public:
  static constexpr size_t kTickElems = 64;

  /// `to_nearest`: prefetches into L1; otherwise into L2.
  explicit Prefetcher(bool to_nearest) : to_nearest_(to_nearest) {}
  void clear() { n_ranges_ = 0, lines_ = 0, next_ = 0; }
  /// Adds `bytes` bytes at `offset` from `base` to the ranges to prefetch. Addresses are numbers
  /// here, as a guess may be outside of any array. Does nothing if there are kMaxRanges already.
  void add(const std::byte* base, int64_t offset, int64_t bytes) {
    if (n_ranges_ == kMaxRanges || bytes == 0) return;
    const uintptr_t from = reinterpret_cast<uintptr_t>(base) + static_cast<uintptr_t>(offset);
    from_[n_ranges_] = from;
    to_[n_ranges_++] = from + static_cast<uintptr_t>(bytes);
    lines_ += (bytes + kLineBytes - 1) / kLineBytes;
  }
  /// Spreads the prefetches over steps whose weights sum to `weight` (PlanStep::weight).
  void share_out(int64_t weight) {
    per_weight_ = lines_ * kOne / std::max<int64_t>(1, weight);
    pop();
  }
  /// Called before a step of this weight, whose kernel computes `elems` elements.
  void begin(int64_t weight, int64_t elems) {
    left_ = per_weight_ * weight;
    per_tick_ = left_ / std::max<int64_t>(1, elems / int64_t{kTickElems});
  }
  /// Called by kernels after every kTickElems elements.
  void tick() {
    left_ -= per_tick_;
    due_ += per_tick_;
    if (due_ >= kOne) fetch();
  }
  /// Called after the step: prefetches what its kernel has not.
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
  // Ranges of addresses. Two arrays, not one of pairs: a compiler would load a pair at once, just
  // after its halves were stored separately, which stalls.
  uintptr_t from_[kMaxRanges], to_[kMaxRanges];
  int n_ranges_ = 0;
  uintptr_t next_ = 0, end_ = 0;  // the rest of the current range
  int64_t lines_ = 0;             // lines of all ranges
  // Lines for a step of weight 1, left for the current step, for each tick, and due now; in parts
  // of kOne.
  int64_t per_weight_ = 0, left_ = 0, per_tick_ = 0, due_ = 0;
};

/// An operand of a kernel. Element (r, c) is at data + r * row_step + c * its size. If it has one
/// value for each row (`splat`), that is at data + r * row_step.
struct KernelArg {
  const std::byte* data = nullptr;
  int64_t row_step = 0;  ///< In bytes.
  bool splat = false;
  Form form = Form::kNative;
};

inline constexpr int kMaxKernelArgs = 14;
inline constexpr int64_t kSmallElems = 16;  // most elements of a call with is_small

/// A call of a map kernel: out[r, c] = round(f(args[r, c]...)). `out` may be exactly the address of
/// an argument with elements of the same size.
struct KernelCall {
  int64_t rows = 0, cols = 0;
  std::byte* out = nullptr;
  int64_t out_row_step = 0;  ///< In bytes.
  Form out_form = Form::kNative;
  Form round = Form::kNative;
  /// True: f32 map kernels write `out` with non-temporal stores; each row of `out` then begins at a
  /// cache line.
  bool streams = false;
  /// True: one row of at most kSmallElems elements in a register's form, without rounding. Kernels
  /// of f32 then take a shorter path.
  bool is_small = false;
  KernelArg args[kMaxKernelArgs];
  KernelArg more[2];       ///< Further results of kernels that have several.
  int64_t first_col = 0;   ///< First column, for f32_one_hot_add_kernel and f32_one_hot_kernel.
  Prefetcher* ahead = nullptr;  ///< Null if there is nothing to prefetch.
};
using MapKernel = void (*)(const KernelCall&);

/// Returns the kernel of an elementwise op from operands of dtype `in` (that of the last operand)
/// to a result of dtype `out`; null if the op is not defined for them. kReshape is a copy.
MapKernel map_kernel(OpKind op, DType in, DType out);

/// A call that moves [rows, cols] elements between any two strided places; steps are in bytes.
struct MoveCall {
  int64_t rows = 0, cols = 0;
  const std::byte* from = nullptr;
  int64_t from_row_step = 0, from_col_step = 0;
  std::byte* to = nullptr;
  int64_t to_row_step = 0, to_col_step = 0;
};
using MoveKernel = void (*)(const MoveCall&);
/// Return the kernel that moves elements of `dtype` from memory to a register, and from a register
/// to memory.
MoveKernel load_kernel(DType dtype);
MoveKernel store_kernel(DType dtype);

/// A call that writes start + r * row_step + c * col_step into a register of register_dtype(dtype),
/// `cols` elements in each row and rows `out_row_step` bytes apart.
struct IotaCall {
  int64_t rows = 0, cols = 0;
  int64_t start = 0, row_step = 0, col_step = 0;
  std::byte* out = nullptr;
  int64_t out_row_step = 0;
};
using IotaKernel = void (*)(const IotaCall&);
IotaKernel iota_kernel(DType dtype);

inline constexpr int64_t kReduceLanes = 16;  // accumulators of a row (ir/row_program.h)

/// Fills `n` accumulators with the identity of a reduction.
using FillKernel = void (*)(std::byte* acc, int64_t n);

/// A call of a row reduction: folds columns [first_col, first_col + cols) of rows of `total_cols`
/// columns. Calls go through a row in order, and none crosses a multiple of kReduceBlock. After the
/// last call out[r] is the result, in a register's form.
struct ReduceRowsCall {
  int64_t rows = 0, cols = 0;
  int64_t first_col = 0, total_cols = 0;
  /// For f32_one_hot_sum_kernel: the first column in the whole row, also if threads share the row
  /// in blocks.
  int64_t at_col = 0;
  KernelArg args[3];           ///< `rows` takes one; f32_one_hot_sum_kernel also a position.
  KernelArg keep;              ///< Destination of a term's inner value; none if its data is null.
  std::byte* lanes = nullptr;  ///< kReduceLanes accumulators for each row, kept between calls.
  std::byte* out = nullptr;    ///< One accumulator for each row.
  std::byte *square_lanes = nullptr, *square_out = nullptr;  ///< The same for and_squares' 2nd sum.
  Form round = Form::kNative;
  Prefetcher* ahead = nullptr;
};
using ReduceRowsKernel = void (*)(const ReduceRowsCall&);

/// A call of a column reduction: acc[c] = op(acc[c], arg[r, c]) for r in order.
struct ReduceColumnsCall {
  int64_t rows = 0, cols = 0;
  KernelArg arg;
  KernelArg factors[4];  ///< Further arguments of `column_products` and `norm_gradient`.
  int n_factors = 0;
  std::byte* acc = nullptr;
  std::byte* out = nullptr;  ///< For `norm_gradient`.
  int64_t out_row_step = 0;
  Prefetcher* ahead = nullptr;
};
using ReduceColumnsKernel = void (*)(const ReduceColumnsCall&);

/// Kernels of reductions by one op of one dtype. Accumulators are of register_dtype(dtype).
struct ReduceKernels {
  ReduceRowsKernel rows = nullptr;  ///< Reduces arg 0.
  // Sums of terms in which every op is rounded; null if there is no such kernel. If `keep` is
  // given, they also write the inner value there, which may be the memory of arg 0.
  ReduceRowsKernel products = nullptr;         ///< Sums of the inner value arg 0 * arg 1.
  ReduceRowsKernel products_by_third = nullptr;  ///< Sums of inner * arg 2; inner: arg 0 * arg 1.
  ReduceRowsKernel and_squares = nullptr;        ///< The same, and the sum of the squares of arg 2.
  ReduceRowsKernel squares_of_differences = nullptr;  ///< Sums of squares; inner: arg 0 - arg 1.
  ReduceRowsKernel exps = nullptr;             ///< Sums of the inner value e^(arg 0 - arg 1).
  ReduceColumnsKernel columns = nullptr;
  /// Column sums of arg times the first factor, rounded, times the second if there is one.
  ReduceColumnsKernel column_products = nullptr;
  /// Column sums of (x s) dy and, in the same pass, the gradient of x s w: out = (dy w) s + (p + p)
  /// with p = x c. `arg` is x, `factors` are s, dy, w and c. s and c are splats; all are f32 in
  /// memory, and `out` may be the memory of x or dy.
  ReduceColumnsKernel norm_gradient = nullptr;
  FillKernel fill_identity = nullptr;
};
/// Returns the kernels of reductions by `op` of `dtype`; all null if the op is not defined for it.
ReduceKernels reduce_kernels(OpKind op, DType dtype);

// Vector kernels by family of ops; null if the portable kernels have the op.
MapKernel f32_map_kernel(OpKind op);   ///< f32 to f32; arithmetic and copies.
MapKernel f32_math_kernel(OpKind op);  ///< f32 to f32; exp and its like.
MapKernel f32_test_kernel(OpKind op);  ///< f32 to bool.
MapKernel select32_kernel();           ///< bool and two of f32, i32 or u32.
ReduceKernels f32_reduce_kernels(OpKind op);

// Kernels of fused steps. Each op is rounded as if it were a step of its own.

/// outer(inner(arg 0, arg 1), arg 2) if `inner_first`, else outer(arg 2, inner(arg 0, arg 1)); for
/// an outer of one operand, outer(inner(arg 0, arg 1)). All f32. Null if there is no such kernel.
MapKernel f32_pair_kernel(OpKind outer, OpKind inner, bool inner_first);
/// outer(left(arg 0, arg 1), right(arg 2, arg 3)), all f32. Null if there is no such kernel.
MapKernel f32_triple_kernel(OpKind outer, OpKind left, OpKind right);
/// left(arg 0, arg 1) + (p + p) with p = arg 2 * arg 3, as when the gradient of a square is added.
MapKernel f32_square_grad_kernel(OpKind left);
/// sqrt(a^2 + b^2) of f32, computed as m sqrt(1 + r r), where m is the larger of |a| and |b| and r
/// is the smaller divided by m. Infinite if either is, even with a NaN; 0 if both are 0.
MapKernel f32_hypot_kernel();
/// The sum over a row of arg 0 in which all elements count as 0 except the one at column arg 1 (one
/// i32 for each row, which may be out of range).
ReduceRowsKernel f32_one_hot_sum_kernel();
/// x + e for kAdd, x - e for kSub, with e = (column == position ? c : 0); null for other ops. x is
/// arg 0, or arg 0 * arg 1 for `of_product`; the next args are c and position (one i32 for each
/// row).
MapKernel f32_one_hot_add_kernel(OpKind outer, bool of_product);
/// silu(arg 0), or silu(arg 0) times arg 1: f32, bf16 or f16, every op rounded to `round`.
MapKernel f32_gate_kernel(bool has_factor);
/// The gradient of the gate silu(x) or silu(x) y. With s = logistic(x):
///   n_outs = 1: args x, dy; out = dy s + (dy x) (s (1 - s)).
///   n_outs > 1: args x, y, dy; out as above with dy y for dy; then more results: dy silu(x), and
///   silu(x) y if n_outs is 3.
/// No argument is a splat; f32, bf16 or f16, every op rounded to `round`.
MapKernel f32_gate_grad_kernel(int n_outs);

/// The update of a weight p by the moments m and v of its gradient g, as in Adam, of f32.
///   Args with all columns: g, m, v, and p if `updates`.
///   Args with one value for each row: b1, c1, b2, c2, k1, k2, e; then the scale of g if `scaled`,
///   the rate if `updates`, the decay if `decays` (which requires `updates`).
///   Results, with g * scale for g if `scaled`: more[0] is m = m b1 + g c1, more[1] is
///   v = v b2 + (g g) c2. With r = (m k1) / (sqrt(v k2) + e), out is r; p + r rate if `updates`;
///   p + (r + p decay) rate if `decays`. For `subtracts`, out is p - … instead of p + ….
///   Results may be in the memory of args with all columns.
MapKernel f32_moments_kernel(bool scaled, bool updates, bool decays, bool subtracts);

// Scalar conversions that the portable kernels and the executor share.
float bf16_to_f32(uint16_t bits);
float f16_to_f32(uint16_t bits);
uint16_t f32_to_bf16(float x);
uint16_t f32_to_f16(float x);

}  // namespace stow::cpu
