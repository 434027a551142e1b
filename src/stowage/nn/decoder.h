// The decoder family of Llama, Mistral, Qwen2 and Qwen3: RMSNorm, rotary grouped-query attention and
// SwiGLU, its layers stacked. Not a trainer, not a tokenizer and not a reader of files.
#pragma once

#include <optional>
#include <vector>

#include "stowage/api/checkpoint.h"
#include "stowage/api/tree.h"
#include "stowage/base/inside.h"
#include "stowage/core/axis_sharding.h"
#include "stowage/nn/lora.h"
#include "stowage/nn/lora_slots.h"
#include "stowage/nn/rotary.h"

namespace stow::nn {

/// A mesh, and how an array lies over it.
struct StreamSharding {
  MeshShape mesh;
  AxisSharding sharding;
};

struct DecoderConfig {
  int64_t vocab = 256, dim = 128, layers = 6, heads = 4, kv_heads = 2, ffn = 344;
  bool tied = false;  ///< The head is the embedding, transposed.
  double norm_eps = 1e-5;
  /// Blocks of layers within which everything is recomputed, by level, as in NestedScanOptions;
  /// empty for none.
  std::vector<int64_t> nested_blocks = {};
  /// The dtype of activations and products. Weights keep their own dtype and are rounded
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

  /// Shares of a batch, each with its own rows, that chunks are cut within: a chunk is so many tokens of
  /// every share. A mesh cuts the batch into as many, so that no device waits for the tokens of another. It
  /// divides the rows. Gradients of weights are summed over a share first, then over shares.
  int64_t batch_parts = 1;
  /// How the residual stream [B, T, d] lies over a mesh wherever a layer begins or adds to it; blocks and the
  /// head read all tokens of their rows. None: as the partitioner finds best.
  std::optional<StreamSharding> stream = {};

  int64_t head_size = 0;   ///< Elements of a head; 0: dim / heads.
  bool qkv_bias = false;   ///< Queries, keys and values have biases.
  bool out_bias = false;   ///< The product behind attention has one.
  bool mlp_bias = false;   ///< The three products of the feed-forward block have.
  bool qk_norm = false;    ///< Each head's query and key pass an RMSNorm before they are rotated.
  RotaryConfig rotary = {};
  /// The sliding window of each layer: a query sees so many keys, its own the last; 0: all before
  /// it. Empty: no layer has one.
  std::vector<int64_t> windows = {};
  /// Matrices are [out, in], as in files of Hugging Face, and the head [V, d]; else [in, out] and
  /// [d, V].
  bool out_in = false;

