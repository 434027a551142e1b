// A beam search for the order of units with the lowest peak, and what it knows of a unit.
// Not the choice of a strategy; order.h has that.
#pragma once

#include <string>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/passes/fuse.h"

namespace stow {

/// A value that a unit reads.
struct Read {
  ValueId root;  // the value in memory of which it is a view
  bool covers;   // true if the unit may write over it
};

/// The values that a unit reads and writes, and the bytes that it takes while it runs.
struct UnitFacts {
  std::vector<Read> reads;
  int64_t host_bytes = 0;       // bytes of its writes that lie over nothing in any case
  std::vector<ValueId> writes;  // roots that it makes and something needs
  int64_t write_bytes = 0;
  int64_t scratch_bytes = 0;
};

/// Pieces of a long order that are searched, those that differ: a millisecond each.
inline constexpr size_t kMostOrderWindows = 1800;

/// The input of a search for an order: `bytes` by value, and by unit its `place` in the order as
/// written.
struct OrderProblem {
  const Graph& graph;
  const Units& units;
  const std::vector<UnitFacts>& facts;
  const std::vector<int64_t>& bytes;
  const std::vector<size_t>& place;
  size_t most_windows = kMostOrderWindows;
};

/// The order that the search comes to. A search that stops after `most_windows` says so in `limits`.
std::vector<int> beam_order(const OrderProblem& problem, std::vector<std::string>& limits);
/// Makes an order of a lower peak, or the same, by moving units within it.
void improve_order(const OrderProblem& problem, std::vector<int>& order,
                   std::vector<std::string>& limits);
/// The largest sum of live bytes in that order, scratch included.
int64_t peak_of_order(const OrderProblem& problem, const std::vector<int>& order);

}  // namespace stow
