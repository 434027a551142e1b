// The pass from a graph to a schedule: orders the units and gives every value a window on a buffer.
// Not offsets; plan/ lays the buffers out.
#pragma once

#include <memory>

#include "stowage/base/inside.h"
#include "stowage/ir/schedule.h"
#include "stowage/passes/order.h"

namespace stow {

/// Bounds of work, reported in Schedule::limits if they take effect. Tests set smaller ones.
struct LowerLimits {
  size_t order_windows = kMostOrderWindows;  ///< As OrderProblem::most_windows.
  /// The most pieces of a concatenation that have live ranges of their own. Beyond them, a part
  /// that a scan stacks is one piece instead of one for each slice.
  int64_t concat_pieces = 1 << 16;
};

/// A cache of the units of a graph and of its nested graphs. Units do not depend on the order, so
/// all lowerings of the graph can share them.
class UnitCache;
/// Returns an empty cache for lower() to fill. Use it for one graph only, and with options that
/// agree in all arguments of fuse().
std::shared_ptr<UnitCache> make_unit_cache();

struct LowerOptions {
  std::vector<bool> donated;  ///< By input, true if it may be overwritten; empty means none.
  bool fuse = true;
  int64_t least_epilogue = 0;  ///< As CompileOptions::least_epilogue (session/compile.h).
  bool reuse = true;  ///< False if no value may take another's memory.
  OrderStrategy order = OrderStrategy::kProgram;
  /// True if temporaries have a place for each iteration of a loop, as if it were written out.
  bool places_per_iteration = false;
  KernelTarget target;
  LowerLimits limits;
  std::shared_ptr<UnitCache> unit_cache = nullptr;  ///< Cache of units; null: no cache.
};

/// Lowers a graph without checkpoint nodes.
///
/// A value is made where its reader needs it: a carry in the slot of the next iteration (or the
/// slot of the residual stack that saves it), a stacked result in its slot, a part at its place in
/// the concatenation, a new parameter in the donated old one. View ops are windows. An elementwise
/// result takes the memory of an operand that dies there.
Schedule lower(const Graph& graph, const LowerOptions& options);

}  // namespace stow
