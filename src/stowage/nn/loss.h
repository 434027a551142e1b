// Losses over a large vocabulary that never hold all logits.
// Not the plain loss over logits; that is api/nn.h's cross_entropy.
#pragma once

#include <optional>

#include "stowage/api/array.h"

namespace stow::nn {

/// The mean over all tokens of cross_entropy(hidden @ head, targets), `chunk` tokens at a time.
/// Shapes:  hidden [..., d]; head [d, V]; targets [...] of integers; returns a scalar f32 (f64
///          where `hidden` is).
/// Types:   any floats; logits are computed in the dtype of `hidden`, to which `head` is rounded,
///          the loss in f32 or f64. The gradient of `head` is summed in its own dtype.
/// Memory:  the logits of one chunk. Differentiated, each chunk's gradients are computed with its
///          loss, while its logits are there: nothing is computed twice, and what waits for the
///          backward pass is the gradients of `hidden` and of `head`.
/// Numbers: of f32 with chunks of kProductBlock the bits of the loss over all logits at once,
///          and of its gradients (but for the sign of a zero) where the loss is what is
///          differentiated. Else the gradient of `head` is summed in another order: chunk by chunk,
///          and with bf16 rounded once a chunk.
/// Parts:   a chunk is so many tokens of each of `parts` shares of the rows, as a mesh cuts them
///          (DecoderConfig::batch_parts); each share sums a gradient of `head` of its own.
/// Errors:  TraceError if the shapes do not fit, `chunk` is not positive or `parts` do not divide the
///          tokens.
/// Source:  SkyRL tx's LogitsProcessor for the chunks; Hsu et al. 2024 (arXiv 2410.10989), section
///          3.2, for gradients computed with the loss.
Array linear_cross_entropy(const Array& hidden, const Array& head, const Array& targets,
                           int64_t chunk, int64_t parts = 1);

/// hidden @ head in f32 (f64 where `hidden` is). Its gradient is rounded to the dtype of `hidden` before
/// the products that lead on from it, as all others of a bf16 computation are.
/// Shapes: hidden [..., d]; head [d, V] of the same dtype; returns [..., V].
Array wide_logits(const Array& hidden, const Array& head);

/// The sum over all tokens of weights * cross_entropy(hidden @ head, targets), `chunk` tokens at a time.
/// Shapes:  weights f32 [...] of the shape of `targets`, which have no gradient; the others as above;
///          returns a scalar f32.
/// Types:   logits are summed and kept in f32, whatever the dtype of `hidden`, to which `head` is rounded.
/// Memory:  as above. Where `head` is not differentiated its gradient is not computed.
/// Numbers: of f32 with chunks of kProductBlock, and wherever `head` is not differentiated, the bits of
///          sum(weights * cross_entropy(wide_logits(...))) over all logits at once, and of its gradients (but for
///          the sign of a zero).
/// Errors:  as above.
Array weighted_linear_cross_entropy(const Array& hidden, const Array& head, const Array& targets,
                                    const Array& weights, int64_t chunk, int64_t parts = 1);

/// The mean of linear_cross_entropy, `block` words of the vocabulary at a time, so that neither all logits nor a whole
/// head or its gradient need be on the device.
/// Shapes:  hidden [..., d] on the device; head [d, V], or [V, d] where `axis`, that of the
///          vocabulary, is 0, in any memory: each block is moved to the device where it is used. Targets
///          [...] of integers; returns a scalar f32 (f64 where `hidden` is).
/// Types:   as above; the gradient of `hidden` is summed in f32, that of `head` is one product a block.
/// Memory:  the logits of one block of all tokens, and one number a token. The logits are computed
///          once more in the backward pass: a third more work of the head than all at once.
/// Numbers: the sums over the vocabulary go block by block.
/// Errors:  TraceError if the shapes do not fit, `block` is not positive or `axis` not 0 or 1.
/// Source:  Milakov and Gimelshein 2018 (arXiv 1805.02867) for a softmax in one pass; Levanter's
///          fused_cross_entropy_loss_and_logsumexp_penalty for blocks of the vocabulary.
Array linear_cross_entropy_in_blocks(const Array& hidden, const Array& head, const Array& targets,
                                     int64_t block, int axis = 1);

/// hidden @ head, with the logits of all words, of which `block` at a time are computed and on the
/// device; as for linear_cross_entropy_in_blocks. Returns [..., V] in the dtype of `hidden`, or `out`.
/// No sum goes over words, so the numbers are those of the whole product.
Array linear_in_blocks(const Array& hidden, const Array& head, int64_t block, int axis = 1,
                       std::optional<DType> out = {});

/// A low-rank adapter of the head, or one for each token.
struct HeadAdapter {
  Array z;  ///< [..., r]: hidden states times A, scaled.
  Array b;  ///< [V, r]; with slots [V, N * r], those of all adapters.
  /// i32 [...]: the token's adapter, 1 to N, or 0 for none. Each chunk spreads its z over N * r columns.
  std::optional<Array> slot = {};
};

/// log softmax(hidden @ head)[target] of every token, the logits of `chunk` tokens at a time.
/// Shapes:  hidden [..., d]; head [d, V]; targets [...] of integers; returns [...] f32 (f64 of f64).
/// Types:   logits are summed and kept in f32, whatever the dtype of `hidden`, to which `head` is
///          rounded.
/// Memory:  the logits of one chunk; the backward pass computes them again, chunk by chunk.
/// Numbers: those of all logits at once for f32 and chunks of kProductBlock tokens; other chunks change
///          the order of the sums in the gradient of `head`.
/// Adapter: with `adapter` the logits are hidden @ head + z b', summed in the wider of their dtypes and
///          f32, and its gradients are exact too; z is there for all tokens. With slots a token whose
///          logits are not finite has a log-probability of NaN and no gradient, as has one whose gradient
///          would not be finite, so that it reaches no other adapter.
/// Errors:  TraceError if the shapes do not fit or `chunk` is not positive.
/// Source:  SkyRL tx's LogitsProcessor.
Array linear_log_probs(const Array& hidden, const Array& head, const Array& targets, int64_t chunk,
                       const std::optional<HeadAdapter>& adapter = {}, int64_t parts = 1);

}  // namespace stow::nn
