// Random programs that compute: whole training-like steps over small arrays, with their arguments.
// Not the graphs for rewrites alone, full of equal and idle work; those are random_graph.h.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"
#include "tests/support/evaluate.h"

namespace stow::testing {

struct RandomProgram {
  Graph graph;
  std::vector<Bytes> inputs;
  std::vector<bool> donated;
  bool differentiated = false;
  /// No step turns a small error of a float into a large one (comparisons, rounding, indices).
  bool smooth = true;
  /// Where differences of the loss tell whether the gradients are right: the program before it was
  /// differentiated (its output 0 is the loss, its inputs the first ones of `graph`). All in f64.
  std::optional<Graph> forward;
  std::vector<int> wrt;  ///< Inputs whose gradients are the last outputs of `graph`.
};

/// The program of a seed, the same everywhere: elementwise chains, broadcasts, reductions, views,
/// products, indexing, scans (unrolled ones too), conds, open loops and checkpoints nested up to
/// three deep, for many a gradient and an update of donated inputs on top.
RandomProgram random_program(uint64_t seed);

/// The checkpoint policy of a seed, named "random:SEED".
PolicyPtr random_policy(uint64_t seed);
/// The policy of a name that random_policy gave; null for another.
PolicyPtr policy_of_name(std::string_view name);

/// Numbers of [-1, 1), integers of [0, 5).
Bytes random_values(uint64_t seed, const ArrayType& type);

}  // namespace stow::testing
