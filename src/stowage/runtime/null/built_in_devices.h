// The device descriptions of devices/, which the build embeds in the program.
// Not for users; tune/devices.h finds them by name.
#pragma once

#include <span>
#include <string_view>

#include "stowage/runtime/null/device_description.h"

namespace stow {

struct BuiltInDevice {
  std::string_view name;  ///< Name of the file, without ".toml".
  std::string_view toml;  ///< Text of the file.
};

/// Returns all built-in devices, in alphabetical order. Defined in a source that CMakeLists.txt
/// writes.
std::span<const BuiltInDevice> built_in_devices();

/// Returns the description of devices/cpu.toml: a common CPU, for which plans are made if a program
/// runs on a CPU that is not described.
const DeviceDescriptionPtr& common_cpu();

}  // namespace stow
