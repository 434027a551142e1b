// NativeForm: the elements as which a library reduces an array, so that its result is the one wanted.
// Not a reduction and not a transport.
#pragma once

#include <cstddef>
#include <cstdint>

#include "stowage/core/dtype.h"
#include "stowage/core/reduce_kind.h"

namespace stow::comm {

/// Libraries reduce C's numbers. bf16 and f16 are none of them: their sums go through f32 and are rounded
/// once. Comparisons of floats by libraries lose NaNs and the sign of zero: floats become integers that
/// are ordered as the floats are, -0 below +0, and a NaN beyond all of them on the side that wins.
/// Integer sums are unsigned, and so wrap around; those of bytes go through 32 bits, since vectors of Open
/// MPI 4.1 add bytes with saturation (ompi/mca/op/avx).
struct NativeForm {
  enum class Element : uint8_t { kI8, kI16, kI32, kI64, kU8, kU32, kU64, kF32, kF64 };

  ReduceKind kind;
  DType dtype;
  Element element;
  /// True if elements are those of the array, bit for bit.
  bool is_plain;

  /// The form for a reduction that the dtype has (can_reduce).
  static NativeForm of(ReduceKind kind, DType dtype);
  int64_t elem_bytes() const;
  /// Writes `n_elems` elements of the array as elements of the form.
  void encode(const std::byte* array, int64_t n_elems, std::byte* elements) const;
  /// Writes `n_elems` elements of the form, reduced, as elements of the array.
  void decode(const std::byte* elements, int64_t n_elems, std::byte* array) const;
};

}  // namespace stow::comm
