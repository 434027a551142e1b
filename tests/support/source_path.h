// Paths of files in the source tree that tests read.
// Not for the library: an installed one has no source tree.
#pragma once

#include <string>
#include <string_view>

namespace stow {

/// The absolute path of `relative`, a path from the root of the source tree.
std::string source_path(std::string_view relative);

}  // namespace stow
