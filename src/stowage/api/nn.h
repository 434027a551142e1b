// Activations, normalisations and losses as functions of arrays, by the names of jax.nn.
// Not layers with weights; those are in nn/.
#pragma once

#include "stowage/api/shaping.h"

namespace stow {

/// max(x, 0), with gradient 0 at 0; NaN stays NaN.
Array relu(const Operand& x);
/// min(max(x, 0), 6).
Array relu6(const Operand& x);
/// x, or slope * x below 0.
Array leaky_relu(const Operand& x, double slope = 0.01);
/// x, or alpha (exp(x) - 1) below 0.
Array elu(const Operand& x, double alpha = 1);
/// elu, scaled to preserve the variance. Source: Klambauer et al. 2017.
Array selu(const Operand& x);
/// max(x, 0) + alpha (exp(min(x, 0) / alpha) - 1).
Array celu(const Operand& x, double alpha = 1);
/// x within [-1, 1], else the nearer bound.
Array hard_tanh(const Operand& x);
/// relu6(x + 3) / 6.
Array hard_sigmoid(const Operand& x);
/// x * hard_sigmoid(x).
Array hard_silu(const Operand& x);
/// x tanh(softplus(x)).
Array mish(const Operand& x);
/// x / (|x| + 1).
Array soft_sign(const Operand& x);
/// (x + sqrt(x^2 + b)) / 2.
Array squareplus(const Operand& x, double b = 4);
/// 0 below -1, x above 1, (x + 1)^2 / 4 between. Source: Wang et al. 2023.
Array sparse_plus(const Operand& x);
/// Its derivative: (x + 1) / 2 within [0, 1].
Array sparse_sigmoid(const Operand& x);
/// log(sigmoid(x)).
Array log_sigmoid(const Operand& x);
/// The first half of an axis times the sigmoid of the second.
Array glu(const Operand& x, int axis = -1);
/// x * sigmoid(x).
Array silu(const Operand& x);
/// x * Phi(x), with the normal distribution function Phi: its tanh approximation if `approximate`,
/// else by erf. Source: Hendrycks and Gimpel 2016.
Array gelu(const Operand& x, bool approximate = true);
/// log(1 + exp(x)).
Array softplus(const Operand& x);

/// exp(x) divided by its sum along `axes`. Stable: the maximum is subtracted.
Array softmax(const Operand& x, const Axes& axes = -1);
/// The logarithm of softmax. Stable.
Array log_softmax(const Operand& x, const Axes& axes = -1);
/// The softmax of the elements for which `where` (bool, broadcasts to x) is true; 0 for the others.
Array softmax(const Operand& x, const Axes& axes, const Array& where);
/// The logarithm of softmax with `where`; -inf for the other elements.
Array log_softmax(const Operand& x, const Axes& axes, const Array& where);

/// (x - mean) / sqrt(var + eps) along the axes.
Array standardize(const Operand& x, const Axes& axes = -1, double eps = 1e-5);
/// Adds an axis of extent `n`, along which the element with the number of the index is 1 and the
/// others are 0. Indices that are out of range, not whole numbers, or NaN give zeros only.
Array one_hot(const Operand& indices, int64_t n, DType dtype = DType::kF32, int axis = -1);

/// x / sqrt(mean(x^2) + eps), times `weight` if there is one.
/// Shapes:  x [..., D]; weight [D].
/// Types:   computed in f32, the result of x's dtype before the weight is applied.
/// Source:  Zhang and Sennrich 2019, equation 4.
Array rms_norm(const Operand& x, const std::optional<Array>& weight = {}, double eps = 1e-6);
/// (x - mean) / sqrt(var + eps), times `weight`, plus `bias`.
/// Shapes:  x [..., D]; weight, bias [D].  Types: as rms_norm.
/// Source:  Ba et al. 2016, equation 4.
Array layer_norm(const Operand& x, const std::optional<Array>& weight = {},
                 const std::optional<Array>& bias = {}, double eps = 1e-5);

/// -log softmax(logits)[target], for each target.
/// Shapes:  logits [..., V]; targets [...] of integers; returns [...] f32, or f64 if logits are
///          f64.
/// Types:   computed in f32.
/// Memory:  no one-hot array is stored: the target is selected by comparison with an iota. A target
///          out of range gives the logsumexp.
/// Errors:  TraceError if the shapes do not fit or targets are no integers.
Array cross_entropy(const Operand& logits, const Operand& targets);

}  // namespace stow
