// The errors of Stowage: a wrong user program throws, a broken invariant of ours aborts.
// Not for outcomes a caller can act on; those are Result<T> (base/result.h).
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <string_view>

namespace stow {

/// A wrong user program: shapes, dtypes, memory kinds, misuse of a transform. The message names
/// the op, the types and the place in the user's source.
class TraceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A request that is well-formed and cannot be met: a plan over budget, a device out of capacity.
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

/// Aborts when an invariant of ours is broken. Never reachable from input.
#define STOW_CHECK(condition, ...)                                        \
  do {                                                                    \
    if (!(condition)) [[unlikely]]                                        \
      ::stow::check_failed(__FILE__, __LINE__, #condition,                \
                           ::fmt::format("" __VA_ARGS__));                \
  } while (false)
