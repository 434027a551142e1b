// The default job's model: a decoder over the bytes of a file.
// Not the decoder itself; that is nn/decoder.h.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stowage/nn/decoder.h"
#include "stowage/optim/mask.h"
#include "stowage/train/model.h"

namespace stow {

/// Returns the decoder with the sizes in a configuration's table `model`.
nn::DecoderConfig decoder_config(const TrainConfig& config);
/// Returns the axes of a decoder's weight, for TrainModel::axes_of().
std::vector<WeightAxis> weight_axes(const nn::DecoderConfig& config, std::string_view path);
/// True if `path` is a weight of a decoder's layers or its embedding, or an adapter of one, for
/// TrainModel::reaches_layers().
bool reaches_decoder_layers(std::string_view path);
/// Returns the matrices of a decoder's layers, for TrainModel::muon_matrices(). The embedding and
/// the head, whose rows stand for tokens, are AdamW's, as Muon's authors advise.
optim::Mask decoder_matrices();
/// Returns the size of a microbatch: "16 sequences of 128 tokens".
std::string describe_sequences(const TrainConfig& config);
/// Returns the sharding of the residual stream [B, T, d] under mesh.sequence; none without it, or
/// if `model` does not divide `tokens`, T.
std::optional<nn::StreamSharding> stream_sharding(const TrainConfig& config, int64_t tokens);
/// Returns the model of `./stowage train` without model.path. Batches are "tokens" i32 [B, T + 1].
TrainModelPtr decoder_model(const TrainConfig& config);

}  // namespace stow
