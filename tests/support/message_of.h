// message_of: the message of the exception that a call throws, for tests of errors.
// Not a check; the test compares the message.
#pragma once

#include <exception>
#include <string>

namespace stow {

/// Returns the message of the exception that f throws, or "nothing was thrown".
template <typename F>
std::string message_of(F f) {
  try {
    f();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

}  // namespace stow
