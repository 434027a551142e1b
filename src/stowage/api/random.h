// Random numbers: Threefry keys and the bits of JAX (partitionable), by the names of jax.random.
// Not a generator with state; a key is a value, and is used once.
#pragma once

#include <algorithm>
#include <array>

#include "stowage/api/shaping.h"

namespace stow::random {

// A key is u32[2]. Source: Salmon et al. 2011 (Threefry 2x32, 20 rounds); jax/_src/random.
// Errors of all: TraceError if the key is not u32[2] or the dtype is none they make.

/// The key of a seed: {seed >> 32, seed & 0xffffffff}.
Array key(uint64_t seed);
/// `n` independent keys.
std::vector<Array> split(const Operand& key, int n);
/// As many keys as it says, two by default: auto [a, b] = split(key), auto [a, b, c] = split<3>(key).
template <size_t n = 2>
std::array<Array, n> split(const Operand& key) {
  const std::vector<Array> keys = random::split(key, static_cast<int>(n));
  std::array<Array, n> result;
  std::copy(keys.begin(), keys.end(), result.begin());
  return result;
}
/// The same as one array u32[n,2].
Array split_array(const Operand& key, int64_t n);
/// A key that depends on both; `data` is a scalar integer.
Array fold_in(const Operand& key, const Operand& data);
/// Uniform bits of an unsigned dtype.
Array bits(const Operand& key, const Shape& shape, DType dtype = DType::kU32);
/// Uniform in [low, high) of a float dtype.
Array uniform(const Operand& key, const Shape& shape, DType dtype = DType::kF32, double low = 0,
              double high = 1);
/// Standard normal, by the inverse of erf.
Array normal(const Operand& key, const Shape& shape, DType dtype = DType::kF32);
/// Normal numbers that lie in (low, high), by the inverse of erf.
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
/// Whole numbers in [low, high) of an integer dtype; `low` where that is empty. As in JAX, a range
/// whose size is no power of two is uneven by about its square over 2^64.
Array randint(const Operand& key, const Shape& shape, int64_t low, int64_t high,
              DType dtype = DType::kI32);
/// 0 to n - 1 (i32) in random order.
Array permutation(const Operand& key, int64_t n);
/// The slices of an axis in random order; `independent`: each lane of the axis in its own.
Array permutation(const Operand& key, const Array& x, int axis = 0, bool independent = false);
/// The same between bounds that are arrays of integers and broadcast to `shape`.
Array randint(const Operand& key, const Shape& shape, const Array& low, const Array& high,
              DType dtype = DType::kI32);
struct ChoiceOptions {
  bool replace = true;
  std::optional<Array> p = {};  ///< Probabilities, one an element; else all alike.
  int axis = 0;                 ///< Axis of an array to choose from.
};
/// Numbers of 0 to n - 1 (i32), or slices of an axis of x, which `shape` replaces.
/// Errors: also TraceError where without replacement more are asked for than there are.
Array choice(const Operand& key, int64_t n, const Shape& shape, const ChoiceOptions& options = {});
Array choice(const Operand& key, const Array& x, const Shape& shape,
             const ChoiceOptions& options = {});
/// True with probability p, which broadcasts to `shape`.
Array bernoulli(const Operand& key, const Operand& p, const Shape& shape);
/// True with probability p; the result has the shape of p.
Array bernoulli(const Operand& key, const Operand& p = 0.5);
/// Standard Gumbel: -log(-log(uniform)).
Array gumbel(const Operand& key, const Shape& shape, DType dtype = DType::kF32);
/// Indices (i32) drawn with probabilities softmax(logits) along an axis, which is dropped; `shape`,
/// if given, ends in the shape of the other axes and says how often they are drawn. Without `replace`
/// no index is drawn twice for the same logits.
/// Errors: also TraceError where more are to be drawn so than there are.
Array categorical(const Operand& key, const Operand& logits, int axis = -1,
                  const std::optional<Shape>& shape = {}, bool replace = true);

// Distributions with parameters, which broadcast to `shape`, or to each other where none is given.
// Errors of all: also TraceError where they do not.

/// Numbers of density x^(a - 1) exp(-x) / gamma(a), for a > 0. Types: f32 and f64. The gradient by
/// a is random_gamma_grad, which has no gradient itself.
/// Source: Marsaglia and Tsang 2000; Figurnov et al. 2018 for the gradient.
Array gamma(const Operand& key, const Operand& a, const std::optional<Shape>& shape = {},
            DType dtype = DType::kF32);
/// Its logarithm, exact where a is small.
Array loggamma(const Operand& key, const Operand& a, const std::optional<Shape>& shape = {},
               DType dtype = DType::kF32);
/// Numbers of density proportional to x^(a - 1) (1 - x)^(b - 1), by two gamma variables.
Array beta(const Operand& key, const Operand& a, const Operand& b,
           const std::optional<Shape>& shape = {}, DType dtype = DType::kF32);
/// Vectors of sum 1, of density proportional to the product of x[i]^(alpha[i] - 1).
/// Shapes: alpha [..., n]; `shape` is without n.
Array dirichlet(const Operand& key, const Operand& alpha, const std::optional<Shape>& shape = {},
                DType dtype = DType::kF32);
/// Student's, of `df` degrees of freedom.
Array t(const Operand& key, const Operand& df, const std::optional<Shape>& shape = {},
        DType dtype = DType::kF32);
/// A sum of `df` squares of normal numbers.
Array chisquare(const Operand& key, const Operand& df, const std::optional<Shape>& shape = {},
                DType dtype = DType::kF32);
/// A quotient of two such, each over its degrees of freedom.
Array f(const Operand& key, const Operand& dfnum, const Operand& dfden,
        const std::optional<Shape>& shape = {}, DType dtype = DType::kF32);
/// Numbers of density proportional to exp(-|x|^p).
Array generalized_normal(const Operand& key, double p, const Shape& shape = {},
                         DType dtype = DType::kF32);
/// Evenly in the ball where the p-norm of d numbers is below 1. Shapes: shape and d.
Array ball(const Operand& key, int64_t d, double p = 2, const Shape& shape = {},
           DType dtype = DType::kF32);
/// exp(exponential / b): of density b / x^(b + 1) for x >= 1.
Array pareto(const Operand& key, const Operand& b, const std::optional<Shape>& shape = {},
             DType dtype = DType::kF32);
/// The length of a vector of two normal numbers, times `scale`.
Array rayleigh(const Operand& key, const Operand& scale, const std::optional<Shape>& shape = {},
               DType dtype = DType::kF32);
/// Numbers of distribution 1 - exp(-(x / scale)^concentration).
Array weibull_min(const Operand& key, const Operand& scale, const Operand& concentration,
                  const std::optional<Shape>& shape = {}, DType dtype = DType::kF32);
/// exp(sigma normal).
Array lognormal(const Operand& key, const Operand& sigma = 1.0,
                const std::optional<Shape>& shape = {}, DType dtype = DType::kF32);
/// The inverse normal distribution of this mean and scale 1. Source: Michael et al. 1976.
Array wald(const Operand& key, const Operand& mean, const std::optional<Shape>& shape = {},
           DType dtype = DType::kF32);
/// Numbers of a density that rises evenly from left to mode and falls evenly to right.
Array triangular(const Operand& key, const Operand& left, const Operand& mode, const Operand& right,
                 const std::optional<Shape>& shape = {}, DType dtype = DType::kF32);
/// The length of a vector of three normal numbers.
Array maxwell(const Operand& key, const Shape& shape = {}, DType dtype = DType::kF32);
/// The same with a random sign, times `scale`, plus `loc`. Shapes: `shape`, then that of both
/// parameters; as in JAX the latter twice where there is no `shape`.
Array double_sided_maxwell(const Operand& key, const Operand& loc, const Operand& scale,
                           const Shape& shape = {}, DType dtype = DType::kF32);
/// How often an event of rate `lam` comes; computed in f32, -1 for NaN and infinity.
/// Source: Knuth below 10; Hormann 1993.
Array poisson(const Operand& key, const Operand& lam, const std::optional<Shape>& shape = {},
              DType dtype = DType::kI32);
/// How many of n trials succeed, each with probability p, as floats: NaN where n or p makes no sense.
/// Source: sums of geometric numbers where few do; Hormann 1993 (BTRS).
Array binomial(const Operand& key, const Operand& n, const Operand& p,
               const std::optional<Shape>& shape = {}, DType dtype = DType::kF32);
/// How often each of the outcomes along the last axis of p comes in n trials.
/// Shapes: p [..., m], n as p without m; `shape` with m.
Array multinomial(const Operand& key, const Operand& n, const Operand& p,
                  const std::optional<Shape>& shape = {}, DType dtype = DType::kF32);
/// How many trials it takes until one succeeds, each with probability p.
Array geometric(const Operand& key, const Operand& p, const std::optional<Shape>& shape = {},
                DType dtype = DType::kI32);

}  // namespace stow::random
