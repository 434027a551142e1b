// Frequencies of the rotary position embedding, in f32 as transformers computes them.
// Not the rotation itself.
#pragma once

#include <cstdint>
#include <vector>

#include "stowage/io/hf_config.h"

namespace stow {

struct RopeFrequencies {
  std::vector<float> inv_freq;     ///< [head_dim / 2], radians per position
  double attention_scaling = 1.0;  ///< factor of cos and sin
};

/// Returns the frequency of each pair i of a head; its angle at position t is t * inv_freq[i].
/// Source: transformers, modeling_rope_utils.py; linear: Chen et al. 2023; yarn: Peng et al. 2023,
///         equations 17 to 22; llama3: Llama 3.1's reference code, apply_scaling.
RopeFrequencies rope_frequencies(const RopeConfig& rope, int64_t head_dim);

}  // namespace stow
