// Reading and writing single elements of strided views as double or int64, for the reference.
// Not for kernels; these are slow and obvious on purpose.
#pragma once

#include <cstdint>

#include "stowage/runtime/tensor_view.h"

namespace stow::ref {

/// Calls f(index) for every index of `dims` in row-major order; makes no call if an extent is 0.
template <typename F>
void for_each_index(const Dims& dims, F f) {
  Dims index(dims.size(), 0);
  for (int64_t d : dims)
    if (d == 0) return;
  while (true) {
    f(static_cast<const Dims&>(index));
    size_t axis = dims.size();
    while (axis > 0 && ++index[axis - 1] == dims[axis - 1]) index[--axis] = 0;
    if (axis == 0) return;
  }
}

/// Returns the address of the element at `index`.
std::byte* at(const TensorView& view, const Dims& index);

/// Returns an element of any dtype as the nearest double (exact except for large 64-bit integers).
double load_float(const TensorView& view, const Dims& index);
/// Returns an integer or bool, sign- or zero-extended; u64 keeps its bits; bool is 0 or 1.
int64_t load_int(const TensorView& view, const Dims& index);
/// Returns an integer that is an index: like load_int(), but a u64 beyond int64 gives the largest
/// int64.
int64_t load_index(const TensorView& view, const Dims& index);

/// Rounds `value` once, to nearest even, to the view's float dtype, and stores it.
void store_float(const TensorView& view, const Dims& index, long double value);
/// Stores the low bits of `value`; a bool is value != 0.
void store_int(const TensorView& view, const Dims& index, int64_t value);
/// Copies the bytes of an element. Both views have elements of the same width.
void copy_element(const TensorView& from, const Dims& from_index, const TensorView& to,
                  const Dims& to_index);

/// Encodes `value` as a 16-bit float with one sign bit, `mantissa_bits`, and exponent bits for the
/// rest.
uint16_t encode16(long double value, int mantissa_bits);
/// Returns the value of a 16-bit float that encode16() made.
double decode16(uint16_t bits, int mantissa_bits);

}  // namespace stow::ref
