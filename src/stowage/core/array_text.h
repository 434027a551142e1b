// Arrays as text in NumPy's print format: nested brackets, aligned columns, long axes summarised.
// Not text that can be parsed; ir/element_text.h prints the constants of graphs.
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

/// Fills `out` with consecutive elements of an array, from row-major number `first` on. The
/// elements of one call belong to one row of the last axis.
using ReadElements = std::function<void(int64_t first, std::span<std::byte> out)>;

/// Returns an array as text: "[[1. 2.]\n [3. 4.]]"; "1.0" for a scalar. Floats have the fewest
/// digits that read back as the same number of their dtype. If the array has more than 1000
/// elements, an axis longer than 6 shows its first and last 3 elements around "..."; only these are
/// read.
/// `spec`: one of fmt's format specifications (".3f"), which then formats each element.
/// `indent`: the column in which the text begins; further lines are indented by as much.
/// Errors: fmt::format_error for a specification that does not fit the dtype.
std::string array_text(DType dtype, const Shape& shape, const ReadElements& read,
                       std::string_view spec = {}, int indent = 0);

/// Throws fmt::format_error if `spec` is not a format specification for elements of this dtype.
void check_element_spec(DType dtype, std::string_view spec);

}  // namespace stow
