#include "stowage/optim/optimizers.h"

namespace stow::optim {

GradientTransformation sgd(ScalarOrSchedule learning_rate, const SgdOptions& o) {
  const GradientTransformation momentum =
      o.momentum ? trace(*o.momentum, {o.nesterov, o.accumulator_dtype, o.moments})
                 : GradientTransformation();
  return chain(momentum, scale_by_learning_rate(learning_rate));
}

GradientTransformation adam(ScalarOrSchedule learning_rate, const ScaleByAdamOptions& options) {
  return chain(scale_by_adam(options), scale_by_learning_rate(learning_rate));
}

GradientTransformation adamw(ScalarOrSchedule learning_rate, const AdamWOptions& o) {
  return chain(scale_by_adam({o.b1, o.b2, o.eps, o.eps_root, o.mu_dtype, o.nesterov, o.moments}),
               add_decayed_weights(o.weight_decay, o.mask), scale_by_learning_rate(learning_rate));
}

GradientTransformation lion(ScalarOrSchedule learning_rate, const LionOptions& o) {
  return chain(scale_by_lion({o.b1, o.b2, o.mu_dtype, o.moments}),
               add_decayed_weights(o.weight_decay, o.mask), scale_by_learning_rate(learning_rate));
}

GradientTransformation rmsprop(ScalarOrSchedule learning_rate, const RmspropOptions& o) {
  const ScaleByRmsOptions rms = {o.decay, o.eps, o.initial_scale, o.eps_in_sqrt, o.bias_correction};
  return chain(
      o.centered ? scale_by_stddev(rms) : scale_by_rms(rms), scale_by_learning_rate(learning_rate),
      o.momentum ? trace(*o.momentum, {.nesterov = o.nesterov}) : GradientTransformation());
}

GradientTransformation adafactor(std::optional<ScalarOrSchedule> learning_rate,
                                 const AdafactorOptions& o) {
  std::vector<GradientTransformation> parts = {scale_by_factored_rms(
      {o.factored, o.decay_rate, o.decay_offset, o.min_dim_size_to_factor, o.eps})};
  if (o.clipping_threshold) parts.push_back(clip_by_block_rms(*o.clipping_threshold));
  if (learning_rate) parts.push_back(scale_by_learning_rate(*learning_rate, false));
  if (o.multiply_by_parameter_scale) parts.push_back(scale_by_param_block_rms());
  if (o.momentum)
    parts.push_back(ema(*o.momentum, {.debias = false, .accumulator_dtype = o.dtype_momentum}));
  if (o.weight_decay_rate)
    parts.push_back(add_decayed_weights(*o.weight_decay_rate, o.weight_decay_mask));
  parts.push_back(scale(-1));
  return chain(parts);
}

GradientTransformation muon(ScalarOrSchedule learning_rate, const MuonOptions& o) {
  AdamWOptions rest;
  rest.b1 = o.adam_b1;
  rest.b2 = o.adam_b2;
  rest.eps = o.eps;
  rest.eps_root = o.adam_eps_root;
  rest.weight_decay = o.adam_weight_decay;
  rest.mu_dtype = o.mu_dtype;
  rest.nesterov = o.nesterov;
  rest.moments = o.moments;
  const Mask matrices =
      o.matrices.given()
          ? o.matrices
          : Mask([](const std::string&, const Array& param) { return param.rank() == 2; });
  const GradientTransformation momentum = scale_by_muon(
      {o.ns_coeffs, o.ns_steps, o.beta, o.eps, o.mu_dtype, o.nesterov, o.adaptive, o.moments});
  return chain(masked(chain(momentum, scale_by_shape(o.consistent_rms)), matrices),
               add_decayed_weights(o.weight_decay, matrices && o.weight_decay_mask),
               masked(scale_by_learning_rate(learning_rate), matrices),
               masked(adamw(o.adam_learning_rate.value_or(learning_rate), rest), !matrices));
}

}  // namespace stow::optim
