#include "stowage/base/log.h"

#include <fmt/core.h>

#include <cstdio>

namespace stow {

void log_warning(std::string_view message) {
  fmt::print(stderr, "stowage: warning: {}\n", message);
}

}  // namespace stow
