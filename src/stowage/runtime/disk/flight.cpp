#include "stowage/runtime/disk/flight.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

#include "stowage/base/error.h"

namespace stow {
namespace {

// So often in a row a piece may be interrupted or move nothing.
constexpr int kMostAttempts = 64;

}  // namespace

Flight::~Flight() {
  gives_up_ = true;
  for (const Leg& leg : legs_)
    while (leg.in_queue) {
      const DiskQueue::Ended ended = queue_.wait();
      settle(ended.number, ended.result);
    }
}

void Flight::begin(const DiskPiece& piece) {
  STOW_CHECK(count() < kMost && piece.bytes > 0);
  const int number = static_cast<int>(begun_++ % kMost);
  legs_[static_cast<size_t>(number)] = {piece, piece};
  launch(number);
}

void Flight::end_oldest() {
  STOW_CHECK(count() > 0);
  wait_for(static_cast<int>(ended_++ % kMost));
}

void Flight::move_now(const DiskPiece& piece) {
  legs_[kMost] = {piece, piece};
  launch(kMost);
  wait_for(kMost);
}

bool Flight::touches(int64_t begin, int64_t end) const {
  for (uint64_t i = ended_; i < begun_; ++i) {
    const DiskPiece& piece = legs_[i % kMost].whole;
    if (piece.offset < end && begin < piece.end()) return true;
  }
  return false;
}

// Hands what is left of a piece to the queue, or settles it where a fault does without.
void Flight::launch(int number) {
  Leg& leg = legs_[static_cast<size_t>(number)];
  DiskPiece piece = leg.piece;
  if (faults_) {
    const DiskFaults::Fault fault = faults_->before(piece.write, piece.offset, piece.bytes);
    if (fault.delay_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(fault.delay_us));
    if (fault.error != 0) return settle(number, -fault.error);
    // Direct access moves whole blocks, or nothing.
    piece.bytes = std::min(piece.bytes, fault.most_bytes / block_bytes_ * block_bytes_);
    if (piece.bytes <= 0) return settle(number, 0);
  }
  leg.in_queue = true;
  queue_.start(number, piece);
}

void Flight::settle(int number, int64_t result) {
  Leg& leg = legs_[static_cast<size_t>(number)];
  leg.in_queue = false;
  if (gives_up_) return;
  // What follows must begin on a block; a part of one is moved again.
  const int64_t moved = std::max<int64_t>(
      result < leg.piece.bytes ? result / block_bytes_ * block_bytes_ : result, 0);
  leg.piece.offset += moved;
  leg.piece.memory += moved;
  leg.piece.bytes -= moved;
  if (leg.piece.bytes == 0) return;
  leg.attempts = moved > 0 ? 0 : leg.attempts + 1;
  const bool again = result >= 0 || result == -EINTR || result == -EAGAIN;
  if (again && leg.attempts < kMostAttempts) return launch(number);
  leg.error = result < 0 ? static_cast<int>(-result) : EIO;
}

void Flight::wait_for(int number) {
  const Leg& leg = legs_[static_cast<size_t>(number)];
  while (leg.in_queue) {
    const DiskQueue::Ended ended = queue_.wait();
    settle(ended.number, ended.result);
  }
  if (leg.error == 0) return;
  throw DiskError(folder_,
                  fmt::format("{} {} bytes at {} failed after {} bytes",
                              leg.whole.write ? "writing" : "reading", leg.whole.bytes,
                              leg.whole.offset, leg.whole.bytes - leg.piece.bytes),
                  leg.error);
}

}  // namespace stow
