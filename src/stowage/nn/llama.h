// Llama: a decoder of RMSNorm, rotary grouped-query attention and SwiGLU, its layers stacked.
// Not a trainer and not a tokenizer.
#pragma once

#include <optional>
#include <vector>

#include "stowage/api/checkpoint.h"
#include "stowage/api/tree.h"
#include "stowage/base/inside.h"

namespace stow::nn {

struct LlamaConfig {
  int64_t vocab = 256, dim = 128, layers = 6, heads = 4, kv_heads = 2, ffn = 344;
  bool tied = false;  ///< The head is the embedding, transposed.
  double norm_eps = 1e-5;
  double rope_base = 10000;
  /// Blocks of layers within which everything is recomputed, by level, as in NestedScanOptions;
  /// empty for none.
  std::vector<int64_t> nested_blocks = {};
  /// What activations and products are computed in. Weights keep their own dtype and are rounded
  /// where they are used; norms, scores and the loss are computed in f32 all the same.
  DType compute = DType::kF32;
  /// Tokens whose logits exist at a time in the loss; 0 for all at once. With f32 and chunks of
  /// kProductBlock no number changes. Others change the order in which the gradient of the head is
  /// summed, and below kProductLeast how products are.
  int64_t loss_chunk = 0;
  /// Words of the vocabulary whose logits exist at a time in the loss, and which of the head are on
  /// the device then; 0 for all. Changes the order of sums over the vocabulary. Not with loss_chunk.
  int64_t vocab_block = 0;
  /// Tokens whose feed-forward block is computed at a time, and again in the backward pass; 0 for all
  /// at once. With f32 and chunks of kProductBlock no number changes: so the gradients of the
  /// weights are summed anyway.
  int64_t ffn_chunk = 0;

  int64_t head_dim() const { return dim / heads; }  ///< Of one head.
  int64_t kv_dim() const { return kv_heads * head_dim(); }  ///< Of all key heads.
};

/// One layer's weights, or all layers' with a leading axis [L]. Matrices are [in, out].
struct LlamaLayer {
  Array wq, wk, wv, wo;  // [d, d], [d, g], [d, g], [d, d], g = kv_heads * head_dim
  Array w1, w3, w2;      // gate and up [d, f], down [f, d]
  Array norm1, norm2;    // [d]
};
STOW_TREE(LlamaLayer, wq, wk, wv, wo, w1, w3, w2, norm1, norm2);

struct Llama {
  Array embed;        // [V, d]
  LlamaLayer layers;  // stacked
  Array norm;         // [d]
  std::optional<Array> head;  // [d, V]; none where tied
};
STOW_TREE(Llama, embed, layers, norm, head);

/// Abstract weights: types alone, f32.
Llama llama_abstract(const LlamaConfig& config);
/// Normal weights of standard deviation 0.02 (those that write to the residual stream scaled by
/// 1 / sqrt(2 L)), norms one.
/// Source: Radford et al. 2019, section 2.3.
Llama llama_init(const LlamaConfig& config, const Array& key);

/// Hidden states after the last norm. tokens i32 [B, T]; returns [B, T, d].
/// Each layer is checkpointed with `policy`. Named values: "attn_q", "attn_k", "attn_v",
/// "attn_out", "attn_residual", "mlp_gate", "mlp_up".
Array llama_hidden(const LlamaConfig& config, const Llama& model, const Array& tokens,
                   const PolicyPtr& policy = nullptr);
/// Logits [.., V] of hidden states [.., d], in their dtype.
Array llama_logits(const LlamaConfig& config, const Llama& model, const Array& hidden);
/// Mean next-token cross-entropy in nats. tokens i32 [B, T + 1]; an f32 scalar.
/// With `loss_chunk` the logits are computed chunk by chunk, with their gradients, so that no more
/// than a chunk of them is ever there; with `vocab_block` block by block of the vocabulary, and once
/// more in the backward pass.
Array llama_loss(const LlamaConfig& config, const Llama& model, const Array& tokens,
                 const PolicyPtr& policy = nullptr);

}  // namespace stow::nn
