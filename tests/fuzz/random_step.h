// Random training steps whose state lies on the host or disk: shapes alone, nothing of them is run.
// Not the small programs that compute; those are random_program.h.
#pragma once

#include "tests/fuzz/random_program.h"

namespace stow::testing {

/// The step of a seed, the same everywhere: one to eight layers, scanned or unrolled, with or
/// without residual connections and checkpoints that offload; weights and the optimizer's state in
/// memories drawn apart; for some an embedding, a wide head, a gradient clipped by its norm. Arrays
/// of 4 KiB to some MiB, so that tiles and what comes whole depend on the capacity. Of the result
/// only `graph` and `donated` are set, and `inputs` to an empty one each.
RandomProgram random_step(uint64_t seed);

}  // namespace stow::testing
