// The decoder of Llama, Mistral, Qwen2 and Qwen3: RMSNorm, rotary grouped-query attention, SwiGLU.
// Not a trainer, not a tokenizer and not a reader of files.
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

/// A mesh and the sharding of an array over it.
struct StreamSharding {
  MeshShape mesh;
  AxisSharding sharding;
};

struct DecoderConfig {
  int64_t vocab = 256, dim = 128, layers = 6, heads = 4, kv_heads = 2, ffn = 344;
  bool tied = false;  ///< True if the head is the embedding, transposed.
  double norm_eps = 1e-5;
  /// Numbers of nested blocks of layers, by level, as in NestedScanOptions; the backward pass
  /// recomputes all within a block. Empty: no blocks.
  std::vector<int64_t> nested_blocks = {};
  /// The dtype of activations and products. Weights keep their own dtype and are converted
  /// where they are used; norms, scores and the loss are always computed in f32.
  DType compute = DType::kF32;
  /// Number of tokens whose logits exist at a time in the loss; 0: all tokens. In f32, chunks of
  /// kProductBlock tokens leave all bits as they are. Other chunks change the order of the sum in
  /// the gradient of the head; chunks below kProductLeast also change the bits of products.
  int64_t loss_chunk = 0;
  /// Number of words of the vocabulary whose logits and columns of the head are on the device at a
  /// time in the loss; 0: all words. Changes the order of sums over the vocabulary. Not with
  /// loss_chunk.
  int64_t vocab_block = 0;
  /// Number of tokens whose feed-forward block is computed at a time, and recomputed in the
  /// backward pass; 0: all tokens. In f32, chunks of kProductBlock tokens leave all bits as they
  /// are.
  int64_t ffn_chunk = 0;

  /// Number of shares of the rows of a batch; it must divide the rows. A chunk has as many tokens
  /// of each share. If a mesh cuts the batch into these shares, no device waits for the tokens of
  /// another. Gradients of weights are summed over each share first, then over the shares.
  int64_t batch_parts = 1;
  /// Sharding of the residual stream [B, T, d] where a layer begins and where a block adds to it;
  /// blocks and the head read all tokens of their rows. None: the partitioner chooses.
  std::optional<StreamSharding> stream = {};

  int64_t head_size = 0;   ///< Elements of a head; 0: dim / heads.
  bool qkv_bias = false;   ///< True if the projections to queries, keys and values have biases.
  bool out_bias = false;   ///< True if the output projection of attention has a bias.
  bool mlp_bias = false;   ///< True if the three products of the feed-forward block have biases.
  bool qk_norm = false;    ///< True if queries and keys pass an RMSNorm per head before rotation.
  RotaryConfig rotary = {};
  /// The sliding window of each layer, in keys: a query sees the last so many keys, its own
  /// included; 0: all keys up to its own. Empty: no layer has a window.
  std::vector<int64_t> windows = {};
  /// True if matrices are [out, in], as in files of Hugging Face, and the head is [V, d]; else they
  /// are [in, out] and [d, V].
  bool out_in = false;

  int64_t head_dim() const { return head_size > 0 ? head_size : dim / heads; }  ///< Head size.
  int64_t q_dim() const { return heads * head_dim(); }      ///< Size of all query heads.
  int64_t kv_dim() const { return kv_heads * head_dim(); }  ///< Size of all key heads.
};

/// The weights of one layer, or of all layers with a leading axis [L]. Shapes are those of [in,
/// out] matrices; q = q_dim, g = kv_dim. A bias or norm that the configuration lacks is absent.
struct DecoderLayer {
  Array wq, wk, wv, wo;  // [d, q], [d, g], [d, g], [q, d]
  Array w1, w3, w2;      // gate and up [d, f], down [f, d]
  Array norm1, norm2;    // [d]
  std::optional<Array> bq, bk, bv, bo;   // [q], [g], [g], [d]
  std::optional<Array> b1, b3, b2;       // [f], [f], [d]
  std::optional<Array> q_norm, k_norm;   // [head_dim]
};
STOW_TREE(DecoderLayer, wq, wk, wv, wo, w1, w3, w2, norm1, norm2, bq, bk, bv, bo, b1, b3, b2,
          q_norm, k_norm);

struct Decoder {
  Array embed;        // [V, d]
  DecoderLayer layers;  // stacked, with a leading axis [L]
  Array norm;         // [d]
  std::optional<Array> head;  // [d, V], or [V, d] if `out_in`; none if `tied`
};
STOW_TREE(Decoder, embed, layers, norm, head);

/// Returns abstract weights, which have no data: of `dtype`, on the device.
Decoder decoder_abstract(const DecoderConfig& config, DType dtype = DType::kF32);
/// Returns initial weights: normal of standard deviation 0.02 (times 1 / sqrt(2 L) for the matrices
/// that write to the residual stream), norms 1, biases 0.
/// Source: Radford et al. 2019, section 2.3.
Decoder decoder_init(const DecoderConfig& config, const Array& key);

