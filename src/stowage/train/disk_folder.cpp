#include "stowage/train/disk_folder.h"

#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <system_error>

#include "stowage/base/error.h"
#include "stowage/runtime/device.h"

namespace stow {
namespace {

// Returns a refusal by the disk with the key that can change it.
std::string with_key(const TrainConfig& config, const std::string& message) {
  return fmt::format("runtime.disk_folder{}: {}",
                     config.runtime.disk_folder.empty() ? " (not set)" : "", message);
}

// Opens the disk without direct access, since these requests need no speed.
Result<void> with_disk(const TrainConfig& config, const std::function<void(Disk&)>& ask) {
  try {
    Disk disk({.folder = config.runtime.disk_folder, .uring = false, .direct = false});
    ask(disk);
    return {};
  } catch (const CapacityError& error) {
    return fail("{}", with_key(config, error.what()));
  }
}

}  // namespace

Result<void> check_disk_folder(const TrainConfig& config) {
  if (!config.memory.disk) return {};
  return with_disk(config, [](Disk&) {});
}

Result<void> check_disk_space(const TrainConfig& config, int64_t bytes) {
  return with_disk(config, [&](Disk& disk) {
    if (bytes > 0) disk.release(disk.reserve(bytes), bytes);
  });
}

Result<int64_t> disk_space_bytes(const TrainConfig& config) {
  int64_t bytes = 0;
  const Result<void> asked = with_disk(config, [&](const Disk& disk) {
    struct statvfs info {};
    if (::statvfs(disk.folder().c_str(), &info) != 0)
      throw CapacityError(fmt::format("disk folder '{}': its space cannot be asked: {}",
                                      disk.folder(), std::system_category().message(errno)));
    const uint64_t blocks = ::geteuid() == 0 ? info.f_bfree : info.f_bavail;
    uint64_t left = 0;
    if (__builtin_mul_overflow(blocks, uint64_t{info.f_frsize}, &left)) left = UINT64_MAX;
    rlimit limit{};
    if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
      left = std::min<uint64_t>(left, limit.rlim_cur);
    bytes = static_cast<int64_t>(
        std::min<uint64_t>(left, static_cast<uint64_t>(Device::unlimited_bytes())));
  });
  if (!asked) return asked.failure();
  return bytes;
}

}  // namespace stow
