// OwnerTimeline: live bytes by owner over a schedule's timeline, for drawings.
// Not only the owners of the peak; MemoryAnalysis has those, with the same names.
#pragma once

#include <cstdint>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/schedule.h"
#include "stowage/plan/analysis.h"

namespace stow {

/// The owner of the bytes of a buffer at an offset: `source` and `what` are set, the rest is not.
/// The source of an argument is the first component of its name.
PeakOwner owner_at(const Buffer& buffer, int64_t offset);

/// The purpose of an owner's bytes.
enum class OwnerUse : uint8_t {
  kArgument,  ///< Arguments, live for the whole run.
  kResult,    ///< Outputs of the program.
  kResidual,  ///< Values kept for the backward pass.
  kForward,   ///< Other temporaries, recomputed values included.
  kBackward,  ///< Gradients and other temporaries of the backward pass.
  kScratch    ///< Scratch of kernels.
};

/// The live bytes of one owner.
struct OwnerLine {
  OwnerUse use = OwnerUse::kForward;
  PeakOwner owner;             ///< Bytes and count are those at the peak of the memory kind.
  int input = -1;              ///< For an argument, the number of the program's input; else -1.
  std::vector<int64_t> bytes;  ///< Live bytes by column.
};

/// Live bytes of one memory kind, by owner and column. A column stands for a range of instants.
struct OwnerTimeline {
  /// By column, the instant shown: the one with the most live bytes in the column's range.
  /// Ascending; the peak is among them.
  std::vector<int64_t> instants;
  int64_t n_instants = 0;    ///< Length of the timeline. Instant n_instants is the end.
  size_t peak_column = 0;    ///< The column of the peak.
  /// Live bytes at the peak, arguments included. The plan's total also has the gaps of its layout.
  int64_t peak_live_bytes = 0;
  std::vector<std::string> running;  ///< By column, the instruction: "mul at mlp (model.cpp:41)".
  std::vector<OwnerLine> lines;      ///< In no particular order.
};

/// Computes the timeline with at most `max_columns` columns (at least 1). One walk over the live
/// ranges.
OwnerTimeline owner_timeline(const Schedule& schedule, MemoryKind kind, size_t max_columns);

}  // namespace stow
