// Reductions of a row program without vector code: all dtypes but those of f32 registers.
#include <concepts>
#include <cstring>
#include <limits>

#include "stowage/ir/row_program.h"
#include "stowage/runtime/cpu/kernels/row_kernels.h"
#include "stowage/runtime/cpu/kernels/row_scalar.h"

namespace stow::cpu {
namespace {

using scalar::Bool;

template <OpKind Reduce, typename T>
struct Fold;
template <typename T>
struct Fold<OpKind::kReduceSum, T> {
  static T identity() { return T(0); }
  static T fold(T a, T b) { return scalar::Binary<OpKind::kAdd, T>::apply(a, b); }
};
template <typename T>
struct Fold<OpKind::kReduceProd, T> {
  static T identity() { return T(1); }
  static T fold(T a, T b) { return scalar::Binary<OpKind::kMul, T>::apply(a, b); }
};
template <typename T>
struct Fold<OpKind::kReduceMax, T> {
  static T identity() {
    if constexpr (std::same_as<T, Bool>)
      return Bool{0};
    else if constexpr (scalar::Float<T>)
      return -std::numeric_limits<T>::infinity();
    else
      return std::numeric_limits<T>::min();
  }
  static T fold(T a, T b) { return scalar::Binary<OpKind::kMax, T>::apply(a, b); }
};
template <typename T>
struct Fold<OpKind::kReduceMin, T> {
  static T identity() {
    if constexpr (std::same_as<T, Bool>)
      return Bool{1};
    else if constexpr (scalar::Float<T>)
      return std::numeric_limits<T>::infinity();
    else
      return std::numeric_limits<T>::max();
  }
  static T fold(T a, T b) { return scalar::Binary<OpKind::kMin, T>::apply(a, b); }
};
template <typename T>
struct Fold<OpKind::kReduceAnd, T> {
  static T identity() {
    if constexpr (std::same_as<T, Bool>)
      return Bool{1};
    else
      return static_cast<T>(~T(0));
  }
  static T fold(T a, T b) { return scalar::Binary<OpKind::kAnd, T>::apply(a, b); }
};
template <typename T>
struct Fold<OpKind::kReduceOr, T> {
  static T identity() { return T(0); }
  static T fold(T a, T b) { return scalar::Binary<OpKind::kOr, T>::apply(a, b); }
};

template <typename T, typename F>
void reduce_rows(const ReduceRowsCall& c) {
  for (int64_t r = 0; r < c.rows; ++r) {
    T* lanes = reinterpret_cast<T*>(c.lanes) + r * kReduceLanes;
    const T* x = reinterpret_cast<const T*>(c.args[0].data + r * c.args[0].row_step);
    if (c.first_col % kReduceBlock == 0)
      for (int64_t l = 0; l < kReduceLanes; ++l) lanes[l] = F::identity();
    int64_t i = 0;
    if (!c.args[0].splat)
      for (; i + kReduceLanes <= c.cols; i += kReduceLanes)
        for (int64_t l = 0; l < kReduceLanes; ++l) lanes[l] = F::fold(lanes[l], x[i + l]);
    for (; i < c.cols; ++i)
      lanes[i % kReduceLanes] = F::fold(lanes[i % kReduceLanes], x[c.args[0].splat ? 0 : i]);
    const int64_t end = c.first_col + c.cols;
    if (end % kReduceBlock != 0 && end != c.total_cols) continue;
    for (int64_t half = kReduceLanes / 2; half > 0; half /= 2)
      for (int64_t l = 0; l < half; ++l) lanes[l] = F::fold(lanes[l], lanes[l + half]);
    T* out = reinterpret_cast<T*>(c.out) + r;
    *out = end <= kReduceBlock ? lanes[0] : F::fold(*out, lanes[0]);
  }
}

void one_hot_sum_f32(const ReduceRowsCall& c) {
  for (int64_t r = 0; r < c.rows; ++r) {
    int32_t column;
    std::memcpy(&column, c.args[1].data + r * c.args[1].row_step, sizeof(column));
    auto* out = reinterpret_cast<float*>(c.out) + r;
    if (c.first_col == 0) *out = 0;
    const int64_t i = column - c.at_col;
    if (i < 0 || i >= c.cols) continue;
    float x;
    std::memcpy(&x, c.args[0].data + r * c.args[0].row_step + (c.args[0].splat ? 0 : i * 4),
                sizeof(x));
    *out += x;
  }
}

template <typename T, typename F>
void reduce_columns(const ReduceColumnsCall& c) {
  T* acc = reinterpret_cast<T*>(c.acc);
  for (int64_t r = 0; r < c.rows; ++r) {
    const T* x = reinterpret_cast<const T*>(c.arg.data + r * c.arg.row_step);
    for (int64_t i = 0; i < c.cols; ++i) acc[i] = F::fold(acc[i], x[c.arg.splat ? 0 : i]);
  }
}

template <typename T, typename F>
void fill_identity(std::byte* acc, int64_t n) {
  for (int64_t i = 0; i < n; ++i) reinterpret_cast<T*>(acc)[i] = F::identity();
}

template <typename T, OpKind K>
ReduceKernels find_one() {
  using F = Fold<K, T>;
  if constexpr (requires(T x) { F::fold(x, x); })
    return {.rows = reduce_rows<T, F>,
            .columns = reduce_columns<T, F>,
            .fill_identity = fill_identity<T, F>};
  else
    return {};
}

template <typename T>
ReduceKernels find(OpKind op) {
  constexpr bool kBool = std::same_as<T, Bool>, kFloat = scalar::Float<T>;
  if (op == OpKind::kReduceMax) return find_one<T, OpKind::kReduceMax>();
  if (op == OpKind::kReduceMin) return find_one<T, OpKind::kReduceMin>();
  if constexpr (!kBool) {
    if (op == OpKind::kReduceSum) return find_one<T, OpKind::kReduceSum>();
    if (op == OpKind::kReduceProd) return find_one<T, OpKind::kReduceProd>();
  }
  if constexpr (!kFloat) {
    if (op == OpKind::kReduceAnd) return find_one<T, OpKind::kReduceAnd>();
    if (op == OpKind::kReduceOr) return find_one<T, OpKind::kReduceOr>();
  }
  return {};
}

}  // namespace

ReduceRowsKernel f32_one_hot_sum_kernel() {
  return one_hot_sum_f32;
}

ReduceKernels reduce_kernels(OpKind op, DType dtype) {
  switch (register_dtype(dtype)) {
    case DType::kF64:
      return find<double>(op);
    case DType::kF32:
      return f32_reduce_kernels(op);
    case DType::kI64:
      return find<int64_t>(op);
    case DType::kI32:
      return find<int32_t>(op);
    case DType::kI8:
      return find<int8_t>(op);
    case DType::kU64:
      return find<uint64_t>(op);
    case DType::kU32:
      return find<uint32_t>(op);
    case DType::kU8:
      return find<uint8_t>(op);
    case DType::kBool:
      return find<Bool>(op);
    case DType::kBF16:
    case DType::kF16:
      break;
  }
  return {};
}

}  // namespace stow::cpu
