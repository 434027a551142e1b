// The disk's part of calibration.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <span>
#include <thread>
#include <vector>

#include "stowage/base/median.h"
#include "stowage/runtime/disk/disk.h"
#include "stowage/runtime/disk/window.h"
#include "stowage/runtime/run_observer.h"
#include "stowage/tune/calibrate.h"

namespace stow {
namespace {

constexpr int64_t kLargeBytes = 4 << 20, kSmallBytes = 128 << 10;
constexpr int kSmallTransfers = 64;

// A file, and memory as an arena has it: not on the blocks of a disk.
class DiskProbe {
 public:
  DiskProbe(const std::string& folder, int64_t bytes)
      : disk_({.folder = folder}),
        bytes_(bytes),
        offset_(disk_.reserve(bytes)),
        memory_(static_cast<size_t>(kLargeBytes) + 64),
        bounce_(static_cast<size_t>(disk_bounce_bytes(kLargeBytes))) {
    // Bytes that no disk can leave out or squeeze together.
    uint64_t x = 0x9e3779b97f4a7c15;
    for (size_t i = 0; i + 8 <= memory_.size(); i += 8) {
      x ^= x << 13, x ^= x >> 7, x ^= x << 17;
      std::memcpy(memory_.data() + i, &x, 8);
    }
  }
  ~DiskProbe() { disk_.release(offset_, bytes_); }
  bool direct() const { return disk_.direct(); }

  // Seconds of a transfer of `size`, the median over the file or the first `most` of it.
  double seconds(bool write, int64_t size, int64_t most) {
    std::vector<double> all;
    for (int64_t at = 0; at + size <= std::min(bytes_, most * size); at += size) {
      const double begin = steady_seconds();
      move(write, at, size);
      all.push_back(steady_seconds() - begin);
    }
    return median(all);
  }
  // Goes on with either direction in turn.
  void work_until(const std::atomic<bool>& ends) {
    for (int64_t at = 0; !ends; at = (at + kLargeBytes) % bytes_) {
      move(true, at, kLargeBytes);
      move(false, at, kLargeBytes);
    }
  }

 private:
  void move(bool write, int64_t at, int64_t size) {
    const std::span<std::byte> some(memory_.data() + 64, static_cast<size_t>(size));
    if (write) disk_.write(offset_ + at, some, bounce_);
    else disk_.read(offset_ + at, some, bounce_);
  }
  Disk disk_;
  int64_t bytes_, offset_;
  std::vector<std::byte> memory_, bounce_;
};

}  // namespace

Result<DiskRates> measure_disk(const std::string& folder, int64_t bytes,
                               const std::function<double()>& compute) try {
  DiskProbe probe(folder, std::max(bytes / kLargeBytes, int64_t{1}) * kLargeBytes);
  DiskRates rates;
  rates.direct = probe.direct();
  std::vector<double> latencies;
  for (const bool write : {true, false}) {
    const double large = probe.seconds(write, kLargeBytes, bytes);
    const double small = probe.seconds(write, kSmallBytes, kSmallTransfers);
    const double rate = (kLargeBytes - kSmallBytes) / std::max(large - small, 1e-9);
    (write ? rates.write : rates.read) = rate;
    latencies.push_back(std::clamp(small - kSmallBytes / rate, 0.0, 1.0));
  }
  rates.latency_s = (latencies[0] + latencies[1]) / 2;
  if (!compute) return rates;
  const double alone = compute();
  std::atomic<bool> ends = false;
  std::exception_ptr failure;
  std::thread other([&] {
    try {
      probe.work_until(ends);
    } catch (...) {
      failure = std::current_exception();
    }
  });
  const double beside = compute();
  ends = true;
  other.join();
  if (failure) std::rethrow_exception(failure);
  rates.slows_compute = std::clamp(1 - alone / beside, 0.0, 0.9);
  return rates;
} catch (const DiskError& error) {
  return fail("{}", error.what());
} catch (const CapacityError& error) {
  return fail("{}", error.what());
}

}  // namespace stow
