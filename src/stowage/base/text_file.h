// Whole text files: read at once, written so that a reader never sees half of one.
// Not for large data or streams.
#pragma once

#include <string>
#include <string_view>

#include "stowage/base/result.h"

namespace stow {

/// The whole file. Errors: "PATH: why the system refused".
Result<std::string> read_text_file(const std::string& path);

/// The same, where "-" is standard input.
Result<std::string> read_text_or_stdin(const std::string& path);

/// Writes `text` to a temporary file beside `path`, then renames it. On failure nothing is left
/// and what stood at `path` still does. Errors: "PATH: why the system refused".
Result<void> write_text_file(const std::string& path, std::string_view text);

/// The same, where "-" is standard output.
Result<void> write_text_or_stdout(const std::string& path, std::string_view text);

}  // namespace stow
