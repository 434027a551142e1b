// Random numbers: Threefry keys and the bits of JAX (partitionable), by the names of jax.random.
// Not a generator with state; a key is a value, and is used once.
#pragma once

#include "stowage/api/shaping.h"

namespace stow::random {

// A key is u32[2]. Source: Salmon et al. 2011 (Threefry 2x32, 20 rounds); jax/_src/random.
// Errors of all: TraceError if the key is not u32[2] or the dtype is none they make.

/// The key of a seed: {seed >> 32, seed & 0xffffffff}.
Array key(uint64_t seed);
/// `n` independent keys.
std::vector<Array> split(const Operand& key, int n = 2);
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
/// Of density exp(-x) for x >= 0.
Array exponential(const Operand& key, const Shape& shape, DType dtype = DType::kF32);
/// Of density exp(-|x|) / 2.
Array laplace(const Operand& key, const Shape& shape, DType dtype = DType::kF32);
/// Of density exp(-x) / (1 + exp(-x))^2.
Array logistic(const Operand& key, const Shape& shape, DType dtype = DType::kF32);
/// Of density 1 / (pi (1 + x^2)).
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
  int axis = 0;                 ///< Of an array to choose from.
};
/// Numbers of 0 to n - 1 (i32), or slices of an axis of x, which `shape` replaces.
/// Errors: also TraceError where without replacement more are asked for than there are.
Array choice(const Operand& key, int64_t n, const Shape& shape, const ChoiceOptions& options = {});
Array choice(const Operand& key, const Array& x, const Shape& shape,
             const ChoiceOptions& options = {});
/// True with probability p.
Array bernoulli(const Operand& key, const Operand& p, const Shape& shape);
/// Of the shape of p.
Array bernoulli(const Operand& key, const Operand& p = 0.5);
/// Standard Gumbel: -log(-log(uniform)).
Array gumbel(const Operand& key, const Shape& shape, DType dtype = DType::kF32);
/// Indices (i32) drawn with probabilities softmax(logits) along an axis, which is dropped; `shape`,
/// if given, ends in the shape of the other axes and says how often they are drawn.
Array categorical(const Operand& key, const Operand& logits, int axis = -1,
                  const std::optional<Shape>& shape = {});

}  // namespace stow::random
