// DiskQueue: a few transfers in flight on one file, by io_uring or by threads.
// Not a policy: what is retried, continued or an error is the business of disk/flight.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace stow {

/// `bytes` between the file from `offset` on and memory.
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
  /// Waits for any transfer to end: its number, and the bytes moved or -errno.
  struct Ended {
    int number;
    int64_t result;
  };
  virtual Ended wait() = 0;  ///< At least one must be in flight.
};

/// None where the kernel has no io_uring or forbids it.
std::unique_ptr<DiskQueue> make_uring_queue(int file);
/// A few threads that call pread and pwrite.
std::unique_ptr<DiskQueue> make_thread_queue(int file);

}  // namespace stow
