// Losses over a large vocabulary that never hold all logits.
// Not the plain loss over logits; that is api/nn.h's cross_entropy.
#pragma once

#include <optional>

#include "stowage/api/array.h"

namespace stow::nn {

/// Returns the mean over all tokens of cross_entropy(hidden @ head, targets), `chunk` tokens at a
/// time.
/// Shapes:  hidden [..., d]; head [d, V]; targets [...] of integers; returns a scalar f32 (f64 if
///          `hidden` is f64).
/// Types:   any floats; logits are computed in the dtype of `hidden`, to which `head` is converted,
///          the loss in f32 or f64. The gradient of `head` is summed in its own dtype.
/// Memory:  the logits of one chunk. If differentiated, the gradients of a chunk are computed
///          together with its loss, while its logits exist: nothing is computed twice, and only the
///          gradients of `hidden` and of `head` are kept for the backward pass.
/// Numbers: in f32 with chunks of kProductBlock, the bits of the loss over all logits at once, and
///          of its gradients (except for the sign of zeros) if the loss itself is differentiated.
///          Else the gradient of `head` is summed chunk by chunk, and in bf16 rounded once a chunk.
/// Parts:   a chunk has `chunk` tokens of each of `parts` shares of the rows, as a mesh cuts them
///          (DecoderConfig::batch_parts); each share sums a gradient of `head` of its own.
/// Errors:  TraceError if the shapes do not fit, `chunk` is not positive or `parts` does not divide
///          the tokens.
/// Source:  SkyRL tx's LogitsProcessor for the chunks; Hsu et al. 2024 (arXiv 2410.10989), section
///          3.2, for gradients computed with the loss.
Array linear_cross_entropy(const Array& hidden, const Array& head, const Array& targets,
                           int64_t chunk, int64_t parts = 1);

/// Returns hidden @ head in f32 (f64 if `hidden` is f64). The cotangent of the result is converted
/// to the dtype of `hidden` before the products of the backward pass.
/// Shapes: hidden [..., d]; head [d, V] of the same dtype; returns [..., V].
Array wide_logits(const Array& hidden, const Array& head);

/// Returns the sum over all tokens of weights * cross_entropy(hidden @ head, targets), `chunk`
/// tokens at a time.
/// Shapes:  weights f32 [...] of the shape of `targets`, without a gradient; the others as for
///          linear_cross_entropy; returns a scalar f32.
/// Types:   logits are summed and kept in f32 for every dtype of `hidden`, to which `head` is
///          converted.
/// Memory:  as for linear_cross_entropy. The gradient of `head` is computed only if it is needed.
/// Numbers: in f32 with chunks of kProductBlock, or if `head` is not differentiated, the bits of
///          sum(weights * cross_entropy(wide_logits(...))) over all logits at once, and of its
///          gradients (except for the sign of zeros).
/// Errors:  as for linear_cross_entropy.
Array weighted_linear_cross_entropy(const Array& hidden, const Array& head, const Array& targets,
                                    const Array& weights, int64_t chunk, int64_t parts = 1);

/// Returns the mean of linear_cross_entropy, computed `block` words of the vocabulary at a time.
/// Neither all logits nor the whole head or its gradient need be on the device.
/// Shapes:  hidden [..., d] on the device; head [d, V], or [V, d] if `axis`, the axis of the
///          vocabulary, is 0, in any memory: each block is moved to the device when it is used.
///          Targets [...] of integers; returns a scalar f32 (f64 if `hidden` is f64).
/// Types:   as for linear_cross_entropy; the gradient of `hidden` is summed in f32, the gradient of
///          `head` is one product for each block.
/// Memory:  the logits of one block for all tokens, and one number a token. The backward pass
///          recomputes the logits, which adds a third to the work of the head.
/// Numbers: sums over the vocabulary are made block by block.
/// Errors:  TraceError if the shapes do not fit, `block` is not positive or `axis` not 0 or 1.
/// Source:  Milakov and Gimelshein 2018 (arXiv 1805.02867) for a softmax in one pass; Levanter's
///          fused_cross_entropy_loss_and_logsumexp_penalty for blocks of the vocabulary.
Array linear_cross_entropy_in_blocks(const Array& hidden, const Array& head, const Array& targets,
                                     int64_t block, int axis = 1);

/// Returns hidden @ head, [..., V] in the dtype of `hidden`, or `out`. `block` words of the head
/// are on the device at a time, as for linear_cross_entropy_in_blocks. No sum is made over words,
/// so the bits are those of the whole product.
Array linear_in_blocks(const Array& hidden, const Array& head, int64_t block, int axis = 1,
                       std::optional<DType> out = {});

/// The low-rank adapter of the head, or the adapters of the head in slots.
struct HeadAdapter {
  Array z;  ///< [..., r]: hidden states times A, scaled.
  Array b;  ///< [V, r]; with slots [V, N * r], for all adapters.
  /// i32 [...]: the adapter of each token, 1 to N, or 0 for none. Each chunk spreads its z over N *
  /// r columns.
  std::optional<Array> slot = {};
};

/// Returns log softmax(hidden @ head)[target] of every token, with the logits of `chunk` tokens at
/// a time.
/// Shapes:  hidden [..., d]; head [d, V]; targets [...] of integers; returns [...] f32 (f64 for
///          f64).
/// Types:   logits are summed and kept in f32 for every dtype of `hidden`, to which `head` is
///          converted.
/// Memory:  the logits of one chunk; the backward pass recomputes them, chunk by chunk.
/// Numbers: in f32 with chunks of kProductBlock, the bits of all logits at once; other chunks
///          change the order of the sums in the gradient of `head`.
/// Adapter: with `adapter` the logits are hidden @ head + z b', summed in the wider of their dtypes
///          and f32. z exists for all tokens at once. With slots, a token whose logits are not
///          finite has a log-probability of NaN and no gradient. A token whose gradient would not
///          be finite has none either. So no token affects another adapter.
/// Errors:  TraceError if the shapes do not fit or `chunk` is not positive.
/// Source:  SkyRL tx's LogitsProcessor.
Array linear_log_probs(const Array& hidden, const Array& head, const Array& targets, int64_t chunk,
                       const std::optional<HeadAdapter>& adapter = {}, int64_t parts = 1);

}  // namespace stow::nn
