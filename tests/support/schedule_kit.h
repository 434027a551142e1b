// Schedules written by hand whose times are plain numbers: kernels of so many seconds, moves of so
// many bytes, on a device of round figures.
// Not for running: the kernels compute nothing that anyone wants.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/ir/schedule.h"
#include "stowage/runtime/null/device_description.h"

namespace stow::testing {

/// A device on which dot(K) takes K milliseconds and every copy a millisecond for each f32.
DeviceDescription round_device();

/// Makes the instructions of one schedule. Buffers are as large as what is moved.
class ScheduleKit {
 public:
  ScheduleKit() = default;
  ScheduleKit(const ScheduleKit&) = delete;

  /// A product of K elements: K milliseconds.
  Instruction dot(int64_t k);
  /// A move of so many f32: as many milliseconds, or whatever the stream's rate makes of it.
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

  /// The schedule of these instructions; ends the kit.
  Schedule schedule(std::vector<Instruction> instructions);

 private:
  View view(MemoryKind kind, int64_t elems);

  Schedule schedule_;
};

/// The same instruction in iterations [begin, end) alone.
Instruction guarded(Instruction instruction, int64_t begin, int64_t end);

}  // namespace stow::testing
