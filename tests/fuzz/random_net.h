// Random U-Nets and mixtures of experts, as functions of abstract weights and an input.
// Not whole training steps (random_step.h), and not small programs of every op (random_program.h).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "stowage/stowage.h"

namespace stow::testing {

struct RandomNet {
  using Weights = std::vector<Array>;
  std::string what;  ///< A description in one line, for messages.
  Weights weights;   ///< Abstract.
  Array input;       ///< Abstract.
  std::function<Array(const Weights&, const Array&)> apply;
};

/// Returns a U-Net: one to three levels down by pooling or strides, and up again, with skip
/// connections that are concatenated or added. Input [N, H, W, 3]. `small`: true: sizes that run
/// fast.
RandomNet random_unet(uint64_t seed, bool small = false);

/// Returns one to four layers that route each token to one or two experts, by top_k and one_hot.
/// Experts see all tokens, or only those that an einsum dispatches to them. Input [T, D].
RandomNet random_mixture(uint64_t seed, bool small = false);

/// Applies one of seven elementwise functions; 0 is the identity.
Array elementwise_function(int number, const Array& x);

}  // namespace stow::testing
