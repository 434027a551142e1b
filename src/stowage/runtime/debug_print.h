// print_views: the effect of a DebugPrint op at run time, a line on standard output.
// Not the parsing of the format; that is core/print_format.h.
#pragma once

#include <span>
#include <string_view>

#include "stowage/runtime/tensor_view.h"

namespace stow {

/// Prints arrays by a format in one write: lines of several threads do not mix. A failed write sets
/// the error flag of stdout (std::ferror) and does not fail the program.
void print_views(std::string_view format, std::span<const TensorView> arrays);

}  // namespace stow
