// Fast packing of rigid groups: greedy passes over several orders, then repairs of the best.
// Not exact (exact.h), and no clock: the same problem and options give the same answer.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "stowage/pack/problem.h"

namespace stow::pack {

struct Options {
  /// Budget of work, in steps of a few nanoseconds. The first pass always completes; 0 runs that
  /// pass only. A pass through the segment tree takes 200 to 1000 steps per rectangle; a first fit
  /// by kept overlaps (reorder.h) takes fewer.
  int64_t work = 10'000'000;
  /// Number of steps per buffer without a lower height after which the reordering ends; 0: no
  /// limit.
  int64_t patience = 0;
  /// The search ends at a packing of at most this height, or of the lower bound.
  int64_t target = 0;
  /// Buffers that greedy orders place first, in this order; without repetition. A skyline order
  /// ignores it.
  std::vector<int32_t> first_buffers;
  /// Largest number of buffers of a problem for which the time around the peak is packed exactly to
  /// find an order (window.h). `work` does not bound that step; it takes seconds for a thousand
  /// buffers.
  size_t window_buffers = 4000;
  /// Called from time to time after the first pass; true ends the search. If it reads a clock, the
  /// result is not deterministic.
  std::function<bool()> stop;
};

/// Returns a valid solution of a valid problem. Buffers without live bytes get offset 0.
Solution pack_greedy(const Problem& problem, const Options& options = {});

}  // namespace stow::pack
