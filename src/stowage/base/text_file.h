// Whole text files: read at once, written so that a reader never sees half of one.
// Not for large data or streams.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"

namespace stow {

/// The whole file, or all that comes through a pipe.
/// Errors: missing, a folder, unreadable, more than `max_bytes`; "PATH: reason".
Result<std::string> read_text_file(const std::string& path, int64_t max_bytes = int64_t{1} << 30);

/// The same, where "-" is standard input.
Result<std::string> read_text_or_stdin(const std::string& path,
                                       int64_t max_bytes = int64_t{1} << 30);

/// Writes `text` as an AtomicFile. Errors: as there.
Result<void> write_text_file(const std::string& path, std::string_view text);

/// The same, where "-" is standard output.
Result<void> write_text_or_stdout(const std::string& path, std::string_view text);

}  // namespace stow
