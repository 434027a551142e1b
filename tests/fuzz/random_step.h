// Random training steps with state on the host or disk, for planning only.
// Not programs that can run; random_program.h has those.
#pragma once

#include "tests/fuzz/random_program.h"

namespace stow::testing {

/// Returns the step of a seed, the same on every machine: one to eight layers, scanned or unrolled,
/// with or without residual connections and offloading checkpoints. Weights and the optimizer's
/// state have memory kinds of their own. Some steps have an embedding, a wide head, or gradients
/// clipped by their norm. Arrays have 4 KiB to a few MiB: whether they are tiled depends on the
/// capacity. Only `graph` and `donated` of the result are set; `inputs` has an empty array for each
/// input.
RandomProgram random_step(uint64_t seed);

}  // namespace stow::testing
