// FirstFit: the search for a plan that fits a memory limit, shared by score.cpp and generate.cpp.
// Not for users, who call plan_score() and plan_generate().
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

/// Returns the bytes of device memory that a command may use: `memory_bytes`, or the CPU device's
/// capacity.
inline int64_t memory_limit(std::optional<int64_t> memory_bytes) {
  return memory_bytes.value_or(Device::cpu()->capacity_bytes(MemoryKind::kDevice));
}

/// Returns the memory kinds to try for the weights, the fastest first.
inline std::vector<MemoryKind> weight_places(std::optional<MemoryKind> asked) {
  if (asked) return {*asked};
  return {MemoryKind::kDevice, MemoryKind::kDisk};
}

/// A search for the first plan that fits a limit. `Program` has peak_bytes() and weights().
template <typename Program>
class FirstFit {
 public:
  explicit FirstFit(int64_t limit) : limit_(limit) {}

  /// Plans with make(capacities) and returns the program if it fits, else none. The first plan has
  /// no bound. If the weights are not on the device (`place`), further plans follow with device
  /// capacities that leave room for memory outside of the program, such as a cache and pinned host
  /// memory.
  template <typename Make>
  std::optional<Program> plan(MemoryKind place, const Make& make) {
    Device::Capacities capacities;
    capacities.fill(Device::unlimited_bytes());
    Program program = make(capacities);
    for (int tries = 0; place != MemoryKind::kDevice; ++tries) {
      const std::optional<int64_t> capacity = next_capacity(tries, counted_bytes(program) - limit_);
      if (!capacity) break;
      capacities[0] = *capacity;
      program = make(capacities);
    }
    if (counted_bytes(program) <= limit_) return program;
    if (!least_ || counted_bytes(program) < counted_bytes(*least_)) least_ = std::move(program);
    return std::nullopt;
  }

  /// Throws CapacityError after a search in which no program fitted; it names the smallest
  /// program's bytes. `what` begins the message: "scoring rows of 8 tokens".
  [[noreturn]] void refuse(const std::string& what) const {
    const int64_t bytes = counted_bytes(*least_);
    throw CapacityError(fmt::format(
        "{} needs {} ({} bytes) at least, {} more than the memory of {}", what, format_bytes(bytes),
        bytes, format_bytes(bytes - limit_), format_bytes(limit_)));
  }

 private:
  // Bytes of the program that count toward the limit. Pinned host memory counts too, because it is
  // the same RAM, unless it holds the weights (device_for() then makes a device with separate
  // memories).
  static int64_t counted_bytes(const Program& program) {
    const BytesByKind peak = program.peak_bytes();
    return peak[0] + (program.weights().memory == MemoryKind::kPinnedHost ? 0 : peak[1]);
  }
  // Returns the capacity to plan for next; none if `over`, the bytes by which the plan before
  // exceeds the limit, is 0 or less, or if more tries are not worth it.
  std::optional<int64_t> next_capacity(int tries, int64_t over) const {
    if (over <= 0 || (tries > 0 && over > limit_ / 4)) return std::nullopt;
    const int64_t capacities[] = {limit_, limit_ - over, limit_ / 16 * 15, limit_ / 8 * 7};
    if (tries >= static_cast<int>(std::size(capacities))) return std::nullopt;
    return std::max<int64_t>(capacities[tries], 0);
  }

  int64_t limit_;
  std::optional<Program> least_;  // the smallest program that did not fit
};

/// Returns the contents of a buffer of f32.
inline std::vector<float> read_floats(const DeviceBuffer& buffer) {
  std::vector<float> values(static_cast<size_t>(buffer.bytes()) / sizeof(float));
  if (!values.empty()) buffer.read(0, std::as_writable_bytes(std::span(values)));
  return values;
}

}  // namespace stow::lm
