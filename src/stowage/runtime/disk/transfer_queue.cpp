#include "stowage/runtime/disk/transfer_queue.h"

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

TransferQueue::~TransferQueue() {
  gives_up_ = true;
  for (const Transfer& transfer : transfers_)
    while (transfer.in_queue) {
      const DiskQueue::Ended ended = queue_.wait();
      settle(ended.number, ended.result);
    }
}

void TransferQueue::begin(const DiskPiece& piece) {
  STOW_CHECK(count() < kMost && piece.bytes > 0);
  const int number = static_cast<int>(begun_++ % kMost);
  transfers_[static_cast<size_t>(number)] = {piece, piece};
  launch(number);
}

void TransferQueue::end_oldest() {
  STOW_CHECK(count() > 0);
  wait_for(static_cast<int>(ended_++ % kMost));
}

void TransferQueue::move_now(const DiskPiece& piece) {
  transfers_[kMost] = {piece, piece};
  launch(kMost);
  wait_for(kMost);
}

bool TransferQueue::touches(int64_t begin, int64_t end) const {
  for (uint64_t i = ended_; i < begun_; ++i) {
    const DiskPiece& piece = transfers_[i % kMost].whole;
    if (piece.offset < end && begin < piece.end()) return true;
  }
  return false;
}

// Hands what is left of a piece to the queue, or settles it where a fault does without.
void TransferQueue::launch(int number) {
  Transfer& transfer = transfers_[static_cast<size_t>(number)];
  DiskPiece piece = transfer.piece;
  if (faults_) {
    const DiskFaults::Fault fault = faults_->before(piece.write, piece.offset, piece.bytes);
    if (fault.delay_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(fault.delay_us));
    if (fault.error != 0) return settle(number, -fault.error);
    // Direct access moves whole blocks, or nothing.
    piece.bytes = std::min(piece.bytes, fault.most_bytes / block_bytes_ * block_bytes_);
    if (piece.bytes <= 0) return settle(number, 0);
  }
  transfer.in_queue = true;
  queue_.start(number, piece);
}

void TransferQueue::settle(int number, int64_t result) {
  Transfer& transfer = transfers_[static_cast<size_t>(number)];
  transfer.in_queue = false;
  if (gives_up_) return;
  // The rest must begin on a block, so part of a block is moved again.
  const int64_t moved = std::max<int64_t>(
      result < transfer.piece.bytes ? result / block_bytes_ * block_bytes_ : result, 0);
  transfer.piece.offset += moved;
  transfer.piece.memory += moved;
  transfer.piece.bytes -= moved;
  if (transfer.piece.bytes == 0) return;
  transfer.attempts = moved > 0 ? 0 : transfer.attempts + 1;
  const bool again = result >= 0 || result == -EINTR || result == -EAGAIN;
  if (again && transfer.attempts < kMostAttempts) return launch(number);
  transfer.error = result < 0 ? static_cast<int>(-result) : EIO;
}

void TransferQueue::wait_for(int number) {
  const Transfer& transfer = transfers_[static_cast<size_t>(number)];
  while (transfer.in_queue) {
    const DiskQueue::Ended ended = queue_.wait();
    settle(ended.number, ended.result);
  }
  if (transfer.error == 0) return;
  throw DiskError(folder_,
                  fmt::format("{} {} bytes at {} failed after {} bytes",
                              transfer.whole.write ? "writing" : "reading", transfer.whole.bytes,
                              transfer.whole.offset, transfer.whole.bytes - transfer.piece.bytes),
                  transfer.error);
}

}  // namespace stow
