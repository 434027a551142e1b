// Element types: sizes, names and JAX's promotion.
// Not for conversions of data; those are kernels.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace stow {

enum class DType : uint8_t { kF64, kF32, kBF16, kF16, kI64, kI32, kI8, kU64, kU32, kU8, kBool };
inline constexpr int kNumDTypes = 11;

/// Bytes of one element; bool takes one.
int64_t dtype_bytes(DType t);
/// "f32", "bf16", "i64", "bool".
std::string_view dtype_name(DType t);
/// Returns the dtype with that dtype_name; none if there is no such dtype.
std::optional<DType> parse_dtype(std::string_view name);

constexpr bool is_float(DType t) { return t <= DType::kF16; }  ///< f16, bf16, f32, f64.
constexpr bool is_signed_int(DType t) { return t >= DType::kI64 && t <= DType::kI8; }
constexpr bool is_unsigned_int(DType t) { return t >= DType::kU64 && t <= DType::kU8; }
constexpr bool is_integer(DType t) { return is_signed_int(t) || is_unsigned_int(t); }

/// A dtype in promotion. A weak dtype comes from a C++ scalar; the result takes the other operand's
/// dtype if that has the same or a higher category (bool, integer, float).
struct WeakDType {
  DType dtype;
  bool weak = false;
  friend bool operator==(const WeakDType&, const WeakDType&) = default;  ///< Both fields.
};

/// Returns the common dtype of two operands.
/// Source: JAX's type promotion lattice (jax docs, "Type promotion semantics").
WeakDType promote(WeakDType a, WeakDType b);

}  // namespace stow
