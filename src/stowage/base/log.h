// Warnings to the user that no call returns.
// Not for errors; those are thrown or returned.
#pragma once

#include <string_view>

namespace stow {

/// Writes "stowage: warning: MESSAGE" to stderr.
void log_warning(std::string_view message);

}  // namespace stow
