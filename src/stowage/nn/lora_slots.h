// LoraSlots: the adapters of several fine-tunings of one decoder; each row of a batch picks one.
// Not one adapter (lora.h), and not the assignment of slots (lm/adapters.h).
#pragma once

#include <optional>

#include "stowage/nn/lora.h"

namespace stow::nn {

struct ForwardOptions;

/// The slot number of the base model. Adapters have slots 1 to N.
inline constexpr int32_t kBaseSlot = 0;

/// The matrices that have slots, and the sizes of the slots.
struct LoraSlotsConfig {
  int64_t adapters = 1;  ///< N; adapter s lies at place s - 1 of every array.
  int64_t max_rank = 8;  ///< r. An adapter of a smaller rank has zeros beyond it.
  bool attention = true, mlp = true, unembed = false;  ///< unembed: embedding and head.
};

/// Factors of N adapters, f32. A row reads only those of its own slot.
struct LoraSlots {
  LoraLayer layers;              // a [L, N, r, in], b [L, N, out, r]
  std::optional<LowRank> embed;  // a [N, V, r], b [N, d, r]
  std::optional<LowRank> head;   // a [N, r, d], b [V, N, r]
};
STOW_TREE(LoraSlots, layers, embed, head);

/// The scales of the adapters, f32. Not trained.
struct SlotScales {
  Array layers;       // [L, N, kNumLoraMatrices]
  Array embed, head;  // [N]
};
STOW_TREE(SlotScales, layers, embed, head);

/// The part of the slots that a forward pass reads.
struct SlotRows {
  LoraSlots slots;
  SlotScales scales;
  Array slot_of_row;  ///< i32 [B], each 0 to N.
};
STOW_TREE(SlotRows, slots, scales, slot_of_row);

/// Return abstract arrays.
/// Errors: TraceError for sizes that are not positive, unembed with tied embeddings, or N * V
/// beyond i32.
LoraSlots lora_slots_abstract(const DecoderConfig& config, const LoraSlotsConfig& slots);
SlotScales slot_scales_abstract(const DecoderConfig& config, const LoraSlotsConfig& slots);
/// Returns the axis [N] of the array at a path of a LoraSlots.
int slot_axis(std::string_view path);

/// The part of the slots that a scan over layers reads; or one slice, without the leading axes.
struct SlotInput {
  LoraLayer factors;
  Array scales;  // [L, N, kNumLoraMatrices]
};
STOW_TREE(SlotInput, factors, scales);

/// Returns, for each row, the slice of x [N, ..] that belongs to the row's adapter: [B, ..]. Rows
/// of the base get zeros. The gradient of a row is added only to the slice of its own adapter.
Array rows_of_slots(const Array& x, const Array& slot_of_row);
/// Returns y [B, T, out] plus, for each row, its adapter of one layer's matrix applied to x [B, T,
/// in]. factors: a [N, r, in], b [N, out, r]; scales [N]. A row of the base keeps its values,
/// except for the sign of zeros. Named value: "lora_z".
Array add_slots(const Array& y, const Array& x, const LowRank& factors, const Array& scales,
                const Array& slot_of_row);
/// Returns x [B, T, d] plus, for each row, the embedding's adapter applied to tokens [B, T].
Array add_embed_slots(const Array& x, const Array& tokens, const SlotRows& rows);
/// The inputs of the head's adapters.
struct HeadSlots {
  Array z;     // [B, .., r]: the scaled product of hidden states with the A of their row's adapter
  Array slot;  // i32 [B, ..]: the slot of each token
  Array b;     // [V, N * r]: the B of all adapters
};
/// Computes them from hidden states [B, .., d].
HeadSlots head_slots(const Array& hidden, const SlotRows& rows);
/// Returns [n, N * r] in which z [n, r] of each token fills the columns of its adapter, given by
/// `slots` i32 [n], and all other columns are zero. One product with HeadSlots::b then serves all
/// adapters.
Array spread_slots(const Array& z, const Array& slots, int64_t adapters);
/// Checks the slots of `options`.
/// Errors: TraceError if there is also an adapter or ffn_chunk, or if the arrays do not fit.
void check_slots(const DecoderConfig& config, const ForwardOptions& options);

}  // namespace stow::nn
