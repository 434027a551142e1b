// Finds device descriptions: built-in ones, files, and the calibration of this machine.
// Not their content; that is runtime/null/device_description.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/runtime/null/device_description.h"

namespace stow {

/// Returns the names of the built-in descriptions, which are the files of devices/, in order.
std::vector<std::string> device_names();

/// Returns a built-in description by name, or that of a file. An argument that ends in ".toml" or
/// has a folder part is a file.
/// Errors: an unknown name (the message has the nearest one); those of the file.
Result<DeviceDescription> load_device_description(const std::string& name_or_path);

/// Returns the name of this machine's description: its processor and the threads of kernels.
std::string machine_name(int threads);

/// Returns the file to which calibration writes its results: $XDG_CACHE_HOME/stowage/device.toml,
/// else ~/.cache/stowage/device.toml; empty if the environment has neither variable.
std::string calibrated_path();

/// Returns the calibration of this machine with that number of threads; none if there is none, or
/// if the file is of another machine. Errors: the file exists and cannot be read.
Result<std::optional<DeviceDescription>> calibrated_description(int threads);

}  // namespace stow
