// The sources of device descriptions: those that the program carries, files, and what calibration
// measured of this machine.
// Not what they say; that is runtime/null/device_description.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/runtime/null/device_description.h"

namespace stow {

/// The names of the descriptions in the program: the files of devices/, in order.
std::vector<std::string> device_names();

/// The description of a name, or of a file: what ends in ".toml" or has a folder.
/// Errors: no such name (with the nearest), the file's.
Result<DeviceDescription> load_device_description(const std::string& name_or_path);

/// The name of a description of this machine: its processor and the threads that kernels use.
std::string this_machine(int threads);

/// The file in which calibration leaves its results: $XDG_CACHE_HOME/stowage/device.toml, or below
/// ~/.cache; empty where the environment names neither.
std::string calibrated_path();

/// The calibration of this machine with so many threads; none where nothing was, or on another
/// machine. Errors: the file is there and cannot be read.
Result<std::optional<DeviceDescription>> calibrated_description(int threads);

}  // namespace stow
