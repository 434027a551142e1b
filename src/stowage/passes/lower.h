// The pass from a graph to a schedule: units in an order, every value a window on a buffer.
// Not offsets; plan/ lays the buffers out.
#pragma once

#include <memory>

#include "stowage/base/inside.h"
#include "stowage/ir/schedule.h"
#include "stowage/passes/order.h"

namespace stow {

/// Bounds of work, each reported where it takes effect (Schedule::limits). Smaller ones are for tests.
struct LowerLimits {
  size_t order_windows = kMostOrderWindows;
  /// Pieces of one concatenation; beyond, a scan's part is told apart as a whole and not slice by slice.
  int64_t concat_pieces = 1 << 16;
};

/// The units of a graph and of the graphs nested in it. They are the same in every order, so all lowerings of
/// the graph can share them.
class KeptUnits;
/// Returns a table for lower() to fill. It serves one graph, and options that agree in all that fuse() sees.
std::shared_ptr<KeptUnits> keep_units();

struct LowerOptions {
  std::vector<bool> donated;  ///< Inputs that may be overwritten; empty means none.
  bool fuse = true;
  int64_t least_epilogue = 0;  ///< As CompileOptions' (session/compile.h).
  bool reuse = true;  ///< Off: no value takes another's memory.
  OrderStrategy order = OrderStrategy::kProgram;
  /// Each iteration of a loop has temporaries of its own place, as if it were written out.
  bool iterations_apart = false;
  KernelTarget target;
  LowerLimits limits;
  std::shared_ptr<KeptUnits> kept_units = nullptr;  ///< Null: none are kept.
};

/// Lowers a graph without checkpoint nodes.
///
/// A value lies where its reader wants it: a carry in the slot of the next iteration (the residual
/// stack's own slot where the carry is saved), a stacked result in its slot, a part in its place of
/// a concatenation, a new parameter in the donated old one. View ops are windows. An elementwise
/// result takes the memory of an operand that dies there.
Schedule lower(const Graph& graph, const LowerOptions& options);

}  // namespace stow
