// Rotary position embedding: tables of cosines and sines, and the rotation of queries and keys.
// Not the frequencies of a model's files; io/hf_config.h computes those.
#pragma once

#include <vector>

#include "stowage/api/tree.h"
#include "stowage/base/inside.h"

namespace stow::nn {

/// The rotation of each pair of elements from one position to the next.
struct RotaryConfig {
  /// Pair i turns by base^(-2i/D) radians a position, if `inv_freq` is empty.
  double base = 10000;
  /// Radians a position by pair, [D/2], in f32 as in the model's training; empty: from `base`.
  std::vector<float> inv_freq = {};
  double scale = 1;  ///< Factor of cosines and sines (YaRN's attention factor).
};

/// Cosines and sines of positions, ready to be broadcast over [B, T, H, 2, D/2].
struct RotaryTables {
  Array cos;  ///< [B or 1, T, 1, 1, D/2]
  Array sin;  ///< [B or 1, T, 1, 2, D/2], negative in the first half.
};
STOW_TREE(RotaryTables, cos, sin);

/// Returns the tables of positions 0 to length - 1, for heads of `head_dim` elements, rounded to
/// `dtype`.
/// Source: Su et al. 2021, equation 34, in the rotate-half layout.
RotaryTables rotary_tables(const RotaryConfig& config, int64_t head_dim, int64_t length,
                           DType dtype);
/// Returns the tables of given positions, i32 [B, T].
RotaryTables rotary_tables(const RotaryConfig& config, int64_t head_dim, const Array& positions,
                           DType dtype);
/// Rotates x [B, T, H, D]: each pair (x[i], x[i + D/2]) = (a, b) becomes (a cos - b sin, b cos + a
/// sin).
Array rotate(const Array& x, const RotaryTables& tables);

}  // namespace stow::nn
