// Random optimizer steps over any number of arrays of unequal sizes, in any memory kind.
// Not nets with products; random_step.h has those.
#pragma once

#include "tests/fuzz/random_program.h"

namespace stow::testing {

struct RandomState {
  RandomProgram program;
  std::string what;  ///< A description in one line, for messages.
  bool clipped = false;  ///< True if gradients are clipped by their norm.
  MemoryKind weights = MemoryKind::kDevice;
  int64_t array_bytes = 0, largest_bytes = 0;  ///< Bytes of all weights, and of the largest.
};

/// Returns the step of a seed over the first `n_arrays` of the seed's arrays. It has gradients,
/// which some seeds clip by their norm, and zero to two moments; all are donated. Weights and
/// moments have memory kinds of their own. A step over fewer arrays uses a prefix of the arrays of
/// a step over more, in the same memory kinds. `small`: true: arrays of up to 256 elements and
/// runnable inputs; false: up to 8192 elements and empty inputs.
RandomState random_state(uint64_t seed, int n_arrays, bool small);

}  // namespace stow::testing
