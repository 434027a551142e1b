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
/// True with probability p.
Array bernoulli(const Operand& key, const Operand& p, const Shape& shape);
/// Standard Gumbel: -log(-log(uniform)).
Array gumbel(const Operand& key, const Shape& shape, DType dtype = DType::kF32);
/// Indices (i32) drawn with probabilities softmax(logits) along an axis, which is dropped.
Array categorical(const Operand& key, const Operand& logits, int axis = -1);

}  // namespace stow::random
