// ScheduleKit: handwritten schedules with round simulated times, and a device for them.
// Not for running: the kernels compute nothing useful.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/ir/schedule.h"
#include "stowage/runtime/null/device_description.h"

namespace stow::testing {

/// Returns a device on which dot(K) takes K milliseconds and a copy takes a millisecond for each
/// f32.
DeviceDescription round_device();

/// Makes the instructions of one schedule. Each move has buffers of its own size.
class ScheduleKit {
 public:
  ScheduleKit() = default;
  ScheduleKit(const ScheduleKit&) = delete;

  /// Returns a product of K elements: K milliseconds.
  Instruction dot(int64_t k);
  /// Returns a move of `elems` f32: as many milliseconds on round_device().
  Instruction move(MemoryKind from, MemoryKind to, int64_t elems,
                   MovePhase phase = MovePhase::kWhole, int transfer = -1);
  Instruction start_in(int64_t elems, int transfer) {
    return move(MemoryKind::kPinnedHost, MemoryKind::kDevice, elems, MovePhase::kStart, transfer);
  }
  Instruction done_in(int64_t elems, int transfer) {
    return move(MemoryKind::kPinnedHost, MemoryKind::kDevice, elems, MovePhase::kDone, transfer);
  }
  Instruction start_out(int64_t elems, int transfer) {
    return move(MemoryKind::kDevice, MemoryKind::kPinnedHost, elems, MovePhase::kStart, transfer);
  }
  Instruction done_out(int64_t elems, int transfer) {
    return move(MemoryKind::kDevice, MemoryKind::kPinnedHost, elems, MovePhase::kDone, transfer);
  }
  Instruction loop(int64_t trip_count, std::vector<Instruction> body);
  Instruction open_loop(std::vector<Instruction> condition, std::vector<Instruction> body);
  Instruction branch(std::vector<std::vector<Instruction>> alternatives);

  /// Returns the schedule of these instructions. The kit cannot be used afterwards.
  Schedule schedule(std::vector<Instruction> instructions);

 private:
  View view(MemoryKind kind, int64_t elems);

  Schedule schedule_;
};

/// Returns the instruction guarded to run only in iterations [begin, end).
Instruction guarded(Instruction instruction, int64_t begin, int64_t end);

}  // namespace stow::testing
