// Flight: pieces on their way between a disk and memory; short ones go on, interrupted ones again.
// Not where pieces come from; disk/window.h cuts windows into them.
#pragma once

#include <array>
#include <string>

#include "stowage/runtime/disk/disk.h"
#include "stowage/runtime/disk/queue.h"

namespace stow {

/// Pieces end in the order in which they began. Its destructor waits for what is in flight, so that
/// memory can be given back after it.
class Flight {
 public:
  /// `block_bytes`: what continuations are aligned to.
  Flight(DiskQueue& queue, DiskFaults* faults, const std::string& folder, int64_t block_bytes)
      : queue_(queue), faults_(faults), folder_(folder), block_bytes_(block_bytes) {}
  ~Flight();
  Flight(const Flight&) = delete;
  Flight& operator=(const Flight&) = delete;

  static constexpr int kMost = DiskQueue::kDepth - 1;  ///< Pieces in flight; one more runs at once.

  int count() const { return static_cast<int>(begun_ - ended_); }  ///< In flight.
  /// Begins a piece; fewer than kMost must be in flight.
  void begin(const DiskPiece& piece);
  /// Waits for the piece that began first. Errors: DiskError.
  void end_oldest();
  /// Moves a piece while the others go on. Errors: DiskError.
  void move_now(const DiskPiece& piece);
  /// True if a piece in flight shares bytes of the file with this range.
  bool touches(int64_t begin, int64_t end) const;

 private:
  struct Leg {
    DiskPiece piece;  // the rest of the piece
    DiskPiece whole;
    int attempts = 0;  // since anything moved
    int error = 0;
    bool in_queue = false;
  };

  void launch(int number);
  void settle(int number, int64_t result);
  void wait_for(int number);

  DiskQueue& queue_;
  DiskFaults* faults_;
  const std::string& folder_;
  int64_t block_bytes_;
  std::array<Leg, DiskQueue::kDepth> legs_;
  uint64_t begun_ = 0, ended_ = 0;
  bool gives_up_ = false;
};

}  // namespace stow
