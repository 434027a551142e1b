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
/// The dtype of that name, as dtype_name prints it.
std::optional<DType> parse_dtype(std::string_view name);

constexpr bool is_float(DType t) { return t <= DType::kF16; }  ///< f16, bf16, f32, f64.
constexpr bool is_signed_int(DType t) { return t >= DType::kI64 && t <= DType::kI8; }
constexpr bool is_unsigned_int(DType t) { return t >= DType::kU64 && t <= DType::kU8; }
constexpr bool is_integer(DType t) { return is_signed_int(t) || is_unsigned_int(t); }

/// A dtype and whether it is weak: a C++ scalar's type, which yields to an array's of the same or
/// a higher category.
struct WeakDType {
  DType dtype;
  bool weak = false;
  friend bool operator==(const WeakDType&, const WeakDType&) = default;  ///< Both fields.
};

/// The common type of two operands.
/// Source: JAX's type promotion lattice (jax docs, "Type promotion semantics").
WeakDType promote(WeakDType a, WeakDType b);

}  // namespace stow
