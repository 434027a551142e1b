// Wrappers of transformations: masks, partition, accumulation, skipping of nonfinite updates.
// Not the wrapped transformations; see transforms.h and optimizers.h.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "stowage/optim/transformation.h"

namespace stow::optim {

/// Applies `inner` to the leaves that the mask selects; other leaves pass unchanged and have no
/// state.
/// Source: optax.masked.
GradientTransformation masked(const GradientTransformation& inner, Mask mask);

/// Freezes the parameters that the mask selects: their updates are empty. Later transformations of
/// a chain still have state for them; selective_transform avoids this.
/// Source: optax.freeze.
GradientTransformation freeze(Mask mask);

/// Applies `optimizer` to the leaves that the mask does not select. The selected leaves are frozen:
/// they have no state, no update and, under jit, no gradient. It should wrap the whole chain,
/// because a clip_by_global_norm outside of it would need the gradients of frozen leaves.
/// Source: optax.selective_transform.
GradientTransformation selective_transform(const GradientTransformation& optimizer,
                                           Mask freeze_mask);

/// Applies to each leaf the transformation that its label names.
/// Errors: TraceError in init() and update() for a label that no transformation has.
/// Source: optax.partition.
GradientTransformation partition(
    const std::vector<std::pair<std::string, GradientTransformation>>& transformations,
    std::function<std::string(const std::string& path, const Array& param)> label);

/// Accumulates k updates, and applies `inner` to their mean (or sum) at every k-th call; at other
/// calls the update is zero, and inner's work is not done. A value that is not finite affects one
/// mean only; in optax a NaN stays in the sum forever.
/// State:  "multi_steps/mini_step", "…/gradient_step", "…/acc/<path>" (f32) and that of `inner`.
/// Errors: TraceError if k is not positive.
/// Source: optax.MultiSteps.
GradientTransformation multi_steps(const GradientTransformation& inner, int64_t k,
                                   bool use_grad_mean = true);

/// Applies `inner` if all elements of the updates are finite. Else the update is zero, inner's
/// state does not change, and its work is not done; after `max_consecutive_errors` such calls in a
/// row, `inner` is applied nevertheless.
/// State:  "apply_if_finite/notfinite_count", "…/last_finite", "…/total_notfinite" and that of
///         `inner`.
/// Source: optax.apply_if_finite.
GradientTransformation apply_if_finite(const GradientTransformation& inner,
                                       int64_t max_consecutive_errors);

}  // namespace stow::optim
