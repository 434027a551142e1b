// The model of model.path as a TrainModel: all its weights trained, or an adapter over frozen ones.
// Not the decoder of the configuration's own sizes; decoder_model.h has that.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/train/model.h"

namespace stow {

/// The maker of a configuration's model: of model.path where it is set, whose files are opened once
/// and whose sizes are put into `config.model`; else the decoder of the configuration's sizes.
/// Errors: "PATH: KEY: reason" of the model's files and the adapter's; keys that do not fit the model.
Result<ModelFactory> model_factory(TrainConfig& config);

}  // namespace stow
