// Losses over a large vocabulary that never hold all logits.
// Not the plain loss over logits; that is api/nn.h's cross_entropy.
#pragma once

#include "stowage/api/array.h"

namespace stow::nn {

/// The mean over all tokens of cross_entropy(hidden @ head, targets), `chunk` tokens at a time.
/// Shapes:  hidden [..., d]; head [d, V]; targets [...] of integers; returns a scalar f32.
/// Types:   any floats; logits are computed in the dtype of `hidden`, to which `head` is rounded, the
///          loss in f32. The gradient of `head` is summed in its own dtype.
/// Memory:  the logits of one chunk. Differentiated, each chunk's gradients are computed with its
///          loss, while its logits are there: nothing is computed twice, and what waits for the
///          backward pass is the gradients of `hidden` and of `head`.
/// Numbers: losses and the gradient of `head` are summed chunk by chunk: another order than without
///          chunks.
/// Errors:  TraceError if the shapes do not fit or `chunk` is not positive.
/// Source:  SkyRL tx's LogitsProcessor for the chunks; Hsu et al. 2024 (arXiv 2410.10989), section
///          3.2, for gradients computed with the loss.
Array linear_cross_entropy(const Array& hidden, const Array& head, const Array& targets,
                           int64_t chunk);

}  // namespace stow::nn
