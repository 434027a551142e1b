// Disk: a heap in one nameless file of a folder, moved by direct access that passes the page cache.
// Not a store: the file is gone with the process, however that ends.
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

/// A transfer that failed. What was being written is lost, as is what a program was computing; all
/// else stays.
class DiskError : public std::runtime_error {
 public:
  /// "disk folder 'FOLDER': WHAT: the system's reason".
  DiskError(const std::string& folder, const std::string& what, int error);
  int error_number() const { return error_; }  ///< An errno.

 private:
  int error_;
};

/// For tests: makes pieces of transfers fail, end early or take long. Called by several threads.
class DiskFaults {
 public:
  /// A fault of a piece before the system sees it.
  struct Fault {
    int error = 0;                          ///< An errno; then nothing is moved.
    int64_t most_bytes = int64_t{1} << 62;  ///< A short transfer: no more than this.
    int64_t delay_us = 0;                   ///< It takes so much longer.
  };
  virtual ~DiskFaults() = default;
  /// Asked before each piece, retries and continuations included.
  virtual Fault before(bool write, int64_t offset, int64_t bytes) = 0;
};

/// How a disk moves bytes.
enum class DiskEngine : uint8_t { kUring, kThreads };
/// "io_uring", "threads".
const char* disk_engine_name(DiskEngine engine);

/// $TMPDIR, or else /tmp.
std::string default_disk_folder();

struct DiskOptions {
  std::string folder;  ///< The folder of the file; "": default_disk_folder().
  bool uring = true;   ///< Off: threads, even where the kernel allows io_uring.
  bool direct = true;  ///< Off: through the page cache, even where the file system needs not.
  std::shared_ptr<DiskFaults> faults;  ///< For tests.
};

/// One axis of a window: how many, and how far apart in bytes on the disk and in memory.
struct DiskAxis {
  int64_t extent = 1;
  int64_t disk_bytes = 0;
  int64_t memory_bytes = 0;
};
/// Elements of `width` bytes, the first at `offset` on the disk and at `memory`. Any strides; those
/// on the side that is written do not make elements overlap.
struct DiskWindow {
  int64_t offset = 0;
  std::byte* memory = nullptr;
  int64_t width = 1;
  std::span<const DiskAxis> axes;
};

namespace runtime {

/// Thread-safe. Reads wait for reads and writes for writes; a read and a write of other bytes run
/// beside one another. Bytes that share a block with others may be written: the block is read
/// first, and writers take turns.
class Disk {
 public:
  /// Makes the file. Errors: CapacityError that names the folder and says what is wrong with it.
  explicit Disk(const DiskOptions& options = {});
  ~Disk();
  Disk(const Disk&) = delete;
  Disk& operator=(const Disk&) = delete;

  const std::string& folder() const { return folder_; }  ///< As given, or the default.
  DiskEngine engine() const { return engine_; }          ///< The engine in use.
  bool direct() const { return direct_; }                ///< True if transfers bypass the page cache.

  /// Reserves at least `bytes` > 0 on whole blocks; they read as zeros.
  /// Errors: CapacityError that names the folder where it is full or a limit forbids it.
  int64_t reserve(int64_t bytes);
  /// Gives back what was reserved with the same `bytes`.
  void release(int64_t offset, int64_t bytes);
  /// Gives the whole blocks inside a reserved range back to the file system; the range stays taken.
  void discard(int64_t begin, int64_t end);

  /// Moves bytes; any offset, length and alignment. What lies on blocks on both sides is moved as
  /// it is, all else through `bounce`: memory that holds a block at least (disk_bounce_bytes()
  /// serve best); where none is given, some is allocated. Errors: DiskError, with all transfers
  /// ended.
  void read(int64_t offset, std::span<std::byte> to, std::span<std::byte> bounce = {});
  void write(int64_t offset, std::span<const std::byte> from, std::span<std::byte> bounce = {});
  /// The same for a strided window.
  void read(const DiskWindow& window, std::span<std::byte> bounce);
  void write(const DiskWindow& window, std::span<std::byte> bounce);

  /// Bytes of the file system that the file takes.
  int64_t bytes_on_disk() const;

 private:
  [[noreturn]] void refuse(const std::string& what, int error) const;
  void open_file();
  bool bypass_cache();  // switches to unbuffered access; false if the file system has none
  void transfer(bool write, const DiskWindow& window, std::span<std::byte> bounce);
  void forget(bool wrote, int64_t begin, int64_t end) const;

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
