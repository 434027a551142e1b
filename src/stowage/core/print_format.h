// The format of debug_print: fmt's braces, each for the elements of an array.
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

/// Errors: a brace without its partner, a place with no array, an array without a place, places both
/// with numbers and without, a specification that does not fit the dtype of its array.
Result<void> check_print_format(std::string_view format, std::span<const DType> dtypes);

/// The line, with an end: `text` gives array i by a specification, whose lines begin in a column.
/// The format is one that check_print_format takes.
std::string print_line(
    std::string_view format,
    const std::function<std::string(size_t array, std::string_view spec, int column)>& text);

}  // namespace stow
