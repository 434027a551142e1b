// Random optimizer steps over states of any number of arrays, of unequal sizes, on any memory.
// Not nets with products; those are random_step.h.
#pragma once

#include "tests/fuzz/random_program.h"

namespace stow::testing {

struct RandomState {
  RandomProgram program;
  std::string what;  ///< Its form in a line, for messages.
  bool clipped = false;
  MemoryKind weights = MemoryKind::kDevice;
  int64_t array_bytes = 0, largest_bytes = 0;  ///< Bytes of all weights, and of the largest.
};

/// The step of a seed over the first `n_arrays` of its arrays: a gradient, for some clipped by its norm,
/// none to two moments, all of them donated. Weights and moments lie in memories drawn apart. A seed's
/// step over fewer arrays has the first of those that one over more has, in the same memories.
/// `small`: arrays of up to 256 elements, with inputs that can run; else up to 8192, and empty inputs.
RandomState random_state(uint64_t seed, int n_arrays, bool small);

}  // namespace stow::testing
