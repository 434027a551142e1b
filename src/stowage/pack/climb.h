// A rising skyline in stages, each begun several times over: the best of the beginnings goes on.
// Not a repair (eject.h) of what is left out.
#pragma once

#include <cstdint>
#include <functional>

#include "stowage/pack/rise.h"

namespace stow::pack {

struct ClimbOptions {
  int64_t capacity = 0;
  int n_stages = 100;
  int n_tries = 4;  // A stage; the last quarter has five times as many.
  int32_t most_left_out = INT32_MAX;
  std::function<RiseStrategy()> draw;
  std::function<bool()> stop;
};

/// A pass of `rise` in which n_tries strategies raise the skyline by a share of the capacity, and
/// what the one that strained it least made is kept. Gaps add up over the stages: choosing at each
/// gains sqrt(n_stages) times what choosing among whole passes does, were stages independent. As
/// much work as 2 * n_tries passes. False if stop() was true or more than most_left_out had no
/// room; the pass is then of no use.
bool climb(Rise& rise, const ClimbOptions& options);

}  // namespace stow::pack
