// Checks of the folder for a configuration's disk memory, before a run depends on it.
// Not the disk; that is runtime/disk.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/train/config.h"

namespace stow {

/// Checks that a file can be created in the folder of the configuration's disk. Succeeds without a
/// disk.
/// Errors: one line that names runtime.disk_folder, the folder and the system's reason.
Result<void> check_disk_folder(const TrainConfig& config);

/// Checks that `bytes` can be reserved in the folder now; frees them at once.
/// Errors: as check_disk_folder().
Result<void> check_disk_space(const TrainConfig& config, int64_t bytes);

/// Returns the bytes that a file in the folder could have, by the file system's free space and the
/// limit on file sizes. Reserves nothing. Errors: as check_disk_folder().
Result<int64_t> disk_space_bytes(const TrainConfig& config);

}  // namespace stow
