// Map kernels whose loops the compiler makes vectors of: arithmetic of f64, the integers and bool,
// comparisons, choices and conversions, those of f32 among them where it lies in memory as it is.
// Once for each instruction set; the bits are the same in all, as nothing is contracted and every
// operation is exact or rounded as IEEE has it.
#include <algorithm>
#include <bit>
#include <concepts>
#include <cstring>
#include <type_traits>

#include "stowage/runtime/cpu/kernels/row_kernels_plain.h"
#include "stowage/runtime/cpu/kernels/row_scalar.h"
#include "stowage/runtime/cpu/kernels/simd_targets.h"

// A result may lie over an operand, element over element: no iteration reads what another writes.
#ifdef __clang__
#define STOW_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define STOW_INDEPENDENT _Pragma("GCC ivdep")
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stowage/runtime/cpu/kernels/row_kernels_plain.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "stowage/runtime/cpu/kernels/row_kernels_f32-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stow::cpu::HWY_NAMESPACE {

using scalar::Bool;

// Elements at a time: what a splat is written out for.
constexpr int64_t kPart = 256;

// A row of an argument, or a splat written out.
template <typename T>
struct PlainRow {
  const T* data;
  int64_t mask;  // ~0, or 0 for a splat
};
template <typename T>
PlainRow<T> plain_row(const KernelArg& arg, int64_t row, int64_t cols, T* splat) {
  const T* data = reinterpret_cast<const T*>(arg.data + row * arg.row_step);
  if (!arg.splat) return {data, ~int64_t{0}};
  std::fill_n(splat, std::min(cols, kPart), *data);
  return {splat, 0};
}

template <typename Out, typename In, class F>
void plain1(const KernelCall& c) {
  if (c.rows == 1 && c.cols == 1) {
    *reinterpret_cast<Out*>(c.out) = F::apply(*reinterpret_cast<const In*>(c.args[0].data));
    return;
  }
  In splat[kPart];
  for (int64_t r = 0; r < c.rows; ++r) {
    Out* out = reinterpret_cast<Out*>(c.out + r * c.out_row_step);
    const PlainRow<In> a = plain_row(c.args[0], r, c.cols, splat);
    for (int64_t i = 0; i < c.cols; i += kPart) {
      const int64_t n = std::min(kPart, c.cols - i);
      const In* x = a.data + (i & a.mask);
      Out* y = out + i;
      STOW_INDEPENDENT
      for (int64_t k = 0; k < n; ++k) y[k] = F::apply(x[k]);
    }
  }
}

template <typename Out, typename In, class F>
void plain2(const KernelCall& c) {
  if (c.rows == 1 && c.cols == 1) {
    *reinterpret_cast<Out*>(c.out) = F::apply(*reinterpret_cast<const In*>(c.args[0].data),
                                              *reinterpret_cast<const In*>(c.args[1].data));
    return;
  }
  In splats[2][kPart];
  for (int64_t r = 0; r < c.rows; ++r) {
    Out* out = reinterpret_cast<Out*>(c.out + r * c.out_row_step);
    const PlainRow<In> a = plain_row(c.args[0], r, c.cols, splats[0]);
    const PlainRow<In> b = plain_row(c.args[1], r, c.cols, splats[1]);
    for (int64_t i = 0; i < c.cols; i += kPart) {
      const int64_t n = std::min(kPart, c.cols - i);
      const In *x = a.data + (i & a.mask), *y = b.data + (i & b.mask);
      Out* z = out + i;
      STOW_INDEPENDENT
      for (int64_t k = 0; k < n; ++k) z[k] = F::apply(x[k], y[k]);
    }
  }
}

