// The model of model.path as a TrainModel: all weights are trained, or an adapter over frozen
// weights. Not the decoder whose sizes the configuration gives; decoder_model.h has that.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/train/model.h"

namespace stow {

/// Returns the factory of a configuration's model. If model.path is set, opens its files once and
/// writes the model's sizes into `config.model`; else the model is a decoder of the configured
/// sizes.
/// Errors: "PATH: KEY: reason" for the model's and the adapter's files; keys that do not fit the
/// model.
Result<ModelFactory> model_factory(TrainConfig& config);

}  // namespace stow
