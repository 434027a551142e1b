// Orders in which the units of one graph may run.
// Not the choice between orders; the packed results decide (session/).
#pragma once

#include <string>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/passes/beam_order.h"
#include "stowage/passes/fuse.h"

namespace stow {

enum class OrderStrategy : uint8_t {
  kProgram,  ///< As written.
  kGreedy,   ///< Always the ready unit that leaves the least memory live.
  kBeam      ///< A beam search for the order of the lowest peak of live bytes.
};
inline constexpr int kNumOrderStrategies = 3;

/// Returns the numbers of the units in an order that respects their operands. `value_bytes`: by
/// value, bytes that it takes from its definition to its last read; 0 for values in other memory
/// (arguments, slices of stacks that stay). `scratch_bytes`: by unit, bytes that it takes while it
/// runs; only the beam search uses it. A search that stops after `most_windows` windows adds a
/// sentence to `limits` (Schedule::limits).
std::vector<int> order_units(const Graph& graph, const Units& units,
                             const std::vector<int64_t>& value_bytes,
                             const std::vector<int64_t>& scratch_bytes, OrderStrategy strategy,
                             std::vector<std::string>& limits,
                             size_t most_windows = kMostOrderWindows);

/// Returns the largest sum of live bytes in that order, scratch included.
int64_t peak_bytes(const Graph& graph, const Units& units, const std::vector<int64_t>& value_bytes,
                   const std::vector<int64_t>& scratch_bytes, const std::vector<int>& order);

}  // namespace stow
