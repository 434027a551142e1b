// The default job's model: a decoder over the bytes of a file.
// Not the decoder itself; that is nn/decoder.h.
#pragma once

#include "stowage/nn/decoder.h"
#include "stowage/train/model.h"

namespace stow {

/// Returns the decoder with the sizes in a configuration's table `model`.
nn::DecoderConfig decoder_config(const TrainConfig& config);
/// Returns the axes of a decoder's weight, for TrainModel::axes_of().
std::vector<WeightAxis> weight_axes(const nn::DecoderConfig& config, std::string_view path);
/// Returns the model of `./stowage train` without model.path. Batches are "tokens" i32 [B, T + 1].
TrainModelPtr decoder_model(const TrainConfig& config);

}  // namespace stow
