// Fast packing of rigid groups: greedy passes over several orders, then repairs of the best.
// Not exact (exact.h), and no clock: the same problem and options give the same answer.
#pragma once

#include <cstdint>
#include <functional>

#include "stowage/pack/problem.h"

namespace stow::pack {

struct Options {
  /// Work to spend, in steps over occupied intervals (2 to 20 ns each). The first pass always
  /// runs to its end. 0 asks for that pass alone.
  int64_t work = 20'000'000;
  /// A height that is good enough; the lower bound always is.
  int64_t target = 0;
  /// Asked between passes; true ends the search. It may read a clock, at the cost of determinism.
  std::function<bool()> stop;
};

/// Always a valid solution of a valid problem. Buffers without a live byte stand at offset 0.
Solution pack_greedy(const Problem& problem, const Options& options = {});

}  // namespace stow::pack
