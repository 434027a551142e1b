// Exceptions for errors in user programs, and STOW_CHECK, which aborts on a broken invariant.
// Not for outcomes that a caller can act on; those are Result<T> (base/result.h).
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <string_view>

namespace stow {

/// An error in the user's program: shapes, dtypes, memory kinds, misuse of a transform. The message
/// names the op, the types and the place in the user's source.
class TraceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A valid request that exceeds memory or disk space: a plan over budget, a full device.
class CapacityError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Throws TraceError with the formatted message.
template <typename... Args>
[[noreturn]] void trace_error(fmt::format_string<Args...> format, Args&&... args) {
  throw TraceError(fmt::format(format, std::forward<Args>(args)...));
}

/// Prints `file:line: check failed: condition: message` on stderr and aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               std::string_view message);

}  // namespace stow

/// Aborts if an internal invariant does not hold. No user input may trigger it.
#define STOW_CHECK(condition, ...)                                        \
  do {                                                                    \
    if (!(condition)) [[unlikely]]                                        \
      ::stow::check_failed(__FILE__, __LINE__, #condition,                \
                           ::fmt::format("" __VA_ARGS__));                \
  } while (false)
