// TransferQueue: pieces in flight between a disk and memory, with retries after short or
// interrupted transfers. It does not cut windows into pieces; disk/window.h does.
#pragma once

#include <array>
#include <string>

#include "stowage/runtime/disk/disk.h"
#include "stowage/runtime/disk/queue.h"

namespace stow {

/// A queue of pieces that are awaited in the order in which they began. The destructor waits for
/// all pieces in flight; the caller may free their memory afterwards.
class TransferQueue {
 public:
  /// `faults`: injected faults for tests; null: none. `folder`: names the disk in errors.
  /// `block_bytes`: the disk's block; the rest of a short transfer begins at a multiple of it.
  TransferQueue(DiskQueue& queue, DiskFaults* faults, const std::string& folder,
                int64_t block_bytes)
      : queue_(queue), faults_(faults), folder_(folder), block_bytes_(block_bytes) {}
  ~TransferQueue();
  TransferQueue(const TransferQueue&) = delete;
  TransferQueue& operator=(const TransferQueue&) = delete;

  /// Largest number of pieces in flight, not counting the piece of move_now().
  static constexpr int kMost = DiskQueue::kDepth - 1;

  int count() const { return static_cast<int>(begun_ - ended_); }  ///< Pieces in flight.
  /// Begins a piece; fewer than kMost must be in flight.
  void begin(const DiskPiece& piece);
  /// Waits for the piece that began first. Errors: DiskError.
  void end_oldest();
  /// Moves a piece and waits for it, while the pieces in flight go on. Errors: DiskError.
  void move_now(const DiskPiece& piece);
  /// True if a piece in flight shares bytes of the file with this range.
  bool touches(int64_t begin, int64_t end) const;

 private:
  // A piece in flight.
  struct Transfer {
    DiskPiece piece;  // the part that has not moved yet
    DiskPiece whole;
    int attempts = 0;  // attempts in a row that moved nothing
    int error = 0;     // errno; 0: none
    bool in_queue = false;
  };

  // `number`: index in transfers_.
  void launch(int number);                  // submits the part that has not moved yet
  void settle(int number, int64_t result);  // handles a result: done, retried or an error
  void wait_for(int number);                // throws DiskError if the piece failed

  DiskQueue& queue_;
  DiskFaults* faults_;
  const std::string& folder_;
  int64_t block_bytes_;
  std::array<Transfer, DiskQueue::kDepth> transfers_;
  uint64_t begun_ = 0, ended_ = 0;
  bool gives_up_ = false;  // true in the destructor: results are ignored
};

}  // namespace stow
