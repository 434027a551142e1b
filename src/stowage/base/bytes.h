// Sizes in bytes: printing for people and parsing from a flag or a config.
// Not for rates or times.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "stowage/base/result.h"

namespace stow {

/// Returns a size as text in binary units, with two decimals from 1024 bytes on: "1.50 MiB",
/// "312 B".
std::string format_bytes(int64_t bytes);

/// Parses "64MiB", "1.5GB", "4096". Units B KB MB GB TB (powers of 1000) and KiB MiB GiB TiB
/// (powers of 1024), case-insensitive; a plain number is bytes.
/// Errors: the text is empty, negative, has an unknown unit, is not a whole number of bytes, or
/// exceeds 2^62 bytes.
base::Result<int64_t> parse_bytes(std::string_view text);

/// Returns the smallest multiple of `alignment`, a power of two, that is at least `value`.
constexpr int64_t align_up(int64_t value, int64_t alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}

}  // namespace stow
