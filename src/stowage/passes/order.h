// Orders in which the units of one graph may run.
// Not a judgement between them; that is the packing's.
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

/// `value_bytes`: what a value takes when it is made and gives back after its last reader, by value;
/// 0 for what lies elsewhere (arguments, slices of stacks that stay). `scratch_bytes`: what a unit
/// takes while it runs, by unit; only the beam search heeds it. A search that stops after `most_windows`
/// pieces of the order says so in `limits` (Schedule::limits).
std::vector<int> order_units(const Graph& graph, const Units& units,
                             const std::vector<int64_t>& value_bytes,
                             const std::vector<int64_t>& scratch_bytes, OrderStrategy strategy,
                             std::vector<std::string>& limits,
                             size_t most_windows = kMostOrderWindows);

/// The largest sum of live bytes in that order, scratch included.
int64_t peak_bytes(const Graph& graph, const Units& units, const std::vector<int64_t>& value_bytes,
                   const std::vector<int64_t>& scratch_bytes, const std::vector<int>& order);

}  // namespace stow
