// One element of the commonest kernels of row programs, made in line: a loop over scalars calls none.
// Not the meaning of an op; a single element has the bits that its kernel leaves.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "stowage/runtime/cpu/kernels/row_kernels.h"
#include "stowage/runtime/cpu/kernels/row_scalar.h"

namespace stow::cpu {

// X(name, type of the result, type of the operands, value of a, b and c, the kernel that it stands for).
// Only what is one operation of IEEE or of integers each: scalar and vector cannot differ. f32's kMax and
// kMin, and all that is approximated, have their kernels.
#define STOW_FOR_EACH_SINGLE(X)                                                              \
  STOW_FLOAT_SINGLES(X)                                                                      \
  STOW_PAIR_SINGLES(X, Add) STOW_PAIR_SINGLES(X, Sub) STOW_PAIR_SINGLES(X, Mul)              \
  STOW_TEST_SINGLES(X, F32, float) STOW_TEST_SINGLES(X, I32, int32_t)                        \
  STOW_INTEGER_SINGLE(X, Add) STOW_INTEGER_SINGLE(X, Sub) STOW_INTEGER_SINGLE(X, Mul)        \
  STOW_CONVERT_SINGLE(X, I32, int32_t)

#define STOW_FLOAT_SINGLES(X)                                                                \
  X(kAddF32, float, float, a + b, map_kernel(OpKind::kAdd, DType::kF32, DType::kF32))         \
  X(kSubF32, float, float, a - b, map_kernel(OpKind::kSub, DType::kF32, DType::kF32))         \
  X(kMulF32, float, float, a* b, map_kernel(OpKind::kMul, DType::kF32, DType::kF32))          \
  X(kDivF32, float, float, a / b, map_kernel(OpKind::kDiv, DType::kF32, DType::kF32))         \
  X(kNegF32, float, float, -a, map_kernel(OpKind::kNeg, DType::kF32, DType::kF32))            \
  X(kAbsF32, float, float, std::fabs(a), map_kernel(OpKind::kAbs, DType::kF32, DType::kF32))  \
  X(kSqrtF32, float, float, std::sqrt(a), map_kernel(OpKind::kSqrt, DType::kF32, DType::kF32))

// inner(a, b) and then c, or c and then inner(a, b), as f32_pair_kernel() makes them.
#define STOW_PAIR_SINGLES(X, inner)                                                          \
  X(k##inner##ThenAdd, float, float, of_##inner(a, b) + c,                                   \
    f32_pair_kernel(OpKind::kAdd, OpKind::k##inner, true))                                   \
  X(k##inner##ThenMul, float, float, of_##inner(a, b) * c,                                   \
    f32_pair_kernel(OpKind::kMul, OpKind::k##inner, true))                                   \
  X(k##inner##ThenSub, float, float, of_##inner(a, b) - c,                                   \
    f32_pair_kernel(OpKind::kSub, OpKind::k##inner, true))                                   \
  X(k##inner##FromC, float, float, c - of_##inner(a, b),                                     \
    f32_pair_kernel(OpKind::kSub, OpKind::k##inner, false))

#define STOW_TEST_SINGLE(X, name, type, op, sign)                                            \
  X(k##op##name, bool, type, a sign b, map_kernel(OpKind::k##op, DType::k##name, DType::kBool))
#define STOW_TEST_SINGLES(X, name, type)                                                     \
  STOW_TEST_SINGLE(X, name, type, Eq, ==) STOW_TEST_SINGLE(X, name, type, Ne, !=)            \
  STOW_TEST_SINGLE(X, name, type, Lt, <) STOW_TEST_SINGLE(X, name, type, Le, <=)             \
  STOW_TEST_SINGLE(X, name, type, Gt, >) STOW_TEST_SINGLE(X, name, type, Ge, >=)

#define STOW_INTEGER_SINGLE(X, op)                                                           \
  X(k##op##I32, int32_t, int32_t, (scalar::Binary<OpKind::k##op, int32_t>::apply(a, b)),      \
    map_kernel(OpKind::k##op, DType::kI32, DType::kI32))
#define STOW_CONVERT_SINGLE(X, name, type)                                                   \
  X(kToF32From##name, float, type, static_cast<float>(a),                                    \
    map_kernel(OpKind::kConvert, DType::k##name, DType::kF32))

inline float of_Add(float a, float b) { return a + b; }
inline float of_Sub(float a, float b) { return a - b; }
inline float of_Mul(float a, float b) { return a * b; }

enum class SingleOp : uint8_t {
#define STOW_X(name, out, in, value, kernel) name,
  STOW_FOR_EACH_SINGLE(STOW_X)
#undef STOW_X
  kSelect32,
  kCopy1,
  kCopy4,
  kCopy8,
  kNone
};

/// Operands that an op lacks are any readable address of its operands' size.
struct Single {
  std::byte* out = nullptr;
  const std::byte* args[3] = {};
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

/// All operands are read before the result is written.
[[gnu::always_inline]] inline void run_single(SingleOp op, const Single& s) {
  switch (op) {
#define STOW_X(name, out_type, in_type, value, kernel)          \
  case SingleOp::name: {                                        \
    [[maybe_unused]] const auto a = load_single<in_type>(s.args[0]); \
    [[maybe_unused]] const auto b = load_single<in_type>(s.args[1]); \
    [[maybe_unused]] const auto c = load_single<in_type>(s.args[2]); \
    return store_single<out_type>(s.out, value);                \
  }
    STOW_FOR_EACH_SINGLE(STOW_X)
#undef STOW_X
    case SingleOp::kSelect32: {
      const auto yes = load_single<uint32_t>(s.args[1]), no = load_single<uint32_t>(s.args[2]);
      return store_single(s.out, load_single<uint8_t>(s.args[0]) != 0 ? yes : no);
    }
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
/// the kernel must be called. `kernel` is of the instruction set for which kernels are now chosen.
inline SingleOp single_op(MapKernel kernel) {
#define STOW_X(name, out, in, value, same) \
  if (kernel == same) return SingleOp::name;
  STOW_FOR_EACH_SINGLE(STOW_X)
#undef STOW_X
  if (kernel == map_kernel(OpKind::kSelect, DType::kF32, DType::kF32)) return SingleOp::kSelect32;
  return SingleOp::kNone;
}

}  // namespace stow::cpu
