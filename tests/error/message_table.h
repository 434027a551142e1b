// The row type of tables of exact error messages. "@" stands for a line number.
// Not the tables; each test has its own.
#pragma once

#include <functional>
#include <regex>
#include <string>

#include "stowage/base/error.h"

namespace stow::testing {

struct MessageCase {
  const char* name;
  std::function<void()> run;
  const char* message;
};

inline std::string message_of(const MessageCase& c) {
  try {
    c.run();
  } catch (const TraceError& error) {
    return std::regex_replace(error.what(), std::regex("(messages_test\\.cpp):[0-9]+"), "$1:@");
  }
  return "no error";
}

}  // namespace stow::testing
