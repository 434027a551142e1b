// The effect of a DebugPrint when a program comes to it: a line on standard output.
// Not the format; that is core/print_format.h.
#pragma once

#include <span>
#include <string_view>

#include "stowage/runtime/tensor_view.h"

namespace stow {

/// Prints arrays by a format in one write, so that lines of several threads do not mix. Output that
/// does not arrive is the stream's error (std::ferror), not one of the program.
void print_views(std::string_view format, std::span<const TensorView> arrays);

}  // namespace stow
