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
  /// True if no op turns a small error of a float into a large one (comparisons, rounding,
  /// indices).
  bool smooth = true;
  /// If finite differences can check the gradients: the f64 program before differentiation. Its
  /// output 0 is the loss, its inputs are the first ones of `graph`.
  std::optional<Graph> forward;
  std::vector<int> wrt;  ///< Inputs whose gradients are the last outputs of `graph`.
};

/// Returns the program of a seed, the same on every machine: elementwise chains, broadcasts,
/// reductions, views, products, indexing, scans (also unrolled), conds, while loops and
/// checkpoints, nested up to three deep. Many programs also compute a gradient and update donated
/// inputs.
RandomProgram random_program(uint64_t seed);

/// Returns the checkpoint policy of a seed, named "random:SEED".
PolicyPtr random_policy(uint64_t seed);
/// Returns the policy with a name of random_policy(); null for other names.
PolicyPtr policy_of_name(std::string_view name);

/// Returns random values: floats in [-1, 1), integers in [0, 5).
Bytes random_values(uint64_t seed, const ArrayType& type);

}  // namespace stow::testing
