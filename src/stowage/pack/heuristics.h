// Fast packing of rigid groups: greedy passes over several orders, then repairs of the best.
// Not exact (exact.h), and no clock: the same problem and options give the same answer.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "stowage/pack/problem.h"

namespace stow::pack {

struct Options {
  /// Work to spend, in steps of a few nanoseconds. The first pass always runs to its end, and 0
  /// asks for that pass alone; a pass takes from 200 to 1000 steps a rectangle.
  int64_t work = 10'000'000;
  /// Ends the reordering after so many steps a buffer without a lower height; 0 goes on while there is work.
  int64_t patience = 0;
  /// A height that is good enough; the lower bound always is.
  int64_t target = 0;
  /// Buffers that every order but a skyline's begins with, in this order; without repetition.
  std::vector<int32_t> lead;
  /// Largest problem, in buffers, whose peak's surroundings are packed exactly to find an order. The
  /// time of that is not bounded by `work`: seconds with a thousand buffers.
  size_t window_buffers = 4000;
  /// Asked now and then after the first pass; true ends the search. It may read a clock, at the
  /// cost of determinism.
  std::function<bool()> stop;
};

/// Always a valid solution of a valid problem. Buffers without a live byte stand at offset 0.
Solution pack_greedy(const Problem& problem, const Options& options = {});

}  // namespace stow::pack
