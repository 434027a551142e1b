// message_of: what a call throws, as text, for tests of errors.
// Not a check; the test says what the text must be.
#pragma once

#include <exception>
#include <string>

namespace stow {

/// The message of the exception that f throws.
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