// Remainders by one divisor a row, by way of its reciprocal in double, which is made too large by
// 2^-50 of itself: no quotient comes out below an integer that it is, and as dividends are below
// 2^32, none reaches an integer that it is not.
void rem_i32(const KernelCall& c) {
  using Rem = scalar::Binary<OpKind::kRem, int32_t>;
  for (int64_t r = 0; r < c.rows; ++r) {
    KernelCall row = c;
    row.rows = 1;
    row.out += r * c.out_row_step;
    for (KernelArg* arg : {&row.args[0], &row.args[1]}) arg->data += r * arg->row_step;
    int32_t divisor = 0;
    if (c.args[1].splat) std::memcpy(&divisor, row.args[1].data, sizeof(divisor));
    if (divisor == 0 || divisor == -1 || c.args[0].splat) {
      plain2<int32_t, int32_t, Rem>(row);
      continue;
    }
    const double inverse = 1.0 / divisor * (1 + 0x1p-50);
    const auto* x = reinterpret_cast<const int32_t*>(row.args[0].data);
    auto* y = reinterpret_cast<int32_t*>(row.out);
    STOW_INDEPENDENT
    for (int64_t i = 0; i < c.cols; ++i) {
      const auto quotient = static_cast<int32_t>(x[i] * inverse);
      y[i] =
          static_cast<int32_t>(scalar::wide(x[i]) - scalar::wide(quotient) * scalar::wide(divisor));
    }
  }
}

// A row of which one operand is chosen whole.
template <typename T>
void copy_chosen(T* out, const KernelArg& arg, int64_t row, int64_t cols) {
  const T* from = reinterpret_cast<const T*>(arg.data + row * arg.row_step);
  if (arg.splat)
    std::fill_n(out, cols, *from);
  else if (from != out)
    std::memcpy(out, from, static_cast<size_t>(cols) * sizeof(T));
}

template <typename T>
void plain_select(const KernelCall& c) {
  T splats[2][kPart];
  for (int64_t r = 0; r < c.rows; ++r) {
    T* out = reinterpret_cast<T*>(c.out + r * c.out_row_step);
    const auto* conditions =
        reinterpret_cast<const uint8_t*>(c.args[0].data + r * c.args[0].row_step);
    if (c.args[0].splat) {
      copy_chosen(out, c.args[*conditions != 0 ? 1 : 2], r, c.cols);
      continue;
    }
    const PlainRow<T> a = plain_row(c.args[1], r, c.cols, splats[0]);
    const PlainRow<T> b = plain_row(c.args[2], r, c.cols, splats[1]);
    for (int64_t i = 0; i < c.cols; i += kPart) {
      const int64_t n = std::min(kPart, c.cols - i);
      const uint8_t* chosen = conditions + i;
      const T *x = a.data + (i & a.mask), *y = b.data + (i & b.mask);
      T* z = out + i;
      STOW_INDEPENDENT
      for (int64_t k = 0; k < n; ++k) {
        const T yes = x[k], no = y[k];
        z[k] = chosen[k] != 0 ? yes : no;
      }
    }
  }
}

// True if these arguments and the result lie in memory as in a register.
bool are_native(const KernelCall& c, int first, int last) {
  bool native = c.out_form == Form::kNative && c.round == Form::kNative;
  for (int k = first; k < last; ++k) native = native && c.args[k].form == Form::kNative;
  return native;
}
void plain_select32(const KernelCall& c) {
  if (are_native(c, 1, 3)) return plain_select<uint32_t>(c);
  select32_kernel()(c);
}
template <OpKind K>
void test32(const KernelCall& c) {
  if (are_native(c, 0, 2)) return plain2<Bool, float, scalar::Test<K, float>>(c);
  f32_test_kernel(K)(c);
}

// A byte that is 0 or not.
template <typename To>
struct FromBool {
  // As arithmetic: of a comparison that is converted GCC 12 makes no vectors.
  static To apply(uint8_t x) {
    const auto folded = static_cast<uint8_t>(x | static_cast<uint8_t>(-x));
    return static_cast<To>(static_cast<uint8_t>(folded >> 7));
  }
};
// scalar::Binary's, in bits: of two that are equal, 0 and -0 alone may differ.
template <bool kMax>
struct ExtremeF64 {
  static double apply(double a, double b) {
    const auto x = std::bit_cast<uint64_t>(a), y = std::bit_cast<uint64_t>(b);
    const double either = std::bit_cast<double>(kMax ? x & y : x | y);
    const bool first = kMax ? a > b : a < b;
    const double apart = first || a != a ? a : b;
    return a == b ? either : apart;
  }
};

