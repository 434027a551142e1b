// Lora: one low-rank adapter over a decoder, its matrices stacked over layers as its weights are.
// Not slots of several adapters, not a trainer and not a reader of files; io/peft_files.h has that.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "stowage/api/tree.h"
#include "stowage/base/inside.h"

namespace stow::nn {

struct DecoderConfig;

/// The two factors of one adapter, as PEFT stores them: scale * B A is added to a matrix W [out,
/// in].
struct LowRank {
  Array a;  // [L, r, in]; [r, in] without layers
  Array b;  // [L, out, r]; [out, r] without layers
};
STOW_TREE(LowRank, a, b);

/// Adapters of the matrices of all layers; none of a matrix that is not targeted.
struct LoraLayer {
  std::optional<LowRank> wq, wk, wv, wo, w1, w3, w2;
};
STOW_TREE(LoraLayer, wq, wk, wv, wo, w1, w3, w2);

/// An adapter: what is trained while the decoder's own weights are frozen.
struct Lora {
  LoraLayer layers;
  std::optional<LowRank> embed;  // a [r, V], b [d, r]
  std::optional<LowRank> head;   // a [r, d], b [V, r]
  /// Whole weights in place of the decoder's (PEFT's modules_to_save), of the same shapes. A saved
  /// embedding of a tied decoder leaves the head as it is, and the other way around.
  std::optional<Array> saved_embed, saved_head, saved_norm;
};
STOW_TREE(Lora, layers, embed, head, saved_embed, saved_head, saved_norm);

/// The adapter of one kind of matrix.
struct LoraTarget {
  int64_t rank = 0;  ///< Rank of the arrays, the greatest of all layers; 0: not targeted.
  /// Rank of each layer, [L], or [1] of embedding and head: rows of A and columns of B beyond it
  /// are zero, and stay so under any optimizer that leaves alone what has neither a gradient nor a
  /// value. 0: the layer is not targeted. Empty: all have `rank`.
  std::vector<int64_t> ranks = {};
  /// The factors of B A in each layer, [L], or [1] of embedding and head.
  std::vector<float> scales = {};

  /// Rank of one layer.
  int64_t rank_of(int64_t layer) const {
    return ranks.empty() ? rank : ranks[static_cast<size_t>(layer)];
  }
};

/// Matrices of a layer that may be targeted, in the order of LoraConfig::layers.
enum LoraMatrix : uint8_t { kLoraQ, kLoraK, kLoraV, kLoraO, kLoraGate, kLoraUp, kLoraDown };
inline constexpr size_t kNumLoraMatrices = 7;
/// "wq", "wk", "wv", "wo", "w1", "w3", "w2": the fields of LoraLayer.
std::string_view lora_matrix_name(size_t matrix);

/// The form of an adapter: everything but its values.
struct LoraConfig {
  std::array<LoraTarget, kNumLoraMatrices> layers = {};  ///< By LoraMatrix.
  LoraTarget embed = {}, head = {};
  double dropout = 0;  ///< Probability that an element of A's input is dropped in training.
  bool saved_embed = false, saved_head = false, saved_norm = false;
};

/// One rank and scale for all layers of the listed matrices.
LoraConfig lora_config(const DecoderConfig& config, const std::vector<LoraMatrix>& matrices,
                       int64_t rank, double scale);
/// Abstract arrays of the adapter, f32 on the device.
/// Errors: TraceError where ranks or scales are not one a layer.
Lora lora_abstract(const DecoderConfig& config, const LoraConfig& lora);
/// A uniform in ±1 / sqrt(in) and B zero, of the embedding A zero and B standard normal. Not for
/// configurations with saved weights, which begin as copies of the decoder's.
/// Source: PEFT's LoraLayer.reset_lora_parameters; Hu et al. 2021 (arXiv 2106.09685), section 4.1.
Lora lora_init(const DecoderConfig& config, const LoraConfig& lora, const Array& key);

/// The field of a matrix.
std::optional<LowRank>& lora_matrix(LoraLayer& layers, size_t matrix);
const std::optional<LowRank>& lora_matrix(const LoraLayer& layers, size_t matrix);

/// A scale [] f32, and where there is dropout a key.
struct LowRankOptions {
  Array scale;
  double dropout = 0;
  std::optional<Array> key = {};  ///< None: nothing is dropped.
};
/// x A' * scale, x rounded to the dtype of A, with dropout of x. x [.., in]; a [r, in]; [.., r].
Array low_rank_input(const Array& x, const Array& a, const LowRankOptions& options);
/// y + scale * (x A') B' in the dtype of y: the sum is made in the wider of y's and A's dtypes.
/// x [.., in], y [.., out], one layer's factors. Named values: "lora_z", the product with A, and
/// "lora_delta", that with B.
Array add_low_rank(const Array& y, const Array& x, const LowRank& factors,
                   const LowRankOptions& options);

}  // namespace stow::nn
