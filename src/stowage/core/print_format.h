// The format strings of debug_print: fmt's syntax, in which each place stands for an array.
// Not the printing itself; see core/array_text.h for arrays as text.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/core/dtype.h"

namespace stow {

/// Checks a format for arrays of these dtypes. Errors: an unmatched brace, a place without an
/// array, an array without a place, a mix of numbered and unnumbered places, a specification that
/// does not fit the dtype of its array.
Result<void> check_print_format(std::string_view format, std::span<const DType> dtypes);

/// Returns the formatted text with a newline at the end. text(i, spec, column) returns array i
/// formatted by `spec`; `column` is where its text begins, for the indent of further lines.
/// check_print_format must have accepted the format.
std::string print_line(
    std::string_view format,
    const std::function<std::string(size_t array, std::string_view spec, int column)>& text);

}  // namespace stow