template <typename To, typename From>
struct Converted {
  static To apply(From x) { return scalar::convert<To>(x); }
};
// To a step of bf16 or f16, with one rounding.
template <typename From>
void to_half(const KernelCall& c) {
  const DF d;
  From splat[kPart];
  HWY_ALIGN float odd[kPart];
  for (int64_t r = 0; r < c.rows; ++r) {
    auto* out = reinterpret_cast<float*>(c.out + r * c.out_row_step);
    const PlainRow<From> a = plain_row(c.args[0], r, c.cols, splat);
    for (int64_t i = 0; i < c.cols; i += kPart) {
      const int64_t n = std::min(kPart, c.cols - i);
      const From* x = a.data + (i & a.mask);
      for (int64_t k = 0; k < n; ++k) odd[k] = scalar::round_to_odd(x[k]);
      for (size_t k = 0; k < static_cast<size_t>(n); k += hn::Lanes(d))
        store_form(d, hn::Load(d, odd + k), reinterpret_cast<std::byte*>(odd), k, Form::kNative,
                   c.round);
      std::memcpy(out + i, odd, static_cast<size_t>(n) * sizeof(float));
    }
  }
}
template <typename From>
void plain_to_f32(const KernelCall& c) {
  if (c.round == Form::kNative) return plain1<float, From, Converted<float, From>>(c);
  to_half<From>(c);
}

template <typename To, typename From>
MapKernel plain_convert() {
  if constexpr (std::same_as<From, Bool> && std::same_as<To, Bool>)
    return nullptr;  // a copy
  else if constexpr (std::same_as<From, Bool>)
    return plain1<To, uint8_t, FromBool<To>>;
  else
    return plain1<To, From, Converted<To, From>>;
}
template <typename From>
MapKernel plain_convert_from(DType out) {
  if (out == DType::kF32) {
    if constexpr (std::same_as<From, Bool>) return plain_convert<float, Bool>();
    else if constexpr (!std::same_as<From, float>) return plain_to_f32<From>;
  }
  if (out == DType::kF64) return plain_convert<double, From>();
  if (out == DType::kI64) return plain_convert<int64_t, From>();
  if (out == DType::kI32) return plain_convert<int32_t, From>();
  if (out == DType::kI8) return plain_convert<int8_t, From>();
  if (out == DType::kU64) return plain_convert<uint64_t, From>();
  if (out == DType::kU32) return plain_convert<uint32_t, From>();
  if (out == DType::kU8) return plain_convert<uint8_t, From>();
  if (out == DType::kBool) return plain_convert<Bool, From>();
  return nullptr;
}

// Ops that the compiler sees as arithmetic; the others call the C library, or loop for each
// element.
constexpr bool is_plain(OpKind op) {
  constexpr OpKind kPlain[] = {
      OpKind::kNeg, OpKind::kAbs, OpKind::kSign, OpKind::kNot,       OpKind::kAdd,
      OpKind::kSub, OpKind::kMul, OpKind::kDiv,  OpKind::kMax,       OpKind::kMin,
      OpKind::kAnd, OpKind::kOr,  OpKind::kXor,  OpKind::kShiftLeft, OpKind::kShiftRight,
      OpKind::kEq,  OpKind::kNe,  OpKind::kLt,   OpKind::kLe,        OpKind::kGt,
      OpKind::kGe};
  return std::find(std::begin(kPlain), std::end(kPlain), op) != std::end(kPlain);
}

