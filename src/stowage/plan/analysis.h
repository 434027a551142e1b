// MemoryAnalysis: the exact bytes that a program needs of each memory kind, and who owns the peak.
// Not a plan; the offsets are in MemoryPlan.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "stowage/core/array_type.h"

namespace stow {

/// A number of bytes for each memory kind.
using BytesByKind = std::array<int64_t, kNumMemoryKinds>;

/// Sizes in bytes of one memory kind. total = argument + output - alias + temp is the exact peak
/// while the program runs, kernel scratch included. The arena counts as a whole, so total is also
/// argument + outputs outside the arena (Buffer::outside_arena) + arena. lower_bound <= total.
struct KindAnalysis {
  int64_t argument_bytes = 0;
  int64_t output_bytes = 0;
  int64_t alias_bytes = 0;  ///< Outputs that lie in donated arguments.
  /// Bytes at the peak that are neither arguments nor outputs; gaps in the arena are included.
  int64_t temp_bytes = 0;
  int64_t total_bytes = 0;
  int64_t arena_bytes = 0;  ///< Size of the arena that the plan lays out.
  /// total_bytes with the largest sum of live bytes instead of the arena. No packing of the
  /// schedule's buffers needs less while the kernels run in the schedule's order.
  int64_t lower_bound_bytes = 0;
};

/// One owner of bytes that are live at the peak.
struct PeakOwner {
  std::string source;  ///< Source path, "layers/mlp/up (model.cpp:41)".
  std::string what;    ///< The content: "residual", "output", "argument", "scratch", an op's name.
  int64_t bytes = 0;
  int64_t count = 0;  ///< Number of buffers or slots.
};

struct MemoryAnalysis {
  std::array<KindAnalysis, kNumMemoryKinds> kinds;
  /// The most device bytes that moves in flight (started, not yet awaited) read or write at one
  /// time: an upper bound of the memory that overlap costs.
  int64_t in_flight_bytes = 0;
  /// Bytes of offloaded values that stay on the device after all, because there is room and the
  /// program would wait for their moves (CompileOptions::keep_resident).
  int64_t kept_resident_bytes = 0;
  int64_t peak_instant = 0;  ///< The first instant of the device's peak, as an index.
  int64_t n_instants = 0;    ///< Length of the timeline.
  std::string peak_at;            ///< The instruction running at the peak.
  std::vector<PeakOwner> owners;  ///< Owners of the device's peak, largest first.
  /// Searches that stopped at their bound of work, each in a sentence: a plan that needs less
  /// memory may exist. Empty for nearly every program.
  std::vector<std::string> limits;
  /// Findings that a reader may want to act on, each in a sentence: a checkpoint that raises the
  /// peak, an offload without effect.
  std::vector<std::string> notes;

  const KindAnalysis& device() const { return kinds[0]; }  ///< Device memory.
  const KindAnalysis& host() const { return kinds[1]; }  ///< Pinned host memory.
  const KindAnalysis& disk() const { return kinds[2]; }  ///< Disk.
};

/// Returns a table for people, with at most `max_owners` owners.
std::string to_string(const MemoryAnalysis& analysis, size_t max_owners = 8);

}  // namespace stow
