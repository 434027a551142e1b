// Applies an adapter in the decoder, inside the scan over layers and outside it.
// Not the adapter's own arrays and arithmetic; see lora.h.
#pragma once

#include "stowage/nn/decoder.h"

namespace stow::nn {

/// The part of an adapter that a scan over layers reads; or one slice, without the leading axes.
struct LoraInput {
  LoraLayer factors;
  Array scales;              // f32 [L, kNumLoraMatrices]
  std::optional<Array> key;  // u32 [L, 2]: keys of the dropout
};
STOW_TREE(LoraInput, factors, scales, key);

/// The adapters of one layer, on the device.
class LayerAdapter {
 public:
  /// Without `own`, add() returns y.
  LayerAdapter(const std::optional<LoraInput>& own, const LoraConfig* config);
  /// Adapters in slots, of which each row uses its own; slot_of_row i32 [B].
  LayerAdapter(const std::optional<SlotInput>& own, const Array& slot_of_row);
  /// Returns y plus the adapter of `matrix` applied to x; y itself if the matrix has no adapter.
  Array add(const Array& y, const Array& x, LoraMatrix matrix) const;

 private:
  std::optional<LoraInput> own_;
  double dropout_ = 0;
  std::optional<SlotInput> slots_;
  Array slot_of_row_;
};

/// Checks the adapter of `options`.
/// Errors: TraceError if the adapter does not fit its configuration or the decoder's.
void check_lora(const DecoderConfig& config, const ForwardOptions& options);
/// Returns the adapters of the layers for a scan; none if no matrix of a layer has one.
std::optional<LoraInput> lora_input(const DecoderConfig& config, const ForwardOptions& options);
/// Returns the decoder with the saved weights of the adapter in place of its own.
Decoder with_saved_weights(const DecoderConfig& config, const Decoder& model,
                           const std::optional<Lora>& lora);
/// Returns x [B, T, d] plus the embedding's adapter applied to tokens [B, T].
Array add_embed_adapter(const Array& x, const Array& tokens, const ForwardOptions& options);
/// The factors of the head's adapter, on the device; and its scale and dropout.
LowRank head_factors(const ForwardOptions& options);
LowRankOptions head_options(const ForwardOptions& options);

}  // namespace stow::nn
