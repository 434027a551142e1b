// OwnerTimeline: the bytes of each owner of a schedule's memory over the timeline, for drawings.
// Not the peak's owners alone; those are in MemoryAnalysis, and the same here.
#pragma once

#include <cstdint>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/schedule.h"
#include "stowage/plan/analysis.h"

namespace stow {

/// The owner of the bytes of a buffer at an offset: source and what, without bytes. Of an argument the
/// source is the first part of its name.
PeakOwner owner_at(const Buffer& buffer, int64_t offset);

/// The purpose of an owner's bytes.
enum class OwnerUse : uint8_t {
  kArgument,  ///< There from the beginning to the end.
  kResult,
  kResidual,  ///< Kept for the backward pass.
  kForward,
  kBackward,  ///< Gradients, and what is computed for them.
  kScratch    ///< Scratch of kernels.
};

/// Buffers of one owner.
struct OwnerLine {
  OwnerUse use = OwnerUse::kForward;
  PeakOwner owner;             ///< Bytes and count at the peak of the memory kind.
  int input = -1;              ///< Number of the program's input that an argument is.
  std::vector<int64_t> bytes;  ///< Live bytes, one a column.
};

/// Live bytes of one memory kind.
struct OwnerTimeline {
  /// The instants shown, ascending. Each column shows the fullest instant of those up to the next
  /// column, so the peak is among them.
  std::vector<int64_t> instants;
  int64_t n_instants = 0;    ///< Instants of the timeline; the last is behind the last kernel.
  size_t peak_column = 0;    ///< The first column with the most live bytes.
  int64_t peak_live_bytes = 0;  ///< There, arguments included. The plan's total is more by its gaps.
  std::vector<std::string> running;  ///< The instruction of a column: "mul at layers/mlp (model.cpp:41)".
  std::vector<OwnerLine> lines;      ///< In no order of meaning.
};

/// The owners' bytes over at most `max_columns` columns (at least 1). One walk over the live ranges.
OwnerTimeline owner_timeline(const Schedule& schedule, MemoryKind kind, size_t max_columns);

}  // namespace stow
