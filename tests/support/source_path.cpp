#include "tests/support/source_path.h"

namespace stow {

std::string source_path(std::string_view relative) {
  return std::string(STOW_SOURCE_DIR "/").append(relative);
}

}  // namespace stow
