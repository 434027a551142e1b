// Arrays as text for people: nested brackets, aligned columns, long axes summarised, as NumPy prints.
// Not text that reads back; constants of printed graphs are ir/element_text.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "stowage/core/dtype.h"
#include "stowage/core/shape.h"

namespace stow {

/// Fills `out` with elements of an array in row-major order, from element `first` on. They lie in one
/// row of the last axis.
using ReadElements = std::function<void(int64_t first, std::span<std::byte> out)>;

/// "[[1. 2.]\n [3. 4.]]"; "1.0" for a scalar. Floats have the shortest digits that tell them apart
/// from their neighbours in their dtype. Beyond 1000 elements an axis longer than 6 shows its first
/// and last 3 around "...", and no other element is read.
/// `spec` formats each element instead: one of fmt's format specifications, ".3f".
/// `indent` is the column that the text begins in: further lines begin there, too.
/// Errors: fmt::format_error for a specification that does not fit the dtype.
std::string array_text(DType dtype, const Shape& shape, const ReadElements& read,
                       std::string_view spec = {}, int indent = 0);

/// Throws fmt::format_error where `spec` is none for elements of this dtype.
void check_element_spec(DType dtype, std::string_view spec);

}  // namespace stow
