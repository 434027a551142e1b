// The folder that a configuration's disk lies in, asked before a run depends on it.
// Not the disk; that is runtime/disk.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/train/config.h"

namespace stow {

/// Checks that a file can be made in the folder of the configuration's disk; without a disk it needs
/// none. Errors: one line that names runtime.disk_folder, the folder and the system's reason.
Result<void> check_disk_folder(const TrainConfig& config);

/// Checks that so many bytes can be reserved there now; they are given back at once.
/// Errors: as check_disk_folder.
Result<void> check_disk_space(const TrainConfig& config, int64_t bytes);

/// Bytes that a file there could have, as the file system and the limit on file sizes say. Reserves
/// nothing. Errors: as check_disk_folder.
Result<int64_t> disk_space_bytes(const TrainConfig& config);

}  // namespace stow
