#include "stowage/pack/staged_pass.h"

#include <cmath>

namespace stow::pack {
namespace {

// Share of the capacity: sections whose slacks differ by less count as equally strained.
constexpr double kSoftness = 5e-3;
// Most is lost by the last buffers: from this share of the capacity on there are more tries.
constexpr double kLate = 0.75;
constexpr int kMoreTries = 5;

}  // namespace

bool staged_pass(SkylinePass& skyline, const StagedPassOptions& options) {
  const auto capacity = static_cast<double>(options.capacity);
  SkylinePass::State base, best;
  skyline.begin(options.capacity);
  for (int stage = 1; !skyline.all_placed(); ++stage) {
    const double share = static_cast<double>(stage) / options.n_stages;
    const int64_t until = share < 1 ? static_cast<int64_t>(capacity * share) : INT64_MAX;
    const int n_tries = options.n_tries * (share > kLate ? kMoreTries : 1);
    base = skyline.state();
    double least = HUGE_VAL;
    for (int k = 0; k < n_tries; ++k) {
      if (options.stop && options.stop()) return false;
      if (k > 0) skyline.set_state(base);
      if (!skyline.advance(options.draw(), until, options.stop)) return false;
      const double strain = skyline.strain(kSoftness * capacity);
      if (!(strain < least)) continue;
      least = strain;
      skyline.swap_state(best);
    }
    skyline.swap_state(best);
    if (skyline.n_left_out() > options.most_left_out) return false;
  }
  return true;
}

}  // namespace stow::pack
