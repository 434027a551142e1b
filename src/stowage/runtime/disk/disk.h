// Disk: a heap in one unnamed file of a folder; transfers bypass the page cache if possible.
// Not persistent: the file is gone when the process ends, even by a crash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>

#include "stowage/runtime/disk/extents.h"

namespace stow {

class DiskQueue;

/// A transfer that failed. The bytes being written and the results of the running program are lost;
/// all other bytes on the disk stay.
class DiskError : public std::runtime_error {
 public:
  /// "disk folder 'FOLDER': WHAT: the system's reason".
  DiskError(const std::string& folder, const std::string& what, int error);
  int error_number() const { return error_; }  ///< errno of the failed call.

 private:
  int error_;
};

/// For tests: injects faults into pieces of transfers. Several threads may call it at a time.
class DiskFaults {
 public:
  /// A fault of one piece, applied before the system call.
  struct Fault {
    int error = 0;                          ///< The call fails with this errno; 0: no error.
    int64_t most_bytes = int64_t{1} << 62;  ///< The transfer moves at most this many bytes.
    int64_t delay_us = 0;                   ///< Delay before the call, in microseconds.
  };
  virtual ~DiskFaults() = default;
  /// Returns the fault of a piece. Called before each attempt, retries and continuations included.
  virtual Fault before(bool write, int64_t offset, int64_t bytes) = 0;
};

/// The system interface for transfers: io_uring, or threads that call pread and pwrite.
enum class DiskEngine : uint8_t { kUring, kThreads };
/// Returns "io_uring" or "threads".
const char* disk_engine_name(DiskEngine engine);

/// Returns $TMPDIR, or "/tmp" if it is unset or empty.
std::string default_disk_folder();

struct DiskOptions {
  std::string folder;  ///< The folder of the file; "": default_disk_folder().
  bool uring = true;   ///< False: use threads, even if the kernel allows io_uring.
  bool direct = true;  ///< False: use the page cache, even if the file system has direct access.
  std::shared_ptr<DiskFaults> faults;  ///< For tests.
};

/// One axis of a window: its extent, and its strides in bytes on the disk and in memory.
struct DiskAxis {
  int64_t extent = 1;
  int64_t disk_bytes = 0;
  int64_t memory_bytes = 0;
};
/// Elements of `width` bytes, the first at `offset` on the disk and at `memory`. Strides may be
/// negative or 0, but elements must not overlap on the side that is written.
struct DiskWindow {
  int64_t offset = 0;
  std::byte* memory = nullptr;
  int64_t width = 1;
  std::span<const DiskAxis> axes;
};

namespace runtime {

/// Thread-safe. One read and one write run at a time; both may run at once if they touch different
/// bytes. A write of a part of a block reads the block first.
class Disk {
 public:
  /// Creates the file. Errors: CapacityError that names the folder and the reason.
  explicit Disk(const DiskOptions& options = {});
  ~Disk();
  Disk(const Disk&) = delete;
  Disk& operator=(const Disk&) = delete;

  const std::string& folder() const { return folder_; }  ///< As given, or the default.
  DiskEngine engine() const { return engine_; }          ///< The engine in use.
  bool direct() const { return direct_; }  ///< True if transfers bypass the page cache.

  /// Reserves at least `bytes` > 0 in whole blocks, which read as zeros, and returns their offset.
  /// Errors: CapacityError that names the folder if the file system is full or a limit forbids it.
  int64_t reserve(int64_t bytes);
  /// Frees the range that reserve(bytes) returned as `offset`.
  void release(int64_t offset, int64_t bytes);
  /// Returns the storage of the whole blocks in [begin, end) to the file system. The range must be
  /// reserved and stays reserved.
  void discard(int64_t begin, int64_t end);

  /// Copies bytes between the disk at `offset` and memory, at any offset, length and alignment.
  /// Bytes that are block-aligned on both sides are moved directly, all others through `bounce`:
  /// memory of at least one block; disk_bounce_bytes() is the best size. Empty: the call allocates
  /// a bounce buffer.
  /// Errors: DiskError, after all transfers of the call have ended.
  void read(int64_t offset, std::span<std::byte> to, std::span<std::byte> bounce = {});
  void write(int64_t offset, std::span<const std::byte> from, std::span<std::byte> bounce = {});
  /// Copies a strided window; errors and `bounce` as above.
  void read(const DiskWindow& window, std::span<std::byte> bounce);
  void write(const DiskWindow& window, std::span<std::byte> bounce);

  /// Returns the bytes of the file system that the file occupies. Errors: DiskError.
  int64_t bytes_on_disk() const;

 private:
  [[noreturn]] void refuse(const std::string& what, int error) const;
  void open_file();
  bool bypass_cache();  // switches to direct access; false if the file system has none
  void transfer(bool write, const DiskWindow& window, std::span<std::byte> bounce);
  // Drops a range from the page cache, after writing it back if `wrote`.
  void drop_from_cache(bool wrote, int64_t begin, int64_t end) const;

  std::string folder_;
  DiskEngine engine_ = DiskEngine::kUring;
  bool direct_ = true;
  std::shared_ptr<DiskFaults> faults_;
  int file_ = -1;
  std::mutex extents_mutex_;
  DiskExtents extents_;
  // One mutex and one queue for each direction: index 0 reads, index 1 writes.
  std::mutex mutex_[2];
  std::unique_ptr<DiskQueue> queue_[2];
};

}  // namespace runtime

}  // namespace stow
