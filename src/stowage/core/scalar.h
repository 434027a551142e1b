// One element of any dtype, from and to C++ numbers.
// Not for arrays; conversions of data are kernels.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "stowage/core/dtype.h"

namespace stow {

/// The bytes of `value` rounded to `dtype`: f16 and bf16 by way of f32 and to nearest even, as JAX
/// does; integers truncate. None where an integer dtype cannot hold it (out of range, NaN).
std::optional<std::vector<std::byte>> encode_scalar(DType dtype, double value);
/// The same for an integer, exact for every 64-bit value; u64 takes the bits.
std::optional<std::vector<std::byte>> encode_scalar_int(DType dtype, int64_t value);
/// The number that the first dtype_bytes(dtype) bytes hold; 64-bit integers round to double.
double decode_scalar(DType dtype, std::span<const std::byte> bytes);

/// The largest value of an integer dtype that int64_t holds.
int64_t max_int_value(DType dtype);
/// The smallest value of an integer dtype.
int64_t min_int_value(DType dtype);

}  // namespace stow
