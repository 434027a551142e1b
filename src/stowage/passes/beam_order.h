// A beam search for the order of units with the lowest peak of live bytes, and its input.
// Not the choice of a strategy; order.h has that.
#pragma once

#include <string>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/passes/fuse.h"

namespace stow {

/// A value that a unit reads.
struct Read {
  ValueId root;        // the value whose memory is read
  bool may_overwrite;  // true if the unit may write over that memory
};

/// The values that a unit reads and writes, and the bytes that it takes while it runs.
struct UnitFacts {
  std::vector<Read> reads;
  int64_t epilogue_output_bytes = 0;  // Unit::epilogue_output never overwrites an operand
  std::vector<ValueId> writes;  // roots that it makes and that are needed in memory
  int64_t write_bytes = 0;      // bytes of `writes`
  int64_t scratch_bytes = 0;
};

/// The most windows of a long order that are searched, equal ones counting once; each takes about a
/// millisecond.
inline constexpr size_t kMostOrderWindows = 1800;

/// The input of a search: `facts` by unit; `bytes` by value; `place`, the position of each unit in
/// program order.
struct OrderProblem {
  const Graph& graph;
  const Units& units;
  const std::vector<UnitFacts>& facts;
  const std::vector<int64_t>& bytes;
  const std::vector<size_t>& place;
  size_t most_windows = kMostOrderWindows;
};

/// Returns the order found. A search that stops after `most_windows` adds a sentence to `limits`.
std::vector<int> beam_order(const OrderProblem& problem, std::vector<std::string>& limits);
/// Moves units within `order` to lower its peak; the peak never rises. `limits` as for
/// beam_order().
void improve_order(const OrderProblem& problem, std::vector<int>& order,
                   std::vector<std::string>& limits);
/// Returns the largest sum of live bytes in that order, scratch included.
int64_t peak_of_order(const OrderProblem& problem, const std::vector<int>& order);

}  // namespace stow
