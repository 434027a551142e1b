// Rotary position embedding: tables of cosines and sines, and the rotation of queries and keys.
// Not the frequencies of a model's files; io/hf_config.h computes those.
#pragma once

#include <vector>

#include "stowage/api/tree.h"
#include "stowage/base/inside.h"

namespace stow::nn {

/// How far each pair of elements turns from one position to the next.
struct RotaryConfig {
  double base = 10000;  ///< Pair i turns by base^(-2i/D). Used where `inv_freq` is empty.
  /// Radians a position of each pair [D/2], in f32 as a model was trained with; empty: from `base`.
  std::vector<float> inv_freq = {};
  double scale = 1;  ///< Cosines and sines are multiplied by it (yarn's attention factor).
};

/// Cosines and sines of positions, ready to be broadcast over [B, T, H, 2, D/2].
struct RotaryTables {
  Array cos;  ///< [B or 1, T, 1, 1, D/2]
  Array sin;  ///< [B or 1, T, 1, 2, D/2], negative in the first half.
};
STOW_TREE(RotaryTables, cos, sin);

/// The tables of positions 0 to length - 1, for heads of `head_dim` elements, rounded to `dtype`.
/// Source: Su et al. 2021, equation 34, in the rotate-half layout.
RotaryTables rotary_tables(const RotaryConfig& config, int64_t head_dim, int64_t length, DType dtype);
/// The same of any positions, i32 [B, T].
RotaryTables rotary_tables(const RotaryConfig& config, int64_t head_dim, const Array& positions,
                           DType dtype);
/// x [B, T, H, D] with each pair (x[i], x[i + D/2]) = (a, b) turned to (a cos - b sin, b cos + a sin).
Array rotate(const Array& x, const RotaryTables& tables);

}  // namespace stow::nn
