// RandomFaults: injects errors, short transfers and delays into a disk at random, by a seed.
// Not a disk; DiskOptions::faults takes it.
#pragma once

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <random>

#include "stowage/runtime/disk/disk.h"

namespace stow::testing {

class RandomFaults final : public DiskFaults {
 public:
  /// The percentage of pieces that have each fault.
  struct Rates {
    int error = 0;           ///< EIO.
    int interrupted = 0;     ///< EINTR or EAGAIN.
    int short_transfer = 0;  ///< Only a part is moved.
    int delay = 0;           ///< A delay of up to a millisecond.
    int64_t longest_short = int64_t{1} << 40;  ///< Most bytes of a short transfer.
  };

  RandomFaults(Rates rates, uint64_t seed) : rates_(rates), random_(seed) {}

  Fault before(bool, int64_t, int64_t bytes) override {
    const std::lock_guard lock(mutex_);
    Fault fault;
    if (hits(rates_.delay)) fault.delay_us = static_cast<int64_t>(random_() % 1000);
    if (hits(rates_.short_transfer))
      fault.most_bytes = std::min(rates_.longest_short,
                                  static_cast<int64_t>(random_() % static_cast<uint64_t>(bytes)));
    if (hits(rates_.interrupted)) fault.error = random_() % 2 ? EINTR : EAGAIN;
    if (hits(rates_.error)) fault.error = EIO;
    return fault;
  }

  void stop() { start({}); }
  void start(Rates rates) {
    const std::lock_guard lock(mutex_);
    rates_ = rates;
  }
  /// The number of faults so far.
  int64_t count() const {
    const std::lock_guard lock(mutex_);
    return count_;
  }

 private:
  bool hits(int percent) {
    const bool hit = static_cast<int>(random_() % 100) < percent;
    count_ += hit;
    return hit;
  }

  mutable std::mutex mutex_;
  Rates rates_;
  std::mt19937_64 random_;
  int64_t count_ = 0;
};

}  // namespace stow::testing
