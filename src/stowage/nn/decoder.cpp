#include "stowage/nn/decoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>

#include "stowage/api/linalg.h"
#include "stowage/api/names.h"
#include "stowage/api/math.h"
#include "stowage/api/memory.h"
#include "stowage/api/nested_scan.h"
#include "stowage/api/nn.h"
#include "stowage/api/random.h"
#include "stowage/api/reduce.h"
#include "stowage/api/scan.h"
#include "stowage/api/shaping.h"
#include "stowage/api/trace.h"
#include "stowage/api/vmap.h"
#include "stowage/core/sums.h"
#include "stowage/nn/loss.h"
#include "stowage/nn/lora_layers.h"
#include "stowage/nn/parts.h"

namespace stow::nn {
namespace {

// A weight, wherever it lies, ready for use.
Array use(const Array& weight, DType compute) {
  return device_put(weight, MemoryKind::kDevice).astype(compute);
}

// block(rows) for so many rows after another, of [n, d]; nothing within is kept.
// The rest comes first, then the last chunk: the backward pass sums weights' gradients from the
// first token on, as a product over all tokens does. Zeros fill up a short rest, as in products
// over all.
template <typename Block>
Array in_chunks(const Block& block, const Array& rows, int64_t chunk) {
  const int64_t d = rows.dim(1), n = rows.dim(0), even = n / chunk * chunk;
  const auto one = checkpoint(block, nullptr, {.prevent_cse = false});
  std::vector<Array> parts;
  if (const int64_t fill = rows_to_fill(n, chunk); fill > 0)
    parts.push_back(one(pad(rows.slice(0, even, n), {{0, fill}, {0, 0}})).slice(0, 0, n - even));
  else if (even < n)
    parts.push_back(one(rows.slice(0, even, n)));
  if (even > 0) {
    const Array chunks = rows.slice(0, 0, even).reshape({even / chunk, chunk, d});
    const auto step = [&](None, const Array& in) { return std::pair(None{}, one(in)); };
    const Array made = scan(step, None{}, chunks, {.reverse = true}).second;
    parts.insert(parts.begin(), made.reshape({even, d}));
  }
  return concatenate(parts);
}

// The weights of a feed-forward block.
struct FeedForward {
  Array w1, w3, w2;
  std::optional<Array> b1, b3, b2;
};
STOW_TREE(FeedForward, w1, w3, w2, b1, b3, b2);

// block(weights, h) in chunks, h [B, T, d], each of the `parts` shares of the rows by itself.
template <typename Block>
Array by_tokens(const Block& block, const FeedForward& weights, const Array& h, int64_t chunk,
                int64_t parts) {
  const int64_t d = h.dim(-1), n = h.size() / d;
  const auto all = [&](const FeedForward& w, const Array& rows) {
    return in_chunks([&](const Array& x) { return block(w, x); }, rows, chunk);
  };
  if (parts == 1) return all(weights, h.reshape({n, d})).reshape(h.shape().dims());
  // Each share has weights of its own, whose gradients are summed when the last chunk is done.
  return vmap(all)(repeat_for_parts(weights, parts), h.reshape({parts, n / parts, d}))
      .reshape(h.shape().dims());
}

// The residual stream, where the configuration says that it lies.
Array as_stream(const DecoderConfig& c, const Array& x, STOW_AT) {
  if (!c.stream) return x;
  const CallSiteScope site(at);
  return record1(OpKind::kReshard, ReshardParams{c.stream->mesh, c.stream->sharding}, {x});
}
// The input of a block with all tokens of its rows.
Array with_all_tokens(const DecoderConfig& c, const Array& h, STOW_AT) {
  if (!c.stream) return h;
  const CallSiteScope site(at);
  AxisSharding sharding = c.stream->sharding;
  sharding.axes[1].clear();
  return record1(OpKind::kReshard, ReshardParams{c.stream->mesh, sharding}, {h});
}

// x [.., in] times a weight, plus a bias where there is one. Reports name the place of the call.
Array linear(const DecoderConfig& c, const Operand& x, const Array& weight,
             const std::optional<Array>& bias) {
  const Array y = c.out_in ? dot_general(x, weight, {x.rank() - 1}, {1}) : matmul(x, weight);
  return bias ? y + *bias : y;
}

// The same with the adapter of the matrix, where it has one.
Array linear(const DecoderConfig& c, const Operand& x, const Array& weight,
             const std::optional<Array>& bias, const LayerAdapter& adapter, LoraMatrix matrix) {
  return adapter.add(linear(c, x, weight, bias), x.array(), matrix);
}

// The keys that queries see. Without `hi` those up to the query's own; without `lo` from the first.
struct Visible {
  std::optional<Array> lo, hi;  // i32 [B, T]
};

// Inputs of one layer, and results beside its output.
struct LayerInput {
  DecoderLayer weights;
  std::optional<KvCache> cache;  // [B, S, G, D]
  std::optional<Array> first;    // i32 [B, T]: the first key within the layer's window
  std::optional<LoraInput> lora = {};
  std::optional<SlotInput> slots = {};
};
STOW_TREE(LayerInput, weights, cache, first, lora, slots);
struct LayerOutput {
  std::optional<KvCache> cache;
  std::optional<Array> input;
};
STOW_TREE(LayerOutput, cache, input);

// All that layers read alike.
struct Shared {
  const DecoderConfig& config;
  RotaryTables rotary;
  Visible visible;
  std::optional<Array> write_at;
  const LoraConfig* lora = nullptr;
  std::optional<Array> slot_of_row = {};
};

// Rows of keys or values [B, T, G, D] written into the cache [B, S, G, D] at their places.
Array write(const Array& cache, const Array& rows, const Array& at) {
  const Array of = rows.astype(cache.dtype()), zero = 0;
  if (cache.dim(0) == 1)
    return dynamic_update_slice(cache, of, {zero, at.reshape({}), zero, zero});
  return vmap([&](const Array& row, const Array& update, const Array& place) {
    return dynamic_update_slice(row, update, {place, zero, zero});
  })(cache, of, at);
}

Array attend(const Shared& s, const Array& q, Array k, Array v, const LayerInput& own,
             LayerOutput& made) {
  AttentionOptions options;
  if (own.cache) {
    made.cache = KvCache{write(own.cache->k, k, *s.write_at), write(own.cache->v, v, *s.write_at)};
    k = made.cache->k.astype(q.dtype());
    v = made.cache->v.astype(q.dtype());
  }
  options.lo = s.visible.lo;
  options.hi = s.visible.hi;
  if (own.first) options.lo = options.lo ? maximum(*options.lo, *own.first) : *own.first;
  options.causal = !options.hi;
  return attention(q, k, v, options);
}

Array layer(const Shared& s, const Array& input, const LayerInput& own, LayerOutput& made) {
  const DecoderConfig& c = s.config;
  const Array x = checkpoint_name(as_stream(c, input), "layer_in");
  const DecoderLayer w = tree_map([&](const Array& a) { return use(a, c.compute); }, own.weights);
  const LayerAdapter adapter =
      own.slots ? LayerAdapter(own.slots, *s.slot_of_row) : LayerAdapter(own.lora, s.lora);
  const int64_t b = x.dim(0), t = x.dim(1), d = c.head_dim();
  Array mid;
  {
    Scope scope("attention");
    const Array h =
        checkpoint_name(with_all_tokens(c, rms_norm(x, w.norm1, c.norm_eps)), "attn_in");
    Array q = checkpoint_name(linear(c, h, w.wq, w.bq, adapter, kLoraQ), "attn_q")
                  .reshape({b, t, c.heads, d});
    Array k = checkpoint_name(linear(c, h, w.wk, w.bk, adapter, kLoraK), "attn_k")
                  .reshape({b, t, c.kv_heads, d});
    const Array v = checkpoint_name(linear(c, h, w.wv, w.bv, adapter, kLoraV), "attn_v");
    if (c.qk_norm) {
      q = rms_norm(q, w.q_norm, c.norm_eps);
      k = rms_norm(k, w.k_norm, c.norm_eps);
    }
    const Array a = attend(s, rotate(q, s.rotary), rotate(k, s.rotary),
                           v.reshape({b, t, c.kv_heads, d}), own, made);
    const Array out = checkpoint_name(a.reshape({b, t, c.q_dim()}), "attn_out");
    mid = checkpoint_name(as_stream(c, x + linear(c, out, w.wo, w.bo, adapter, kLoraO)),
                          "attn_residual");
  }
  Scope scope("mlp");
  const Array h = checkpoint_name(with_all_tokens(c, rms_norm(mid, w.norm2, c.norm_eps)), "mlp_in");
  const auto block = [&](const FeedForward& own, const Array& in) {
    const Array gate =
        checkpoint_name(linear(c, in, own.w1, own.b1, adapter, kLoraGate), "mlp_gate");
    const Array up = checkpoint_name(linear(c, in, own.w3, own.b3, adapter, kLoraUp), "mlp_up");
    return linear(c, silu(gate) * up, own.w2, own.b2, adapter, kLoraDown);
  };
  const FeedForward weights{w.w1, w.w3, w.w2, w.b1, w.b3, w.b2};
  return as_stream(c, mid + (c.ffn_chunk > 0
                                 ? by_tokens(block, weights, h, c.ffn_chunk, c.batch_parts)
                                 : block(weights, h)));
}

// Every weight from its shape, whether it exists or not. `make` gets the deviation of a matrix, 0
// of a norm and a negative one of a bias.
template <typename Make>
Decoder build(const DecoderConfig& c, Make make) {
  const int64_t d = c.dim, q = c.q_dim(), g = c.kv_dim(), f = c.ffn, l = c.layers;
  const double wide = 0.02;
  const double narrow = wide / std::sqrt(2.0 * static_cast<double>(std::max<int64_t>(l, 1)));
  const auto matrix = [&](int64_t in, int64_t out, double deviation) {
    return make(c.out_in ? Shape{l, out, in} : Shape{l, in, out}, deviation);
  };
  const auto vector = [&](bool has, int64_t n, double deviation) -> std::optional<Array> {
    if (!has) return std::nullopt;
    return make(Shape{l, n}, deviation);
  };
  Decoder m;
  m.embed = make(Shape{c.vocab, d}, wide);
  DecoderLayer& w = m.layers;
  w.wq = matrix(d, q, wide);
  w.wk = matrix(d, g, wide);
  w.wv = matrix(d, g, wide);
  w.wo = matrix(q, d, narrow);
  w.w1 = matrix(d, f, wide);
  w.w3 = matrix(d, f, wide);
  w.w2 = matrix(f, d, narrow);
  w.norm1 = make(Shape{l, d}, 0.0);
  w.norm2 = make(Shape{l, d}, 0.0);
  w.bq = vector(c.qkv_bias, q, -1);
  w.bk = vector(c.qkv_bias, g, -1);
  w.bv = vector(c.qkv_bias, g, -1);
  w.bo = vector(c.out_bias, d, -1);
  w.b1 = vector(c.mlp_bias, f, -1);
  w.b3 = vector(c.mlp_bias, f, -1);
  w.b2 = vector(c.mlp_bias, d, -1);
  w.q_norm = vector(c.qk_norm, c.head_dim(), 0);
  w.k_norm = vector(c.qk_norm, c.head_dim(), 0);
  m.norm = make(Shape{d}, 0.0);
  if (!c.tied) m.head = make(c.out_in ? Shape{c.vocab, d} : Shape{d, c.vocab}, wide);
  return m;
}

}  // namespace

Decoder decoder_abstract(const DecoderConfig& config, DType dtype) {
  return build(config, [&](const Shape& shape, double) { return Array::abstract(shape, dtype); });
}

Decoder decoder_init(const DecoderConfig& config, const Array& key) {
  int64_t n = 0;
  return build(config, [&](const Shape& shape, double deviation) {
    if (deviation == 0) return ones(shape);
    if (deviation < 0) return zeros(shape);
    return random::normal(random::fold_in(key, n++), shape) * deviation;
  });
}

KvCache kv_cache_abstract(const DecoderConfig& config, int64_t batch, int64_t length) {
  const Shape shape{config.layers, batch, length, config.kv_heads, config.head_dim()};
  return {Array::abstract(shape, config.compute), Array::abstract(shape, config.compute)};
}

namespace {

// Places [B, T] that the tokens' keys take: in the cache, or in their rows.
Array places_of(const Array& tokens, const std::optional<Array>& write_at) {
  const int64_t b = tokens.dim(0), t = tokens.dim(1);
  const Array here = iota(Shape{t}, 0, DType::kI32).reshape({1, t});
  return write_at ? write_at->reshape({b, 1}) + here : broadcast_to(here, {b, t});
}

// The first keys within each layer's window, [L, B, T]; none where no window cuts a row of
// `n_keys`.
std::optional<Array> window_starts(const DecoderConfig& c, const Array& places, int64_t n_keys) {
  constexpr int32_t kNone = std::numeric_limits<int32_t>::max();
  std::vector<int32_t> windows(static_cast<size_t>(c.layers), kNone);
  bool cuts = false;
  for (size_t i = 0; i < windows.size() && i < c.windows.size(); ++i) {
    if (c.windows[i] <= 0 || c.windows[i] >= n_keys) continue;
    windows[i] = static_cast<int32_t>(c.windows[i]);
    cuts = true;
  }
  if (!cuts) return std::nullopt;
  std::vector<std::byte> bytes(windows.size() * sizeof(int32_t));
  std::memcpy(bytes.data(), windows.data(), bytes.size());
  const Array sizes = make_literal(ArrayType{DType::kI32, Shape{c.layers}}, std::move(bytes));
  const Array starts =
      places.reshape({1, places.dim(0), places.dim(1)}) - (sizes.reshape({c.layers, 1, 1}) - 1);
  return maximum(starts, 0);
}

}  // namespace

ForwardResult forward_layers(const DecoderConfig& config, const Decoder& base, const Array& tokens,
                             const ForwardOptions& options) {
  check_lora(config, options);
  const Decoder model = with_saved_weights(config, base, options.lora);
  if (options.cache.has_value() != options.write_at.has_value())
    trace_error_here("[decoder] expected both of cache and write_at, or neither, got one");
  const bool gives_more = options.cache || options.hidden_states;
  if (gives_more && !config.nested_blocks.empty())
    trace_error_here(
        "[decoder] nested_blocks support neither hidden_states nor a cache; leave one of them out");
  ForwardResult result;
  Array x;
  {
    Scope scope("embed");
    x = take(device_put(model.embed, MemoryKind::kDevice), tokens, 0, IndexMode::kClip)
            .astype(config.compute);  // [B, T, d]
    if (options.lora && options.lora->embed) x = add_embed_adapter(x, tokens, options);
    if (options.slots && options.slots->slots.embed) x = add_embed_slots(x, tokens, *options.slots);
  }
  std::optional<Array> states;
  if (config.layers > 0) {
    Shared shared{config, {}, {options.lo, options.hi}, options.write_at, options.lora_config};
    std::optional<SlotInput> slots;
    if (options.slots) {
      shared.slot_of_row = options.slots->slot_of_row;
      slots = SlotInput{options.slots->slots.layers, options.slots->scales.layers};
    }
    std::optional<Array> starts;
    {
      Scope scope("rotary");
      const Array places = places_of(tokens, options.write_at);
      const int64_t n_keys = options.cache ? options.cache->k.dim(2) : tokens.dim(1);
      starts = window_starts(config, places, n_keys);
      const bool is_causal = !options.lo && !options.hi && !options.cache && !starts;
      if (!is_causal)  // A token never sees what comes after it.
        shared.visible.hi = options.hi ? minimum(*options.hi, places + 1) : places + 1;
      const auto positions = options.positions || !options.cache ? options.positions : places;
      shared.rotary =
          positions
              ? rotary_tables(config.rotary, config.head_dim(), *positions, config.compute)
              : rotary_tables(config.rotary, config.head_dim(), tokens.dim(1), config.compute);
    }
    const std::optional<LoraInput> adapters = lora_input(config, options);
    Scope scope("layers");
    if (!gives_more) {
      const auto one = [&](const Array& h, const LayerInput& own) {
        LayerOutput none;
        return layer(shared, h, own, none);
      };
      const LayerInput all{model.layers, {}, starts, adapters, slots};
      if (!config.nested_blocks.empty()) {
        x = nested_scan(one, x, all, {.blocks = config.nested_blocks, .policy = options.policy});
      } else {
        x = scan(checkpoint(one, options.policy, {.prevent_cse = false}), x, all);
      }
    } else {
      const auto one = [&](const Array& h, const LayerInput& own) {
        LayerOutput made;
        if (options.hidden_states) made.input = h;
        const Array next = layer(shared, h, own, made);
        return std::pair(next, made);
      };
      LayerOutput stacked;
      std::tie(x, stacked) = scan(checkpoint(one, options.policy, {.prevent_cse = false}), x,
                                  LayerInput{model.layers, options.cache, starts, adapters, slots});
      result.cache = stacked.cache;
      states = stacked.input;
    }
  } else {
    result.cache = options.cache;
  }
  Scope scope("norm");
  result.hidden =
      with_all_tokens(config, rms_norm(x, use(model.norm, config.compute), config.norm_eps));
  if (options.hidden_states) {
    const Dims& d = result.hidden.shape().dims();
    const Array last = result.hidden.reshape({1, d[0], d[1], d[2]});
    result.hidden_states = states ? concatenate({*states, last}) : last;
  }
  return result;
}

Array decoder_hidden(const DecoderConfig& config, const Decoder& model, const Array& tokens,
                     const PolicyPtr& policy) {
  return forward_layers(config, model, tokens, {.policy = policy}).hidden;
}

namespace {

// Wherever it lies, [d, V] or [V, d]; and the axis of the words.
const Array& head_in_place(const Decoder& model) { return model.head ? *model.head : model.embed; }
int words_axis(const DecoderConfig& config, const Decoder& model) {
  return model.head && !config.out_in ? 1 : 0;
}

Array head_of(const DecoderConfig& config, const Decoder& model) {  // [d, V]
  const Array head = device_put(head_in_place(model), MemoryKind::kDevice);
  return words_axis(config, model) == 1 ? head : swapaxes(head, 0, 1);
}

Array plain_logits(const DecoderConfig& config, const Decoder& model, const Array& hidden,
                   std::optional<DType> out) {
  if (config.vocab_block > 0)
    return linear_in_blocks(hidden, head_in_place(model), config.vocab_block,
                            words_axis(config, model), out);
  return matmul(hidden, head_of(config, model).astype(hidden.dtype()), out);
}

}  // namespace

Array decoder_logits(const DecoderConfig& config, const Decoder& base, const Array& hidden,
                     std::optional<DType> out, const ForwardOptions& options) {
  check_lora(config, options);
  const Decoder model = with_saved_weights(config, base, options.lora);
  Scope scope("head");
  const Array logits = plain_logits(config, model, hidden, out);
  if (options.slots && options.slots->slots.head) {
    const HeadSlots own = head_slots(hidden, *options.slots);
    const int64_t r = own.z.dim(-1), n = own.slot.size();
    const Array z = spread_slots(own.z.reshape({n, r}), own.slot.reshape({n}), own.b.dim(1) / r);
    const Array delta = dot_general(z, own.b, {1}, {1}).reshape(logits.shape().dims());
    return (logits + delta).astype(logits.dtype());
  }
  if (!options.lora || !options.lora->head) return logits;
  return add_low_rank(logits, hidden, head_factors(options), head_options(options));
}

Array decoder_log_probs(const DecoderConfig& config, const Decoder& base, const Array& hidden,
                        const Array& targets, int64_t chunk, const ForwardOptions& options) {
  check_lora(config, options);
  const Decoder model = with_saved_weights(config, base, options.lora);
  Scope scope("log_probs");
  if (options.lora && options.lora->head) {
    const LowRank head = head_factors(options);
    const Array z = low_rank_input(hidden, head.a, head_options(options));
    return linear_log_probs(hidden, head_of(config, model), targets, chunk, {{z, head.b}},
                            config.batch_parts);
  }
  if (options.slots && options.slots->slots.head) {
    const HeadSlots own = head_slots(hidden, *options.slots);
    return linear_log_probs(hidden, head_of(config, model), targets, chunk,
                            {{own.z, own.b, own.slot}}, config.batch_parts);
  }
  return linear_log_probs(hidden, head_of(config, model), targets, chunk, {}, config.batch_parts);
}

Array decoder_weighted_loss(const DecoderConfig& config, const Decoder& base, const Array& hidden,
                            const Array& targets, const Array& weights,
                            const ForwardOptions& options) {
  const int64_t chunk = config.loss_chunk;
  if (chunk > 0 && !(options.lora && options.lora->head)) {
    check_lora(config, options);
    Scope scope("loss");
    return weighted_linear_cross_entropy(
        hidden, head_of(config, with_saved_weights(config, base, options.lora)), targets, weights,
        chunk, config.batch_parts);
  }
  if (chunk > 0)
    return sum(-decoder_log_probs(config, base, hidden, targets, chunk, options) * weights);
  Array logits;
  if (options.lora && options.lora->head) {
    logits = decoder_logits(config, base, hidden, DType::kF32, options);
  } else {
    Scope scope("head");
    const Array head = head_of(config, with_saved_weights(config, base, options.lora));
    logits = wide_logits(hidden, head.astype(hidden.dtype()));
  }
  Scope scope("loss");
  return sum(cross_entropy(logits, targets) * weights);
}

Array decoder_loss(const DecoderConfig& config, const Decoder& model, const Array& tokens,
                   const PolicyPtr& policy) {
  const int64_t t = tokens.dim(1) - 1;
  const Array hidden = decoder_hidden(config, model, tokens.slice(1, 0, t), policy);
  if (config.loss_chunk > 0) {
    Scope scope("loss");
    return linear_cross_entropy(hidden, head_of(config, model), tokens.slice(1, 1, t + 1),
                                config.loss_chunk, config.batch_parts);
  }
  if (config.vocab_block > 0) {
    Scope scope("loss");
    return linear_cross_entropy_in_blocks(hidden, head_in_place(model), tokens.slice(1, 1, t + 1),
                                          config.vocab_block, words_axis(config, model));
  }
  const Array logits = decoder_logits(config, model, hidden);
  Scope scope("loss");
  return mean(cross_entropy(logits, tokens.slice(1, 1, t + 1)));
}

}  // namespace stow::nn
