// AdamW with global-norm clipping and a warm-up cosine schedule, as functions inside a traced step.
// Not a trainer; state is a tree that the step takes and returns.
#pragma once

#include <map>
#include <string>

#include "stowage/api/tree.h"

namespace stow::optim {

/// First and second moments by the path of their parameter, and the number of updates so far.
struct AdamState {
  Array count;  // i32 []
  std::map<std::string, Array> mu, nu;
};
STOW_TREE(AdamState, count, mu, nu);

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 1e-4;
};

/// The l2 norm over all leaves, in f32.
Array global_norm(const std::vector<Array>& leaves);
/// Leaves scaled by max_norm / max(norm, max_norm).
/// Source: optax.clip_by_global_norm.
std::vector<Array> clip_by_global_norm(const std::vector<Array>& leaves, const Array& norm,
                                       double max_norm);
/// Linear from 0 to `peak` over `warmup` steps, then a cosine to `end` at `total`.
/// Source: optax.warmup_cosine_decay_schedule.
Array warmup_cosine(const Array& count, double peak, int64_t warmup, int64_t total, double end = 0);

/// Moments of zero for parameters with these paths.
AdamState adamw_init(const std::vector<std::string>& paths, const std::vector<Array>& params);
/// One update in place of `params` and `state`: m and v moments with bias correction, decay decoupled.
/// Source: Loshchilov and Hutter 2019, algorithm 2 (weight decay multiplied by the rate, as optax).
void adamw_update(const AdamWOptions& options, const Array& rate,
                  const std::vector<std::string>& paths, const std::vector<Array>& grads,
                  std::vector<Array>& params, AdamState& state);

}  // namespace stow::optim
