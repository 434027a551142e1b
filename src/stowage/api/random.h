// Random numbers from keys, with the names and bits of jax.random (partitionable Threefry).
// Not a generator with state; a key is a value, and is used once.
#pragma once

#include <algorithm>
#include <array>

#include "stowage/api/shaping.h"

namespace stow::random {

// A key is u32[2]. Source: Salmon et al. 2011 (Threefry 2x32, 20 rounds); jax/_src/random.
// Errors of all functions: TraceError if the key is not u32[2], or for an unsupported dtype.

/// The key of a seed: {seed >> 32, seed & 0xffffffff}.
Array key(uint64_t seed);
/// Derives `n` independent keys.
std::vector<Array> split(const Operand& key, int n);
/// split into `n` keys, two by default: auto [a, b] = split(key), auto [a, b, c] = split<3>(key).
template <size_t n = 2>
std::array<Array, n> split(const Operand& key) {
  const std::vector<Array> keys = random::split(key, static_cast<int>(n));
  std::array<Array, n> result;
  std::copy(keys.begin(), keys.end(), result.begin());
  return result;
}
/// split into one array of `n` keys, u32[n,2].
Array split_array(const Operand& key, int64_t n);
/// Derives a key from a key and a scalar integer.
Array fold_in(const Operand& key, const Operand& data);
/// Uniform random bits, as an unsigned dtype.
Array bits(const Operand& key, const Shape& shape, DType dtype = DType::kU32);
/// Uniform numbers in [low, high), of a float dtype.
Array uniform(const Operand& key, const Shape& shape, DType dtype = DType::kF32, double low = 0,
              double high = 1);
/// Standard normal numbers, by the inverse of erf.
Array normal(const Operand& key, const Shape& shape, DType dtype = DType::kF32);
/// Standard normal numbers restricted to (low, high), by the inverse of erf.
Array truncated_normal(const Operand& key, double low, double high, const Shape& shape,
                       DType dtype = DType::kF32);
/// Numbers of density exp(-x) for x >= 0.
Array exponential(const Operand& key, const Shape& shape, DType dtype = DType::kF32);
/// Numbers of density exp(-|x|) / 2.
Array laplace(const Operand& key, const Shape& shape, DType dtype = DType::kF32);
/// Numbers of density exp(-x) / (1 + exp(-x))^2.
Array logistic(const Operand& key, const Shape& shape, DType dtype = DType::kF32);
/// Numbers of density 1 / (pi (1 + x^2)).
Array cauchy(const Operand& key, const Shape& shape, DType dtype = DType::kF32);
/// -1 or 1 with equal probability.
Array rademacher(const Operand& key, const Shape& shape, DType dtype = DType::kI32);
/// Integers in [low, high), of an integer dtype; `low` if the range is empty. As in JAX, if the
/// size of the range is not a power of two, probabilities differ by about its square / 2^64.
Array randint(const Operand& key, const Shape& shape, int64_t low, int64_t high,
              DType dtype = DType::kI32);
/// 0 to n - 1 (i32) in random order.
Array permutation(const Operand& key, int64_t n);
/// The slices of an axis in random order. `independent`: each index of the other axes has an
/// order of its own.
Array permutation(const Operand& key, const Array& x, int axis = 0, bool independent = false);
/// randint with bounds that are arrays of integers and broadcast to `shape`.
Array randint(const Operand& key, const Shape& shape, const Array& low, const Array& high,
              DType dtype = DType::kI32);
struct ChoiceOptions {
  bool replace = true;          ///< False: each element is drawn at most once.
  std::optional<Array> p = {};  ///< Probability of each element; none: uniform.
  int axis = 0;                 ///< Axis of an array whose slices are drawn.
};
/// Random numbers of 0 to n - 1 (i32).
/// Errors: also TraceError for more draws than elements without replacement.
Array choice(const Operand& key, int64_t n, const Shape& shape, const ChoiceOptions& options = {});
/// Random slices of an axis of x. In the result `shape` replaces that axis. Errors: as above.
Array choice(const Operand& key, const Array& x, const Shape& shape,
             const ChoiceOptions& options = {});
/// True with probability p; p broadcasts to `shape`.
Array bernoulli(const Operand& key, const Operand& p, const Shape& shape);
/// True with probability p; the result has the shape of p.
Array bernoulli(const Operand& key, const Operand& p = 0.5);
/// Standard Gumbel: -log(-log(uniform)).
Array gumbel(const Operand& key, const Shape& shape, DType dtype = DType::kF32);
/// Indices (i32) drawn with probabilities softmax(logits) along an axis, which is dropped. `shape`:
/// shape of the result; it ends in the shape of the remaining axes, and its leading axes count
/// repeated draws. Without `replace`, no index is drawn twice for the same logits.
/// Errors: also TraceError for more draws than indices without `replace`.
Array categorical(const Operand& key, const Operand& logits, int axis = -1,
                  const std::optional<Shape>& shape = {}, bool replace = true);

// Distributions with parameters, which broadcast to `shape`; without a shape, to each other.
// Errors of all functions: also TraceError if they do not broadcast.

/// Numbers of density x^(a - 1) exp(-x) / gamma(a), for a > 0. Types: f32 and f64. The gradient by
/// a is random_gamma_grad, which has no gradient itself.
/// Source: Marsaglia and Tsang 2000; Figurnov et al. 2018 for the gradient.
Array gamma(const Operand& key, const Operand& a, const std::optional<Shape>& shape = {},
            DType dtype = DType::kF32);
/// The logarithm of a gamma variable, also accurate for small a.
Array loggamma(const Operand& key, const Operand& a, const std::optional<Shape>& shape = {},
               DType dtype = DType::kF32);
/// Numbers of density proportional to x^(a - 1) (1 - x)^(b - 1), by two gamma variables.
Array beta(const Operand& key, const Operand& a, const Operand& b,
           const std::optional<Shape>& shape = {}, DType dtype = DType::kF32);
/// Vectors with sum 1, of density proportional to the product of x[i]^(alpha[i] - 1).
/// Shapes: alpha [..., n]; `shape` does not include n.
Array dirichlet(const Operand& key, const Operand& alpha, const std::optional<Shape>& shape = {},
                DType dtype = DType::kF32);
/// Numbers of Student's t distribution with `df` degrees of freedom.
Array t(const Operand& key, const Operand& df, const std::optional<Shape>& shape = {},
        DType dtype = DType::kF32);
/// Sums of `df` squares of standard normal numbers.
Array chisquare(const Operand& key, const Operand& df, const std::optional<Shape>& shape = {},
                DType dtype = DType::kF32);
/// Numbers of the F distribution: the quotient of two chi-square variables, each divided by its
/// degrees of freedom.
Array f(const Operand& key, const Operand& dfnum, const Operand& dfden,
        const std::optional<Shape>& shape = {}, DType dtype = DType::kF32);
/// Numbers of density proportional to exp(-|x|^p).
Array generalized_normal(const Operand& key, double p, const Shape& shape = {},
                         DType dtype = DType::kF32);
/// Uniform vectors of d numbers in the ball whose p-norm is below 1. Shapes: [shape..., d].
Array ball(const Operand& key, int64_t d, double p = 2, const Shape& shape = {},
           DType dtype = DType::kF32);
/// exp(exponential / b): numbers of density b / x^(b + 1) for x >= 1.
Array pareto(const Operand& key, const Operand& b, const std::optional<Shape>& shape = {},
             DType dtype = DType::kF32);
/// The length of a vector of two standard normal numbers, times `scale`.
Array rayleigh(const Operand& key, const Operand& scale, const std::optional<Shape>& shape = {},
               DType dtype = DType::kF32);
/// Numbers with the distribution function 1 - exp(-(x / scale)^concentration).
Array weibull_min(const Operand& key, const Operand& scale, const Operand& concentration,
                  const std::optional<Shape>& shape = {}, DType dtype = DType::kF32);
/// exp(sigma * normal).
Array lognormal(const Operand& key, const Operand& sigma = 1.0,
                const std::optional<Shape>& shape = {}, DType dtype = DType::kF32);
/// Numbers of the inverse Gaussian distribution with this mean and scale 1.
/// Source: Michael et al. 1976.
Array wald(const Operand& key, const Operand& mean, const std::optional<Shape>& shape = {},
           DType dtype = DType::kF32);
/// Numbers of a density that rises linearly from left to mode and falls linearly to right.
Array triangular(const Operand& key, const Operand& left, const Operand& mode, const Operand& right,
                 const std::optional<Shape>& shape = {}, DType dtype = DType::kF32);
/// The length of a vector of three standard normal numbers.
Array maxwell(const Operand& key, const Shape& shape = {}, DType dtype = DType::kF32);
/// A maxwell number with a random sign, times `scale`, plus `loc`. Shapes: `shape`, then the shape
/// to which the parameters broadcast. With an empty `shape`, that shape occurs twice, as in JAX.
Array double_sided_maxwell(const Operand& key, const Operand& loc, const Operand& scale,
                           const Shape& shape = {}, DType dtype = DType::kF32);
/// Numbers of a Poisson distribution of rate `lam`; computed in f32, -1 for NaN and infinity.
/// Source: Knuth for rates below 10; Hormann 1993 for larger ones.
Array poisson(const Operand& key, const Operand& lam, const std::optional<Shape>& shape = {},
              DType dtype = DType::kI32);
/// The number of successes in n trials of probability p, as a float; NaN if n or p is invalid.
/// Source: sums of geometric numbers if few successes are expected; else Hormann 1993 (BTRS).
Array binomial(const Operand& key, const Operand& n, const Operand& p,
               const std::optional<Shape>& shape = {}, DType dtype = DType::kF32);
/// The number of occurrences, in n trials, of each outcome along the last axis of p.
/// Shapes: p [..., m]; n like p without m; `shape` includes m.
Array multinomial(const Operand& key, const Operand& n, const Operand& p,
                  const std::optional<Shape>& shape = {}, DType dtype = DType::kF32);
/// The number of trials of probability p up to and including the first success.
Array geometric(const Operand& key, const Operand& p, const std::optional<Shape>& shape = {},
                DType dtype = DType::kI32);

}  // namespace stow::random
