// The device descriptions of devices/, which the build embeds in the program.
// Not for users; tune/devices.h finds them by name.
#pragma once

#include <span>
#include <string_view>

namespace stow {

struct BuiltInDevice {
  std::string_view name;  ///< Name of the file, without ".toml".
  std::string_view toml;  ///< Text of the file.
};

/// Returns all built-in devices, in alphabetical order. Defined in a source that CMakeLists.txt
/// writes.
std::span<const BuiltInDevice> built_in_devices();

}  // namespace stow
