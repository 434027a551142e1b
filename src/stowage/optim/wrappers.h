// Transformations around transformations: masks, parts, accumulation, refusal of bad gradients.
// Not what they wrap; see transforms.h and optimizers.h.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "stowage/optim/transformation.h"

namespace stow::optim {

/// `inner` for the leaves that the mask means; the others pass unchanged and have no state.
/// Source: optax.masked.
GradientTransformation masked(const GradientTransformation& inner, Mask mask);

/// Leaves the parameters that the mask means as they are. What stands behind it in a chain still
/// keeps state for them; see selective_transform.
/// Source: optax.freeze.
GradientTransformation freeze(Mask mask);

/// `optimizer` for what the mask does not mean; what it means is frozen: no state, no update and,
/// under jit, no gradient. Put it around the whole chain: a clip_by_global_norm outside it would
/// need the gradients of what is frozen.
/// Source: optax.selective_transform.
GradientTransformation selective_transform(const GradientTransformation& optimizer,
                                           Mask freeze_mask);

/// To each leaf the transformation of its label.
/// Errors: TraceError in init() and update() for a label that no transformation has.
/// Source: optax.partition.
GradientTransformation partition(
    const std::vector<std::pair<std::string, GradientTransformation>>& transformations,
    std::function<std::string(const std::string& path, const Array& param)> label);

/// Takes the mean of k updates (or their sum), and lets `inner` act on it every k-th time; the other
/// times the update is zero, and inner's work is not done. What is not finite hurts one mean alone;
/// in optax NaN stays in the sum for good.
/// State:  "multi_steps/mini_step", "…/gradient_step", "…/acc/<path>" (f32) and that of inner.
/// Errors: TraceError where k is not positive.
/// Source: optax.MultiSteps.
GradientTransformation multi_steps(const GradientTransformation& inner, int64_t k,
                                   bool use_grad_mean = true);

/// `inner`, but an update with elements that are not finite is taken as zero and leaves inner's
/// state alone, without doing inner's work, up to `max_consecutive_errors` times in a row.
/// State:  "apply_if_finite/notfinite_count", "…/last_finite", "…/total_notfinite" and inner's.
/// Source: optax.apply_if_finite.
GradientTransformation apply_if_finite(const GradientTransformation& inner,
                                       int64_t max_consecutive_errors);

}  // namespace stow::optim
