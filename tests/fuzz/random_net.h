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
  std::string what;  ///< Its form in a line, for messages.
  Weights weights;   ///< Abstract.
  Array input;       ///< Abstract.
  std::function<Array(const Weights&, const Array&)> apply;
};

/// Convolutions down one to three levels, by pooling or strides, and up again beside the values that
/// skip the levels below, which are concatenated or added. Input [N, H, W, 3].
/// `small`: of sizes that run in no time.
RandomNet random_unet(uint64_t seed, bool small = false);

/// One to four layers whose tokens go to one or two of their experts, chosen by top_k and one_hot.
/// Experts see all tokens, or those that an einsum dispatches to them. Input [T, D].
RandomNet random_mixture(uint64_t seed, bool small = false);

/// One of seven elementwise functions; 0 is the identity.
Array elementwise_function(int number, const Array& x);

}  // namespace stow::testing
