// Reads and atomically writes whole text files.
// Not for large data or streams.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"

namespace stow {

/// Returns the content of a file or pipe.
/// Errors: "PATH: reason" if it is missing, a folder, unreadable or longer than `max_bytes`.
Result<std::string> read_text_file(const std::string& path, int64_t max_bytes = int64_t{1} << 30);

/// read_text_file; the path "-" means standard input.
Result<std::string> read_text_or_stdin(const std::string& path,
                                       int64_t max_bytes = int64_t{1} << 30);

/// Writes `text` to a file through an AtomicFile. Errors: as AtomicFile.
Result<void> write_text_file(const std::string& path, std::string_view text);

/// write_text_file; the path "-" means standard output.
Result<void> write_text_or_stdout(const std::string& path, std::string_view text);

}  // namespace stow
