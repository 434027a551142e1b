// Fitting plans into memory, and small buffers: what score.cpp and generate.cpp share.
// Not for users; plan_score and plan_generate are.
#pragma once

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "stowage/base/bytes.h"
#include "stowage/base/error.h"
#include "stowage/lm/model.h"

namespace stow::lm {

/// The most device memory that a command may take: as asked for, or what the machine has.
inline int64_t memory_limit(std::optional<int64_t> memory_bytes) {
  return memory_bytes.value_or(Device::cpu()->capacity_bytes(MemoryKind::kDevice));
}

/// Memories to try for the weights, the fastest first.
inline std::vector<MemoryKind> weight_places(std::optional<MemoryKind> asked) {
  if (asked) return {*asked};
  return {MemoryKind::kDevice, MemoryKind::kDisk};
}

/// A search for the first plan that fits a limit. `Program` has peak_bytes() and weights().
template <typename Program>
class FirstFit {
 public:
  explicit FirstFit(int64_t limit) : limit_(limit) {}

  /// make(capacities) planned without a bound, and where the weights are not on the device with
  /// capacities that leave room for what lies beside a program's own memory: a cache, the host's part.
  /// None where it does not fit; least() may be it then.
  template <typename Make>
  std::optional<Program> plan(MemoryKind place, const Make& make) {
    Device::Capacities capacities;
    capacities.fill(Device::unlimited_bytes());
    Program program = make(capacities);
    for (int tries = 0; place != MemoryKind::kDevice; ++tries) {
      const std::optional<int64_t> capacity = next_capacity(tries, counted(program) - limit_);
      if (!capacity) break;
      capacities[0] = *capacity;
      program = make(capacities);
    }
    if (counted(program) <= limit_) return program;
    if (!least_ || counted(program) < counted(*least_)) least_ = std::move(program);
    return std::nullopt;
  }

  /// Throws the CapacityError of a search in which nothing fitted. `what` begins the message:
  /// "scoring rows of 8 tokens".
  [[noreturn]] void refuse(const std::string& what) const {
    const int64_t bytes = counted(*least_);
    throw CapacityError(fmt::format("{} needs {} ({} bytes) at least, {} more than the memory of {}",
                                    what, format_bytes(bytes), bytes, format_bytes(bytes - limit_),
                                    format_bytes(limit_)));
  }

 private:
  // The host's memory is the device's, unless weights lie there on a device of its own.
  static int64_t counted(const Program& program) {
    const BytesByKind peak = program.peak_bytes();
    return peak[0] + (program.weights().memory == MemoryKind::kPinnedHost ? 0 : peak[1]);
  }
  // The capacity to plan for next, `over` being what the plan before takes too much. Nothing more is
  // worth a try where that is a quarter of the limit.
  std::optional<int64_t> next_capacity(int tries, int64_t over) const {
    if (over <= 0 || (tries > 0 && over > limit_ / 4)) return std::nullopt;
    const int64_t capacities[] = {limit_, limit_ - over, limit_ / 16 * 15, limit_ / 8 * 7};
    if (tries >= static_cast<int>(std::size(capacities))) return std::nullopt;
    return std::max<int64_t>(capacities[tries], 0);
  }

  int64_t limit_;
  std::optional<Program> least_;
};

/// The floats of a buffer.
inline std::vector<float> read_floats(const DeviceBuffer& buffer) {
  std::vector<float> values(static_cast<size_t>(buffer.bytes()) / sizeof(float));
  if (!values.empty()) buffer.read(0, std::as_writable_bytes(std::span(values)));
  return values;
}

}  // namespace stow::lm
