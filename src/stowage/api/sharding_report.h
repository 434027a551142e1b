// ShardingReport: what a program over a mesh holds more than it must, and what its positions send.
// Not a memory plan; that is memory_analysis().
#pragma once

#include <string>
#include <vector>

#include "stowage/session/compile.h"

namespace stow {

/// Report on one position of a compiled program; empty for a program on one device.
struct ShardingReport {
  /// Values that pass through a form larger than both ends, or stay whole though an axis of the
  /// mesh divides them, with bytes and source; the largest first.
  std::vector<ShardingNote> notes;
  /// By op, as they run: loops are multiplied out, what the backward pass makes again counts again,
  /// and of alternatives all count. Bytes are those of a ring, sent by a position.
  std::vector<CollectiveCount> collectives;
};

/// The report of a program.
ShardingReport sharding_report_of(const Executable& program);

/// One line a note and a collective.
std::string to_string(const ShardingReport& report);

}  // namespace stow
