// A SkylinePass in stages: each stage is tried several times, and the best try is continued.
// Not a repair (eject.h) of buffers that are left out.
#pragma once

#include <cstdint>
#include <functional>

#include "stowage/pack/skyline_pass.h"

namespace stow::pack {

struct StagedPassOptions {
  int64_t capacity = 0;  // Bytes.
  int n_stages = 100;
  int n_tries = 4;  // Tries per stage; the stages of the last quarter have five times as many.
  int32_t most_left_out = INT32_MAX;  // Number of left-out buffers above which the pass gives up.
  std::function<SkylineStrategy()> draw;  // Returns a strategy for each try.
  std::function<bool()> stop;
};

/// Runs a pass of `skyline` in n_stages stages. A stage raises the skyline by capacity / n_stages,
/// with n_tries strategies from draw(), and keeps the try with the least strain(). Gaps add up over
/// the stages. If stages were independent, a choice at each of them would gain sqrt(n_stages) times
/// as much as a choice among whole passes. Costs as much as 2 * n_tries passes.
/// Returns false if stop() was true or more than most_left_out buffers had no room; the pass is
/// then invalid.
bool staged_pass(SkylinePass& skyline, const StagedPassOptions& options);

}  // namespace stow::pack
