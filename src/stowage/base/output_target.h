// OutputTarget: what stands where a file is to be written anew.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

namespace stow {

struct OutputTarget {
  std::string path;  ///< Behind symbolic links, where a regular file stands there.
  /// Something that no file may take the place of, such as a device or a pipe: it is written to as
  /// it is.
  bool in_place = false;
  std::optional<mode_t> mode;  ///< Of the regular file that is there.
};

OutputTarget output_target(const std::string& path);

}  // namespace stow
