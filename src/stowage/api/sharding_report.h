// ShardingReport: values that a program over a mesh keeps larger than needed, and its collectives.
// Not a memory plan; that is memory_analysis().
#pragma once

#include <string>
#include <vector>

#include "stowage/session/compile.h"

namespace stow {

/// Report on one position of a compiled program; empty for a program on one device.
struct ShardingReport {
  /// Values whose resharding passes through a form larger than both ends, or that stay whole
  /// although a mesh axis divides them, with bytes and source; the largest first.
  std::vector<ShardingNote> notes;
  /// Number and bytes of the collectives that run, by op. Loops count their iterations, recomputed
  /// collectives count again, and all branches of a cond count. Bytes: those that one position
  /// sends in ring algorithms.
  std::vector<CollectiveCount> collectives;
};

/// Returns the report of a program.
ShardingReport sharding_report_of(const Executable& program);

/// Returns one line for each kind of collective and each note.
std::string to_string(const ShardingReport& report);

}  // namespace stow
