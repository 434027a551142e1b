// An adapter in the decoder: its parts that are scanned, and those outside the layers.
// Not the adapter's own arrays and arithmetic; see lora.h.
#pragma once

#include "stowage/nn/decoder.h"

namespace stow::nn {

/// The part of an adapter that a scan over layers reads. Of one layer, the leading axes are gone.
struct LoraInput {
  LoraLayer factors;
  Array scales;              // f32 [L, kNumLoraMatrices]
  std::optional<Array> key;  // u32 [L, 2]: of dropout
};
STOW_TREE(LoraInput, factors, scales, key);

/// The adapters of one layer, on the device.
class LayerAdapter {
 public:
  /// Without `own` nothing is added to anything.
  LayerAdapter(const std::optional<LoraInput>& own, const LoraConfig* config);
  /// The same with each row's adapter of several; rows i32 [B].
  LayerAdapter(const std::optional<SlotInput>& own, const Array& slot_of_row);
  /// y plus what the matrix's adapter makes of x; y itself where it has none.
  Array add(const Array& y, const Array& x, LoraMatrix matrix) const;

 private:
  std::optional<LoraInput> own_;
  double dropout_ = 0;
  std::optional<SlotInput> slots_;
  Array slot_of_row_;
};

/// Errors: TraceError where options have an adapter that does not go with its configuration or with
///         the decoder's.
void check_lora(const DecoderConfig& config, const ForwardOptions& options);
/// Adapters of the layers for a scan; none where no matrix of a layer has one.
std::optional<LoraInput> lora_input(const DecoderConfig& config, const ForwardOptions& options);
/// The decoder with the weights that the adapter holds whole in place of its own.
Decoder with_saved(const DecoderConfig& config, const Decoder& model,
                   const std::optional<Lora>& lora);
/// x [B, T, d] plus what the embedding's adapter gives for tokens [B, T].
Array add_embed_adapter(const Array& x, const Array& tokens, const ForwardOptions& options);
/// The head's adapter on the device, and its scale and dropout.
LowRank head_factors(const ForwardOptions& options);
LowRankOptions head_options(const ForwardOptions& options);

}  // namespace stow::nn