template <typename T, OpKind K>
constexpr MapKernel find_plain_one() {
  constexpr bool kOfFloats = std::is_floating_point_v<T> &&
                             (K == OpKind::kSqrt || K == OpKind::kFloor || K == OpKind::kCeil);
  constexpr bool kOfIntegers = std::is_integral_v<T> && K == OpKind::kRem;
  if constexpr (is_plain(K) || kOfFloats || kOfIntegers) {
    if constexpr (requires(T x) { scalar::Unary<K, T>::apply(x); })
      return plain1<T, T, scalar::Unary<K, T>>;
    else if constexpr (requires(T x) { scalar::Binary<K, T>::apply(x, x); })
      return plain2<T, T, scalar::Binary<K, T>>;
    else if constexpr (requires(T x) { scalar::Test<K, T>::apply(x, x); })
      return plain2<Bool, T, scalar::Test<K, T>>;
  }
  return nullptr;
}
template <typename T>
MapKernel find_plain_op(OpKind op) {
  static constexpr MapKernel kTable[] = {
#define STOW_X(kind, name, cls) find_plain_one<T, OpKind::k##kind>(),
      STOW_FOR_EACH_OP(STOW_X)
#undef STOW_X
  };
  return kTable[static_cast<size_t>(op)];
}

// `in` and `out` are dtypes of registers.
MapKernel find_plain_convert(DType in, DType out) {
  if (in == DType::kF64) return plain_convert_from<double>(out);
  if (in == DType::kF32) return plain_convert_from<float>(out);
  if (in == DType::kI64) return plain_convert_from<int64_t>(out);
  if (in == DType::kI32) return plain_convert_from<int32_t>(out);
  if (in == DType::kI8) return plain_convert_from<int8_t>(out);
  if (in == DType::kU64) return plain_convert_from<uint64_t>(out);
  if (in == DType::kU32) return plain_convert_from<uint32_t>(out);
  if (in == DType::kU8) return plain_convert_from<uint8_t>(out);
  if (in == DType::kBool) return plain_convert_from<Bool>(out);
  return nullptr;
}

MapKernel find_plain(OpKind op, DType t) {
  if (op == OpKind::kSelect) {
    if (dtype_bytes(t) == 8) return plain_select<uint64_t>;
    return dtype_bytes(t) == 1 ? plain_select<uint8_t> : plain_select32;
  }
  if (t == DType::kF32) {
    if (op == OpKind::kEq) return test32<OpKind::kEq>;
    if (op == OpKind::kNe) return test32<OpKind::kNe>;
    if (op == OpKind::kLt) return test32<OpKind::kLt>;
    if (op == OpKind::kLe) return test32<OpKind::kLe>;
    if (op == OpKind::kGt) return test32<OpKind::kGt>;
    if (op == OpKind::kGe) return test32<OpKind::kGe>;
    return nullptr;
  }
  if (t == DType::kF64 && op == OpKind::kMax) return plain2<double, double, ExtremeF64<true>>;
  if (t == DType::kF64 && op == OpKind::kMin) return plain2<double, double, ExtremeF64<false>>;
  if (t == DType::kF64) return find_plain_op<double>(op);
  if (t == DType::kI64) return find_plain_op<int64_t>(op);
  if (t == DType::kI32) return op == OpKind::kRem ? rem_i32 : find_plain_op<int32_t>(op);
  if (t == DType::kI8) return find_plain_op<int8_t>(op);
  if (t == DType::kU64) return find_plain_op<uint64_t>(op);
  if (t == DType::kU32) return find_plain_op<uint32_t>(op);
  if (t == DType::kU8) return find_plain_op<uint8_t>(op);
  if (t == DType::kBool) return find_plain_op<Bool>(op);
  return nullptr;
}

}  // namespace stow::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stow::cpu {
HWY_EXPORT(find_plain);
HWY_EXPORT(find_plain_convert);
MapKernel plain_map_kernel(OpKind op, DType dtype) {
  return HWY_DYNAMIC_DISPATCH(find_plain)(op, dtype);
}
MapKernel plain_convert_kernel(DType in, DType out) {
  return HWY_DYNAMIC_DISPATCH(find_plain_convert)(in, out);
}
}  // namespace stow::cpu
#endif  // HWY_ONCE
