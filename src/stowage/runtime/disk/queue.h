// DiskQueue: a few transfers in flight on one file, by io_uring or by threads.
// Not a policy: disk/transfer_queue.h decides what is retried, continued or an error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace stow {

/// A transfer of `bytes` bytes between the file at `offset` and memory.
struct DiskPiece {
  bool write = false;
  int64_t offset = 0;
  std::byte* memory = nullptr;
  int64_t bytes = 0;
  int64_t end() const { return offset + bytes; }  ///< In the file.
};

/// Used by one thread at a time.
class DiskQueue {
 public:
  static constexpr int kDepth = 16;  ///< Transfers that may be in flight.

  virtual ~DiskQueue() = default;
  /// Begins a transfer under a number in [0, kDepth) that is not in flight.
  virtual void start(int number, const DiskPiece& piece) = 0;
  /// A transfer that has ended.
  struct Ended {
    int number;
    int64_t result;  ///< Bytes moved, or -errno.
  };
  /// Waits until any transfer has ended. At least one must be in flight.
  virtual Ended wait() = 0;
};

/// Returns a queue that uses io_uring; null if the kernel lacks or forbids it. `file`: a
/// descriptor.
std::unique_ptr<DiskQueue> make_uring_queue(int file);
/// Returns a queue of a few threads that call pread and pwrite.
std::unique_ptr<DiskQueue> make_thread_queue(int file);

}  // namespace stow