/// Keys and values of all layers, at S positions of each row.
struct KvCache {
  Array k, v;  // [L, B, S, G, D], keys rotated
};
STOW_TREE(KvCache, k, v);
/// Returns an abstract cache of `batch` rows and `length` positions, in the dtype `config.compute`.
KvCache kv_cache_abstract(const DecoderConfig& config, int64_t batch, int64_t length);

/// The inputs of a forward pass other than weights and tokens.
struct ForwardOptions {
  PolicyPtr policy = nullptr;  ///< Each layer is checkpointed with it; null: nothing is saved.
  /// Positions that rotate queries and keys, i32 [B, T]. None: 0 to T - 1, or with a cache the
  /// places that the tokens take in it.
  std::optional<Array> positions = {};
  /// The keys that each token sees, i32 [B, T]: lo <= key < hi, and never a later key than its own.
  /// Keys are numbered like tokens, or with a cache by their places in it. None: all keys from 0
  /// on.
  std::optional<Array> lo = {}, hi = {};
  bool hidden_states = false;  ///< True to fill ForwardResult::hidden_states.
  /// Keys and values of earlier tokens. Keys and values of row b are written to places write_at[b]
  /// to write_at[b] + T - 1, which must exist; its queries see them and all places before.
  std::optional<KvCache> cache = {};
  std::optional<Array> write_at = {};  ///< i32 [B]; required with a cache.
  /// An adapter and its configuration, which must outlive the call. None: the decoder alone, with
  /// the same graph as if adapters did not exist.
  std::optional<Lora> lora = {};
  const LoraConfig* lora_config = nullptr;
  /// The key of the adapter's dropout, u32 [2], for training. None: no dropout.
  std::optional<Array> dropout_key = {};
  /// Adapters in slots, and the slot of each row. Not with `lora` or ffn_chunk. None: the same
  /// graph as if slots did not exist.
  std::optional<SlotRows> slots = {};
};
struct ForwardResult {
  Array hidden;  ///< [B, T, d], after the last norm.
  /// [L + 1, B, T, d]: the embeddings, the output of every layer but the last, and `hidden`.
  std::optional<Array> hidden_states;
  std::optional<KvCache> cache;  ///< The updated cache.
};

/// Runs all layers, for training, scoring and generating. tokens i32 [B, T]. Named values:
/// "attn_q", "attn_k", "attn_v", "attn_out", "attn_residual", "mlp_gate", "mlp_up". With an adapter
/// also "lora_z" and "lora_delta". Adapters compute in the dtype of their own arrays.
/// Errors:  TraceError for a cache without write_at or the reverse, hidden states with nested
///          blocks, an adapter that does not fit its configuration, or dropout with ffn_chunk.
ForwardResult forward_layers(const DecoderConfig& config, const Decoder& model, const Array& tokens,
                             const ForwardOptions& options = {});
/// Returns the hidden states after the last norm, without a cache. tokens i32 [B, T]; returns [B,
/// T, d].
Array decoder_hidden(const DecoderConfig& config, const Decoder& model, const Array& tokens,
                     const PolicyPtr& policy = nullptr);
/// Returns the logits [.., V] of hidden states [.., d], in their dtype or `out`. Reads from
/// `options` only the adapter, its configuration and the dropout key, or the slots. With slots,
/// hidden states are [B, .., d].
Array decoder_logits(const DecoderConfig& config, const Decoder& model, const Array& hidden,
                     std::optional<DType> out = {}, const ForwardOptions& options = {});
/// Returns the log-probabilities of `targets` i32 [..] given hidden states [.., d]: f32 [..]. The
/// logits of only `chunk` tokens exist at a time; the backward pass recomputes them. Reads from
/// `options` only the adapter, its configuration and the dropout key, or the slots. With slots,
/// hidden states are [B, .., d]. The product of the hidden states with A of the head's adapter is
/// computed for all tokens before they are cut into chunks.
Array decoder_log_probs(const DecoderConfig& config, const Decoder& model, const Array& hidden,
                        const Array& targets, int64_t chunk, const ForwardOptions& options = {});
/// Returns the sum of weights * cross-entropy in nats, an f32 scalar. targets i32 [..], hidden
/// states [.., d], weights f32 [..]. With `loss_chunk`, the logits of only that many tokens exist
/// at a time, with their gradients. Reads from `options` only the adapter, its configuration and
/// the dropout key.
Array decoder_weighted_loss(const DecoderConfig& config, const Decoder& model, const Array& hidden,
                            const Array& targets, const Array& weights,
                            const ForwardOptions& options = {});
/// Returns the mean next-token cross-entropy in nats, an f32 scalar. tokens i32 [B, T + 1]. With
/// `loss_chunk`, the logits of one chunk of tokens exist at a time, with their gradients. With
/// `vocab_block`, the logits of one block of the vocabulary exist at a time; the backward pass
/// recomputes them.
Array decoder_loss(const DecoderConfig& config, const Decoder& model, const Array& tokens,
                   const PolicyPtr& policy = nullptr);

}  // namespace stow::nn
