// One element of any dtype, from and to C++ numbers.
// Not for arrays; conversions of data are kernels.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "stowage/core/dtype.h"

namespace stow {

/// Returns the bytes of `value` in `dtype`. Floats round to nearest even, f16 and bf16 by way of
/// f32 as in JAX; integers truncate. None if the value is out of the range of an integer dtype, or
/// NaN.
std::optional<std::vector<std::byte>> encode_scalar(DType dtype, double value);
/// encode_scalar for an integer, exact for every 64-bit value; u64 takes its bits.
std::optional<std::vector<std::byte>> encode_scalar_int(DType dtype, int64_t value);
/// Returns the value of the element in the first dtype_bytes(dtype) bytes; 64-bit integers round to
/// double.
double decode_scalar(DType dtype, std::span<const std::byte> bytes);

/// The largest value of an integer dtype; for u64 that of i64.
int64_t max_int_value(DType dtype);
/// The smallest value of an integer dtype.
int64_t min_int_value(DType dtype);

}  // namespace stow
