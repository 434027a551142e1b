// Lora: one low-rank adapter of a decoder; its matrices are stacked over layers as the weights are.
// Not slots of several adapters, not a trainer, and not a reader of files (io/peft_files.h).
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "stowage/api/tree.h"
#include "stowage/base/inside.h"

namespace stow::nn {

struct DecoderConfig;

/// The two factors of the adapter of one matrix, in PEFT's layout: scale * B A is added to a matrix
/// W [out, in].
struct LowRank {
  Array a;  // [L, r, in]; [r, in] outside the layers
  Array b;  // [L, out, r]; [out, r] outside the layers
};
STOW_TREE(LowRank, a, b);

/// The factors for the matrices of all layers; none for a matrix that is not targeted.
struct LoraLayer {
  std::optional<LowRank> wq, wk, wv, wo, w1, w3, w2;
};
STOW_TREE(LoraLayer, wq, wk, wv, wo, w1, w3, w2);

/// An adapter: the arrays that are trained while the decoder's own weights are frozen.
struct Lora {
  LoraLayer layers;
  std::optional<LowRank> embed;  // a [r, V], b [d, r]
  std::optional<LowRank> head;   // a [r, d], b [V, r]
  /// Whole weights that replace the decoder's (PEFT's modules_to_save), with the same shapes. For a
  /// tied decoder, a saved embedding leaves the head unchanged, and a saved head the embedding.
  std::optional<Array> saved_embed, saved_head, saved_norm;
};
STOW_TREE(Lora, layers, embed, head, saved_embed, saved_head, saved_norm);

/// The form of an adapter for one kind of matrix, in all layers.
struct LoraTarget {
  int64_t rank = 0;  ///< Rank of the arrays, the greatest over all layers; 0: not targeted.
  /// Rank by layer, [L], or [1] for embedding and head. Rows of A and columns of B beyond it are
  /// zero, and stay zero under any optimizer whose update is zero for a zero value with zero
  /// gradients. 0: the layer is not targeted. Empty: all layers have `rank`.
  std::vector<int64_t> ranks = {};
  /// The scale of B A by layer, [L], or [1] for embedding and head.
  std::vector<float> scales = {};

  /// Returns the rank of one layer.
  int64_t rank_of(int64_t layer) const {
    return ranks.empty() ? rank : ranks[static_cast<size_t>(layer)];
  }
};

/// Matrices of a layer that may be targeted, in the order of LoraConfig::layers.
enum LoraMatrix : uint8_t { kLoraQ, kLoraK, kLoraV, kLoraO, kLoraGate, kLoraUp, kLoraDown };
inline constexpr size_t kNumLoraMatrices = 7;
/// "wq", "wk", "wv", "wo", "w1", "w3", "w2": the fields of LoraLayer.
std::string_view lora_matrix_name(size_t matrix);

/// The form of an adapter: its ranks, scales and dropout, without values.
struct LoraConfig {
  std::array<LoraTarget, kNumLoraMatrices> layers = {};  ///< By LoraMatrix.
  LoraTarget embed = {}, head = {};
  double dropout = 0;  ///< Probability that an element of A's input is dropped in training.
  bool saved_embed = false, saved_head = false, saved_norm = false;
};

/// Returns a configuration with one rank and scale for the listed matrices of all layers.
LoraConfig lora_config(const DecoderConfig& config, const std::vector<LoraMatrix>& matrices,
                       int64_t rank, double scale);
/// Returns the abstract arrays of the adapter, f32 on the device.
/// Errors: TraceError if ranks or scales do not have one entry for each layer.
Lora lora_abstract(const DecoderConfig& config, const LoraConfig& lora);
/// Returns initial values: A uniform in ±1 / sqrt(in) and B zero; for the embedding, A zero and B
/// standard normal. Not for configurations with saved weights, which begin as copies of the
/// decoder's.
/// Source: PEFT's LoraLayer.reset_lora_parameters; Hu et al. 2021 (arXiv 2106.09685), section 4.1.
Lora lora_init(const DecoderConfig& config, const LoraConfig& lora, const Array& key);

/// Returns the field of LoraLayer for a LoraMatrix.
std::optional<LowRank>& lora_matrix(LoraLayer& layers, size_t matrix);
const std::optional<LowRank>& lora_matrix(const LoraLayer& layers, size_t matrix);

/// The scale and dropout of one layer's adapter.
struct LowRankOptions {
  Array scale;  ///< f32 [].
  double dropout = 0;
  std::optional<Array> key = {};  ///< Key of the dropout; none: nothing is dropped.
};
/// Returns dropout(x) A' * scale, computed in the dtype of A. x [.., in]; a [r, in]; returns [..,
/// r].
Array low_rank_input(const Array& x, const Array& a, const LowRankOptions& options);
/// Returns y + scale * (x A') B' in the dtype of y; the sum is made in the wider of y's and A's
/// dtypes. x [.., in], y [.., out], factors of one layer. Named values: "lora_z", the product with
/// A, and "lora_delta", the product with B.
Array add_low_rank(const Array& y, const Array& x, const LowRank& factors,
                   const LowRankOptions& options);

}  // namespace stow::nn
