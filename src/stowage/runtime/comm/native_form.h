// NativeForm: encodes arrays in element types that a communication library reduces correctly.
// Not a reduction and not a transport.
#pragma once

#include <cstddef>
#include <cstdint>

#include "stowage/core/dtype.h"
#include "stowage/core/reduce_kind.h"

namespace stow::comm {

/// Libraries reduce C's arithmetic types, which do not include bf16 and f16: sums of these go
/// through f32 and are rounded once. A library's maximum or minimum of floats loses NaNs and the
/// sign of zero: floats are encoded as integers of the same order, with -0 below +0, and with NaN
/// as the largest value for a maximum and the smallest for a minimum. Integer sums are unsigned and
/// so wrap around. Sums of bytes go through 32 bits, because vector code of Open MPI 4.1 adds bytes
/// with saturation (ompi/mca/op/avx).
struct NativeForm {
  enum class Element : uint8_t { kI8, kI16, kI32, kI64, kU8, kU32, kU64, kF32, kF64 };

  ReduceKind kind;
  DType dtype;
  Element element;
  /// True if the encoded elements are those of the array, bit for bit.
  bool is_plain;

  /// Returns the form for a reduction; can_reduce(kind, dtype) must hold.
  static NativeForm of(ReduceKind kind, DType dtype);
  int64_t elem_bytes() const;
  /// Writes `n_elems` elements of the array as elements of the form.
  void encode(const std::byte* array, int64_t n_elems, std::byte* elements) const;
  /// Writes `n_elems` elements of the form, reduced, as elements of the array.
  void decode(const std::byte* elements, int64_t n_elems, std::byte* array) const;
};

}  // namespace stow::comm