  int64_t head_dim() const { return head_size > 0 ? head_size : dim / heads; }  ///< Head size.
  int64_t q_dim() const { return heads * head_dim(); }      ///< Size of all query heads.
  int64_t kv_dim() const { return kv_heads * head_dim(); }  ///< Size of all key heads.
};

/// One layer's weights, or all layers' with a leading axis [L]. Shapes are of [in, out] matrices;
/// q = q_dim, g = kv_dim. A bias or norm that the configuration has not is absent.
struct DecoderLayer {
  Array wq, wk, wv, wo;  // [d, q], [d, g], [d, g], [q, d]
  Array w1, w3, w2;      // gate and up [d, f], down [f, d]
  Array norm1, norm2;    // [d]
  std::optional<Array> bq, bk, bv, bo;   // [q], [g], [g], [d]
  std::optional<Array> b1, b3, b2;       // [f], [f], [d]
  std::optional<Array> q_norm, k_norm;   // [head_dim]
};
STOW_TREE(DecoderLayer, wq, wk, wv, wo, w1, w3, w2, norm1, norm2, bq, bk, bv, bo, b1, b3, b2, q_norm,
          k_norm);

struct Decoder {
  Array embed;        // [V, d]
  DecoderLayer layers;  // stacked
  Array norm;         // [d]
  std::optional<Array> head;  // [d, V], or [V, d] where matrices are [out, in]; none where tied
};
STOW_TREE(Decoder, embed, layers, norm, head);

/// Abstract weights: types alone, of `dtype` on the device.
Decoder decoder_abstract(const DecoderConfig& config, DType dtype = DType::kF32);
/// Normal weights of standard deviation 0.02 (those that write to the residual stream scaled by
/// 1 / sqrt(2 L)), norms one, biases zero.
/// Source: Radford et al. 2019, section 2.3.
Decoder decoder_init(const DecoderConfig& config, const Array& key);

/// Keys and values of all layers at S positions a row.
struct KvCache {
  Array k, v;  // [L, B, S, G, D], keys rotated
};
STOW_TREE(KvCache, k, v);
/// An abstract cache of `batch` rows and `length` positions, in the dtype of `config.compute`.
KvCache kv_cache_abstract(const DecoderConfig& config, int64_t batch, int64_t length);

/// The inputs of a forward pass beside weights and tokens.
struct ForwardOptions {
  PolicyPtr policy = nullptr;  ///< Each layer is checkpointed with it.
  /// Positions that rotate queries and keys, i32 [B, T]; none: 0 to T - 1, or with a cache those that
  /// the tokens take in it.
  std::optional<Array> positions = {};
  /// Keys that each token sees, i32 [B, T]: lo <= key < hi, and none after itself. Keys are numbered
  /// as tokens are, with a cache by their places in it. None: from 0 on.
  std::optional<Array> lo = {}, hi = {};
  bool hidden_states = false;  ///< Asks for ForwardResult::hidden_states.
  /// Keys and values of tokens before these. Row b's go to places write_at[b] to write_at[b] + T - 1,
  /// which must exist; its queries see these and all before.
  std::optional<KvCache> cache = {};
  std::optional<Array> write_at = {};  ///< i32 [B]; with a cache.
  /// An adapter beside the weights, and what is fixed of it; the configuration must live as long as
  /// the call. None: the decoder alone, and the same graph as if adapters did not exist.
  std::optional<Lora> lora = {};
  const LoraConfig* lora_config = nullptr;
  /// The key of the adapter's dropout, u32 [2], in training. None: nothing is dropped.
  std::optional<Array> dropout_key = {};
  /// Adapters in slots, and the slot of each row. Not with `lora` or ffn_chunk. None: the same graph as
  /// if slots did not exist.
  std::optional<SlotRows> slots = {};
};
struct ForwardResult {
  Array hidden;  ///< [B, T, d], after the last norm.
  /// [L + 1, B, T, d]: the embeddings, what every layer but the last made, and `hidden`.
  std::optional<Array> hidden_states;
  std::optional<KvCache> cache;  ///< The updated cache.
};

/// One pass over all layers, for training, scoring and generating. tokens i32 [B, T].
/// Named values: "attn_q", "attn_k", "attn_v", "attn_out", "attn_residual", "mlp_gate", "mlp_up".
/// With an adapter also "lora_z" and "lora_delta". Adapters compute in the dtype of their own arrays.
/// Errors:  TraceError where a cache and a place to write, hidden states and nested blocks, an adapter
///          and its configuration, or dropout and ffn_chunk do not go together.
ForwardResult forward_layers(const DecoderConfig& config, const Decoder& model, const Array& tokens,
                             const ForwardOptions& options = {});
/// Hidden states after the last norm, of whole rows. tokens i32 [B, T]; returns [B, T, d].
Array decoder_hidden(const DecoderConfig& config, const Decoder& model, const Array& tokens,
                     const PolicyPtr& policy = nullptr);
/// Logits [.., V] of hidden states [.., d], in their dtype or `out`. Of `options` the adapter, its
/// configuration and the dropout key are read, or the slots; with these hidden states are [B, .., d].
Array decoder_logits(const DecoderConfig& config, const Decoder& model, const Array& hidden,
                     std::optional<DType> out = {}, const ForwardOptions& options = {});
/// Log-probabilities of `targets` i32 [..] given hidden states [.., d]: f32 [..]. The logits of
/// `chunk` tokens exist at a time, those of no other are kept; the backward pass computes them again.
/// Reads the adapter, its configuration and the dropout key of `options`, or the slots. With slots,
/// hidden states are [B, .., d]. The product of the hidden states with A of the head's adapter is made
/// for all tokens before they are cut into chunks.
Array decoder_log_probs(const DecoderConfig& config, const Decoder& model, const Array& hidden,
                        const Array& targets, int64_t chunk, const ForwardOptions& options = {});
/// The sum of weights * cross-entropy in nats of `targets` i32 [..] given hidden states [.., d]; weights
/// f32 [..]; an f32 scalar. With `loss_chunk` the logits of so many tokens exist at a time, with their
/// gradients. Of `options` the adapter, its configuration and the dropout key are read.
Array decoder_weighted_loss(const DecoderConfig& config, const Decoder& model, const Array& hidden,
                            const Array& targets, const Array& weights,
                            const ForwardOptions& options = {});
/// Mean next-token cross-entropy in nats. tokens i32 [B, T + 1]; an f32 scalar.
/// With `loss_chunk` the logits are computed chunk by chunk, with their gradients, so that no more
/// than a chunk of them is ever there; with `vocab_block` block by block of the vocabulary, and once
/// more in the backward pass.
Array decoder_loss(const DecoderConfig& config, const Decoder& model, const Array& tokens,
                   const PolicyPtr& policy = nullptr);

}  // namespace stow::nn
