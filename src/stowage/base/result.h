// Result<T>: a value or the reason there is none, for outcomes a caller can act on.
// Not for broken invariants (STOW_CHECK) or wrong user programs (TraceError).
#pragma once

#include <fmt/core.h>

#include <optional>
#include <string>
#include <utility>

#include "stowage/base/error.h"

namespace stow::base {

/// Why something could not be done, as one line for people.
struct Failure {
  std::string message;
};

/// Returns a Failure with the formatted message.
template <typename... Args>
Failure fail(fmt::format_string<Args...> format, Args&&... args) {
  return Failure{fmt::format(format, std::forward<Args>(args)...)};
}

/// A T or a Failure. Reading the value of a failed result aborts.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Failure failure) : message_(std::move(failure.message)) {}

  /// True if it holds a value.
  bool ok() const { return value_.has_value(); }
  explicit operator bool() const { return ok(); }
  const std::string& error() const { return message_; }
  Failure failure() const { return Failure{message_}; }

  T& value() & { return check(), *value_; }
  const T& value() const& { return check(), *value_; }
  T&& value() && { return check(), std::move(*value_); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  void check() const { STOW_CHECK(value_.has_value(), "{}", message_); }

  std::optional<T> value_;
  std::string message_;
};

/// Success, or a Failure.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Failure failure) : ok_(false), message_(std::move(failure.message)) {}

  /// True for success.
  bool ok() const { return ok_; }
  explicit operator bool() const { return ok_; }
  const std::string& error() const { return message_; }
  Failure failure() const { return Failure{message_}; }

 private:
  bool ok_ = true;
  std::string message_;
};

}  // namespace stow::base
