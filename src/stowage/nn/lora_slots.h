// LoraSlots: the adapters of many fine-tunings over one decoder, side by side; rows pick theirs.
// Not one adapter (lora.h), and not who takes which slot; lm/adapters.h has that.
#pragma once

#include <optional>

#include "stowage/nn/lora.h"

namespace stow::nn {

struct ForwardOptions;

/// Numbers of slots as rows name them: 0 is the base, adapters are 1 to N.
inline constexpr int32_t kBaseSlot = 0;

/// Matrices that have slots, and the sizes of the slots.
struct LoraSlotsConfig {
  int64_t adapters = 1;  ///< N; adapter s lies at place s - 1 of every array.
  int64_t max_rank = 8;  ///< r. An adapter of a smaller rank has zeros beyond it.
  bool attention = true, mlp = true, unembed = false;  ///< unembed: embedding and head.
};

/// Factors of N adapters, f32. A row reads those of its own slot alone.
struct LoraSlots {
  LoraLayer layers;              // a [L, N, r, in], b [L, N, out, r]
  std::optional<LowRank> embed;  // a [N, V, r], b [N, d, r]
  std::optional<LowRank> head;   // a [N, r, d], b [V, N, r]
};
STOW_TREE(LoraSlots, layers, embed, head);

/// The factors of the adapters' products, f32. Not trained.
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

/// Abstract arrays.
/// Errors: TraceError for sizes that are not positive, unembed with tied embeddings, or N * V beyond i32.
LoraSlots lora_slots_abstract(const DecoderConfig& config, const LoraSlotsConfig& slots);
SlotScales slot_scales_abstract(const DecoderConfig& config, const LoraSlotsConfig& slots);
/// The axis that counts adapters in the array of that path of a LoraSlots.
int slot_axis(std::string_view path);

/// The part of the slots that a scan over layers reads. Of one layer, the leading axes are gone.
struct SlotInput {
  LoraLayer factors;
  Array scales;  // [L, N, kNumLoraMatrices]
};
STOW_TREE(SlotInput, factors, scales);

/// Returns each row's adapter's part of x, an array with the adapters on axis 0: [B, ..]. Rows of
/// the base are zeros. The gradient of a row is added to its own adapter's part and to no other's.
Array rows_of_slots(const Array& x, const Array& slot_of_row);
/// y [B, T, out] plus what each row's adapter of one layer's matrix makes of x [B, T, in].
/// factors: a [N, r, in], b [N, out, r]; scales [N]. A row of the base keeps its numbers, but for the
/// sign of a zero. Named value: "lora_z".
Array add_slots(const Array& y, const Array& x, const LowRank& factors, const Array& scales,
                const Array& slot_of_row);
/// x [B, T, d] plus what the adapters of the embedding give for tokens [B, T].
Array add_embed_slots(const Array& x, const Array& tokens, const SlotRows& rows);
/// The head's adapters applied to hidden states: the scaled product with each row's A, the slot of
/// each token, and the B of all adapters as one matrix.
struct HeadSlots {
  Array z;     // [B, .., r]
  Array slot;  // i32 [B, ..]
  Array b;     // [V, N * r]
};
/// hidden [B, .., d].
HeadSlots head_slots(const Array& hidden, const SlotRows& rows);
/// z [n, r] of tokens of rows `slots` i32 [n] spread over the columns of all adapters, [n, N * r]: those of
/// other adapters are zero, so that one product with HeadSlots::b serves all.
Array spread_slots(const Array& z, const Array& slots, int64_t adapters);
/// Errors: TraceError where slots stand beside an adapter or ffn_chunk, or their arrays do not fit.
void check_slots(const DecoderConfig& config, const ForwardOptions& options);

}  // namespace stow::nn
