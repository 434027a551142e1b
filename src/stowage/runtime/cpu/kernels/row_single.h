// Operations on one element that replace calls of the commonest kernels of row programs, inline: a
// loop over scalars then calls no kernel.
// Not the definition of an op; results have the bits of the kernel.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "stowage/runtime/cpu/kernels/row_kernels.h"
#include "stowage/runtime/cpu/kernels/row_kernels_choose.h"
#include "stowage/runtime/cpu/kernels/row_scalar.h"

namespace stow::cpu {

// X(name, type of the result, type of the operands, expression over operands a, b, c and d, the
// kernel that it replaces). The list has only ops that are one or a few IEEE or integer operations,
// whose bits are the same in scalar and vector code. Approximated functions are computed by
// kernels.
#define STOW_FOR_EACH_SINGLE(X) \
  STOW_FOR_EACH_F32_SINGLE(X) STOW_FOR_EACH_WORD_SINGLE(X) STOW_FOR_EACH_F64_SINGLE(X)

// The list by type of the operands.
#define STOW_FOR_EACH_F32_SINGLE(X)                                                          \
  STOW_FLOAT_SINGLES(X, F32, float) STOW_TEST_SINGLES(X, F32, float)                         \
  STOW_PAIR_SINGLES(X, Add) STOW_PAIR_SINGLES(X, Sub) STOW_PAIR_SINGLES(X, Mul)              \
  STOW_PAIR_SINGLES(X, Div) STOW_CLAMP_SINGLES(X) STOW_TRIPLE_SINGLES(X)                     \
  STOW_CONVERT_SINGLE(X, F64, double, F32, float)                                            \
  STOW_CONVERT_SINGLE(X, I32, int32_t, F32, float)                                           \
  STOW_CONVERT_SINGLE(X, U32, uint32_t, F32, float)
#define STOW_FOR_EACH_WORD_SINGLE(X)                                                         \
  STOW_TEST_SINGLES(X, I32, int32_t) STOW_TEST_SINGLES(X, U32, uint32_t)                     \
  STOW_INTEGER_SINGLES(X, I32, int32_t) STOW_INTEGER_SINGLES(X, U32, uint32_t)               \
  STOW_BOOL_SINGLES(X)                                                                       \
  STOW_CONVERT_SINGLE(X, F32, float, I32, int32_t)                                           \
  STOW_CONVERT_SINGLE(X, F32, float, U32, uint32_t)                                          \
  STOW_CONVERT_SINGLE(X, F32, float, Bool, scalar::Bool)                                     \
  STOW_CONVERT_SINGLE(X, F64, double, I32, int32_t)                                          \
  STOW_CONVERT_SINGLE(X, I32, int32_t, U32, uint32_t)                                        \
  STOW_CONVERT_SINGLE(X, I32, int32_t, Bool, scalar::Bool)                                   \
  STOW_CONVERT_SINGLE(X, U32, uint32_t, I32, int32_t)                                        \
  STOW_CONVERT_SINGLE(X, U32, uint32_t, Bool, scalar::Bool)                                  \
  STOW_CONVERT_SINGLE(X, Bool, scalar::Bool, I32, int32_t)                                   \
  STOW_CONVERT_SINGLE(X, Bool, scalar::Bool, U32, uint32_t)
#define STOW_FOR_EACH_F64_SINGLE(X)                                                          \
  STOW_FLOAT_SINGLES(X, F64, double) STOW_TEST_SINGLES(X, F64, double)                       \
  STOW_CONVERT_SINGLE(X, F32, float, F64, double)

#define STOW_SINGLE(X, op, name, type, value) \
  X(k##op##name, type, type, value, map_kernel(OpKind::k##op, DType::k##name, DType::k##name))
#define STOW_UNARY_SINGLE(X, op, name, type) \
  STOW_SINGLE(X, op, name, type, (scalar::Unary<OpKind::k##op, type>::apply(a)))
#define STOW_BINARY_SINGLE(X, op, name, type) \
  STOW_SINGLE(X, op, name, type, (scalar::Binary<OpKind::k##op, type>::apply(a, b)))

#define STOW_FLOAT_SINGLES(X, name, type)                                                    \
  STOW_BINARY_SINGLE(X, Add, name, type) STOW_BINARY_SINGLE(X, Sub, name, type)              \
  STOW_BINARY_SINGLE(X, Mul, name, type) STOW_BINARY_SINGLE(X, Div, name, type)              \
  STOW_SINGLE(X, Max, name, type, extreme_of<true>(a, b))                                    \
  STOW_SINGLE(X, Min, name, type, extreme_of<false>(a, b))                                   \
  STOW_UNARY_SINGLE(X, Neg, name, type) STOW_UNARY_SINGLE(X, Abs, name, type)                \
  STOW_UNARY_SINGLE(X, Sqrt, name, type)

// outer(inner(a, b), c), or for `FromC` outer(c, inner(a, b)), the kernels of f32_pair_kernel().
#define STOW_PAIR_SINGLE(X, inner, outer)                                                    \
  X(k##inner##Then##outer, float, float, of_##outer(of_##inner(a, b), c),                    \
    f32_pair_kernel(OpKind::k##outer, OpKind::k##inner, true))
#define STOW_TURNED_PAIR_SINGLE(X, inner, outer)                                             \
  X(k##inner##outer##FromC, float, float, of_##outer(c, of_##inner(a, b)),                   \
    f32_pair_kernel(OpKind::k##outer, OpKind::k##inner, false))
#define STOW_PAIR_SINGLES(X, inner)                                                          \
  STOW_PAIR_SINGLE(X, inner, Add) STOW_PAIR_SINGLE(X, inner, Mul)                            \
  STOW_PAIR_SINGLE(X, inner, Sub) STOW_PAIR_SINGLE(X, inner, Div)                            \
  STOW_TURNED_PAIR_SINGLE(X, inner, Sub) STOW_TURNED_PAIR_SINGLE(X, inner, Div)
#define STOW_CLAMP_SINGLES(X)                                                                \
  X(kMaxThenMin, float, float, extreme_of<false>(extreme_of<true>(a, b), c),                 \
    f32_clamp_kernel(OpKind::kMin))                                                          \
  X(kMinThenMax, float, float, extreme_of<true>(extreme_of<false>(a, b), c),                 \
    f32_clamp_kernel(OpKind::kMax))                                                          \
  X(kSqrtOfMul, float, float, std::sqrt(of_Mul(a, b)),                                       \
    f32_pair_kernel(OpKind::kSqrt, OpKind::kMul, true))

// outer(left(a, b), right(c, d)), the kernels of f32_triple_kernel().
#define STOW_TRIPLE_SINGLE(X, outer, left, right)                                            \
  X(k##left##right##Then##outer, float, float, of_##outer(of_##left(a, b), of_##right(c, d)), \
    f32_triple_kernel(OpKind::k##outer, OpKind::k##left, OpKind::k##right))
#define STOW_TRIPLES_OF(X, outer)                                                            \
  STOW_TRIPLE_SINGLE(X, outer, Add, Add) STOW_TRIPLE_SINGLE(X, outer, Add, Mul)              \
  STOW_TRIPLE_SINGLE(X, outer, Mul, Add) STOW_TRIPLE_SINGLE(X, outer, Mul, Mul)
#define STOW_TRIPLE_SINGLES(X)                                                               \
  STOW_TRIPLES_OF(X, Add) STOW_TRIPLES_OF(X, Sub) STOW_TRIPLES_OF(X, Mul) STOW_TRIPLES_OF(X, Div)

#define STOW_TEST_SINGLE(X, name, type, op, sign)                                            \
  X(k##op##name, bool, type, a sign b, map_kernel(OpKind::k##op, DType::k##name, DType::kBool))
#define STOW_TEST_SINGLES(X, name, type)                                                     \
  STOW_TEST_SINGLE(X, name, type, Eq, ==) STOW_TEST_SINGLE(X, name, type, Ne, !=)            \
  STOW_TEST_SINGLE(X, name, type, Lt, <) STOW_TEST_SINGLE(X, name, type, Le, <=)             \
  STOW_TEST_SINGLE(X, name, type, Gt, >) STOW_TEST_SINGLE(X, name, type, Ge, >=)

#define STOW_INTEGER_SINGLES(X, name, type)                                                  \
  STOW_BINARY_SINGLE(X, Add, name, type) STOW_BINARY_SINGLE(X, Sub, name, type)              \
  STOW_BINARY_SINGLE(X, Mul, name, type)                                                     \
  STOW_SINGLE(X, Div, name, type, quotient_of(a, b))                                         \
  STOW_SINGLE(X, Rem, name, type, remainder_of(a, b))                                        \
  STOW_BINARY_SINGLE(X, Max, name, type) STOW_BINARY_SINGLE(X, Min, name, type)              \
  STOW_BINARY_SINGLE(X, And, name, type) STOW_BINARY_SINGLE(X, Or, name, type)               \
  STOW_BINARY_SINGLE(X, Xor, name, type)                                                     \
  STOW_BINARY_SINGLE(X, ShiftLeft, name, type) STOW_BINARY_SINGLE(X, ShiftRight, name, type) \
  STOW_UNARY_SINGLE(X, Neg, name, type) STOW_UNARY_SINGLE(X, Abs, name, type)                \
  STOW_UNARY_SINGLE(X, Sign, name, type) STOW_UNARY_SINGLE(X, Not, name, type)
#define STOW_BOOL_SINGLES(X)                                                                 \
  STOW_BINARY_SINGLE(X, And, Bool, scalar::Bool) STOW_BINARY_SINGLE(X, Or, Bool, scalar::Bool) \
  STOW_BINARY_SINGLE(X, Xor, Bool, scalar::Bool) STOW_UNARY_SINGLE(X, Not, Bool, scalar::Bool)
#define STOW_CONVERT_SINGLE(X, name, type, from, from_type)                                  \
  X(kTo##name##From##from, type, from_type, scalar::convert<type>(a),                        \
    map_kernel(OpKind::kConvert, DType::k##from, DType::k##name))

inline float of_Add(float a, float b) { return a + b; }
inline float of_Sub(float a, float b) { return a - b; }
inline float of_Mul(float a, float b) { return a * b; }
inline float of_Div(float a, float b) { return a / b; }

/// Returns the result of scalar::Binary's kMax or kMin, without branches on the numbers.
template <bool kMax, typename T>
T extreme_of(T a, T b) {
  using Bits = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
  const Bits x = std::bit_cast<Bits>(a), y = std::bit_cast<Bits>(b);
  // For equal numbers: only 0 and -0 differ in their bits.
  const T either = std::bit_cast<T>(kMax ? x & y : x | y);
  const T apart = (kMax ? a > b : a < b) || a != a ? a : b;
  return a == b ? either : apart;
}
/// Return the results of scalar::divide() and scalar::remainder(), by integer division
/// instructions.
template <typename T>
T quotient_of(T a, T b) {
  if (b == 0) return static_cast<T>(-1);
  if (std::is_signed_v<T> && b == static_cast<T>(-1)) return static_cast<T>(0 - scalar::wide(a));
  return static_cast<T>(a / b);
}
template <typename T>
T remainder_of(T a, T b) {
  if (b == 0) return a;
  return std::is_signed_v<T> && b == static_cast<T>(-1) ? T(0) : static_cast<T>(a % b);
}

/// The operations on one element. kCopyN copies N bytes; kSelectN selects N bits by a bool.
enum class SingleOp : uint8_t {
#define STOW_X(name, out, in, value, kernel) name,
  STOW_FOR_EACH_SINGLE(STOW_X)
#undef STOW_X
  kSelect8,
  kSelect32,
  kSelect64,
  kCopy1,
  kCopy4,
  kCopy8,
  kNone
};

/// Addresses of the result and the operands of an operation. Operands that the op does not have are
/// addresses of other readable memory of the operands' size.
struct Single {
  std::byte* out = nullptr;
  const std::byte* args[4] = {};
};

template <typename T>
T load_single(const std::byte* at) {
  T x;
  std::memcpy(&x, at, sizeof(x));
  return x;
}
template <typename T>
void store_single(std::byte* at, T x) {
  std::memcpy(at, &x, sizeof(x));
}

template <typename T>
void choose_single(const Single& s) {
  const T yes = load_single<T>(s.args[1]), no = load_single<T>(s.args[2]);
  store_single(s.out, load_single<uint8_t>(s.args[0]) != 0 ? yes : no);
}

/// Computes one operation. Reads all operands before it writes the result.
[[gnu::always_inline]] inline void run_single(SingleOp op, const Single& s) {
  switch (op) {
#define STOW_X(name, out_type, in_type, value, kernel)          \
  case SingleOp::name: {                                        \
    [[maybe_unused]] const auto a = load_single<in_type>(s.args[0]); \
    [[maybe_unused]] const auto b = load_single<in_type>(s.args[1]); \
    [[maybe_unused]] const auto c = load_single<in_type>(s.args[2]); \
    [[maybe_unused]] const auto d = load_single<in_type>(s.args[3]); \
    return store_single<out_type>(s.out, value);                \
  }
    STOW_FOR_EACH_SINGLE(STOW_X)
#undef STOW_X
    case SingleOp::kSelect8:
      return choose_single<uint8_t>(s);
    case SingleOp::kSelect32:
      return choose_single<uint32_t>(s);
    case SingleOp::kSelect64:
      return choose_single<uint64_t>(s);
    case SingleOp::kCopy1:
      return store_single(s.out, load_single<uint8_t>(s.args[0]));
    case SingleOp::kCopy4:
      return store_single(s.out, load_single<uint32_t>(s.args[0]));
    case SingleOp::kCopy8:
      return store_single(s.out, load_single<uint64_t>(s.args[0]));
    case SingleOp::kNone:
      return;
  }
}

/// Returns the operation that replaces the kernel for one element in a register's form; kNone if
/// the kernel must be called. `kernel` is one of the instruction set in use.
inline SingleOp single_op(MapKernel kernel) {
#define STOW_X(name, out, in, value, same) \
  if (kernel == same) return SingleOp::name;
  STOW_FOR_EACH_SINGLE(STOW_X)
#undef STOW_X
  if (kernel == map_kernel(OpKind::kSelect, DType::kF32, DType::kF32)) return SingleOp::kSelect32;
  if (kernel == map_kernel(OpKind::kSelect, DType::kF64, DType::kF64)) return SingleOp::kSelect64;
  if (kernel == map_kernel(OpKind::kSelect, DType::kBool, DType::kBool)) return SingleOp::kSelect8;
  return SingleOp::kNone;
}

}  // namespace stow::cpu
