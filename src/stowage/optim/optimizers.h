// Optimizers by the names and defaults of optax: chains of the transformations of transforms.h.
// Not a training loop.
#pragma once

#include <optional>
#include <vector>

#include "stowage/optim/transforms.h"
#include "stowage/optim/wrappers.h"

namespace stow::optim {

// Sources are those of the chained transformations. Updates are added to the parameters.

struct SgdOptions {
  std::optional<double> momentum = {};
  bool nesterov = false;
  std::optional<DType> accumulator_dtype = {};
  Moments moments = Moments::kFull;  ///< Storage of the momentum.
};
/// Chain: trace if there is a momentum, scale_by_learning_rate.
GradientTransformation sgd(ScalarOrSchedule learning_rate, const SgdOptions& options = {});

/// Chain: scale_by_adam, scale_by_learning_rate.
GradientTransformation adam(ScalarOrSchedule learning_rate,
                            const ScaleByAdamOptions& options = {});

struct AdamWOptions {
  double b1 = 0.9, b2 = 0.999, eps = 1e-8, eps_root = 0;
  std::optional<DType> mu_dtype = {};
  ScalarOrSchedule weight_decay = 1e-4;
  Mask mask = {};  ///< The leaves with weight decay.
  bool nesterov = false;
  Moments moments = Moments::kFull;
};
/// Chain: scale_by_adam, add_decayed_weights, scale_by_learning_rate.
/// Source: Loshchilov and Hutter 2019, algorithm 2, with the decay multiplied by the learning rate.
GradientTransformation adamw(ScalarOrSchedule learning_rate, const AdamWOptions& options = {});

struct LionOptions {
  double b1 = 0.9, b2 = 0.99;
  std::optional<DType> mu_dtype = {};
  ScalarOrSchedule weight_decay = 1e-3;
  Mask mask = {};  ///< The leaves with weight decay.
  Moments moments = Moments::kFull;
};
/// Chain: scale_by_lion, add_decayed_weights, scale_by_learning_rate.
GradientTransformation lion(ScalarOrSchedule learning_rate, const LionOptions& options = {});

struct RmspropOptions {
  double decay = 0.9, eps = 1e-8, initial_scale = 0;
  bool eps_in_sqrt = true;
  bool centered = false;
  std::optional<double> momentum = {};
  bool nesterov = false;
  bool bias_correction = false;
};
/// Chain: scale_by_rms, or scale_by_stddev if centered; scale_by_learning_rate; trace if there is a
/// momentum.
GradientTransformation rmsprop(ScalarOrSchedule learning_rate, const RmspropOptions& options = {});

struct AdafactorOptions {
  int64_t min_dim_size_to_factor = 128;
  double decay_rate = 0.8;
  int64_t decay_offset = 0;
  bool multiply_by_parameter_scale = true;
  std::optional<double> clipping_threshold = 1.0;
  std::optional<double> momentum = {};
  DType dtype_momentum = DType::kF32;
  std::optional<ScalarOrSchedule> weight_decay_rate = {};  ///< Not multiplied by the learning rate.
  double eps = 1e-30;
  bool factored = true;
  Mask weight_decay_mask = {};
};
/// Chain: scale_by_factored_rms, clip_by_block_rms, multiplication by the learning rate,
/// scale_by_param_block_rms, ema, add_decayed_weights, scale(-1); without those whose option is
/// off.
/// Source: Shazeer and Stern 2018.
GradientTransformation adafactor(std::optional<ScalarOrSchedule> learning_rate = {},
                                 const AdafactorOptions& options = {});

struct MuonOptions {
  std::vector<NsCoeffs> ns_coeffs = {{3.4445, -4.7750, 2.0315}};
  int ns_steps = 5;
  double beta = 0.95, eps = 1e-8;
  ScalarOrSchedule weight_decay = 0.0;
  Mask weight_decay_mask = {};
  std::optional<DType> mu_dtype = {};
  bool nesterov = true;
  bool adaptive = false;
  double adam_b1 = 0.9, adam_b2 = 0.999, adam_eps_root = 0;
  ScalarOrSchedule adam_weight_decay = 0.0;
  std::optional<ScalarOrSchedule> adam_learning_rate = {};  ///< None: that of Muon.
  /// The leaves that Muon updates: matrices, or stacks of matrices on their last two axes. AdamW
  /// updates the rest. Not given: the leaves of rank 2.
  Mask matrices = {};
  std::optional<double> consistent_rms = {};
  Moments moments = Moments::kFull;  ///< Storage of the moments of Muon and AdamW.
};
/// For matrices the chain scale_by_muon, scale_by_shape, add_decayed_weights,
/// scale_by_learning_rate; for the other leaves adamw.
/// Source: optax.contrib.muon; `matrices` is its muon_weight_dimension_numbers with reduction axis
///         -2 and output axis -1.
GradientTransformation muon(ScalarOrSchedule learning_rate, const MuonOptions& options = {});

}  // namespace stow::optim
