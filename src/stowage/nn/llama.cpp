#include "stowage/nn/llama.h"

#include <cmath>

#include "stowage/api/linalg.h"
#include "stowage/api/math.h"
#include "stowage/api/memory.h"
#include "stowage/api/nested_scan.h"
#include "stowage/api/nn.h"
#include "stowage/api/random.h"
#include "stowage/api/reduce.h"
#include "stowage/api/scan.h"
#include "stowage/api/shaping.h"
#include "stowage/core/sums.h"
#include "stowage/nn/loss.h"

namespace stow::nn {
namespace {

struct Rotary {
  Array cos;  // [T, 1, 1, D/2]
  Array sin;  // [T, 1, 2, D/2], negative in the first half
};
STOW_TREE(Rotary, cos, sin);

// Angles pos * base^(-2i/D). Source: Su et al. 2021, equation 34, in the rotate-half layout.
Rotary rotary_tables(const LlamaConfig& c, int64_t length) {
  const int64_t half = c.head_dim() / 2;
  const Array i = iota(Shape{half}, 0, DType::kF32);
  const Array rate = exp(i * (-2.0 * std::log(c.rope_base) / static_cast<double>(c.head_dim())));
  const Array angle = iota(Shape{length}, 0, DType::kF32).reshape({length, 1}) * rate.reshape({1, half});
  const Array sign = iota(Shape{2}, 0, DType::kF32).reshape({1, 1, 2, 1}) * 2.0 - 1.0;
  const Array a = angle.reshape({length, 1, 1, half});
  return {cos(a).astype(c.compute), (sin(a) * sign).astype(c.compute)};
}

// x [B, T, H, D]: halves (a, b) become (a cos - b sin, b cos + a sin).
Array rotate(const Array& x, const Rotary& r) {
  const int64_t d = x.dim(3);
  const Array halves = x.reshape({x.dim(0), x.dim(1), x.dim(2), 2, d / 2});
  const Array turned = halves * r.cos + flip(halves, 3) * r.sin;
  return turned.reshape({x.dim(0), x.dim(1), x.dim(2), d});
}

// A weight, wherever it lies, ready for use.
Array use(const Array& weight, DType compute) {
  return device_put(weight, MemoryKind::kDevice).astype(compute);
}

// block(h) for so many tokens after another, h [B, T, d]; nothing within is kept.
// The rest comes first, then the last chunk: the backward pass sums weights' gradients from the first
// token on, as a product over all tokens does. Zeros fill up a short rest, as in products over all.
template <typename Block>
Array by_tokens(const Block& block, const Array& h, int64_t chunk) {
  const int64_t d = h.dim(-1), n = h.size() / d, even = n / chunk * chunk;
  const Array rows = h.reshape({n, d});
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
  return concatenate(parts).reshape({h.dim(0), h.dim(1), d});
}

Array layer(const LlamaConfig& c, const Array& input, const LlamaLayer& weights,
            const Rotary& rotary) {
  const Array x = checkpoint_name(input, "layer_in");
  const LlamaLayer w = tree_map([&](const Array& a) { return use(a, c.compute); }, weights);
  const int64_t b = x.dim(0), t = x.dim(1), d = c.head_dim();
  Array mid;
  {
    Scope scope("attention");
    const Array h = checkpoint_name(rms_norm(x, w.norm1, c.norm_eps), "attn_in");
    const Array q = checkpoint_name(matmul(h, w.wq), "attn_q");
    const Array k = checkpoint_name(matmul(h, w.wk), "attn_k");
    const Array v = checkpoint_name(matmul(h, w.wv), "attn_v");
    AttentionOptions options;
    options.causal = true;
    const Array a = attention(rotate(q.reshape({b, t, c.heads, d}), rotary),
                              rotate(k.reshape({b, t, c.kv_heads, d}), rotary),
                              v.reshape({b, t, c.kv_heads, d}), options);
    const Array out = checkpoint_name(a.reshape({b, t, c.dim}), "attn_out");
    mid = checkpoint_name(x + matmul(out, w.wo), "attn_residual");
  }
  Scope scope("mlp");
  const Array h = checkpoint_name(rms_norm(mid, w.norm2, c.norm_eps), "mlp_in");
  const auto block = [&](const Array& in) {
    const Array gate = checkpoint_name(matmul(in, w.w1), "mlp_gate");
    const Array up = checkpoint_name(matmul(in, w.w3), "mlp_up");
    return matmul(silu(gate) * up, w.w2);
  };
  return mid + (c.ffn_chunk > 0 ? by_tokens(block, h, c.ffn_chunk) : block(h));
}

// Every weight from its shape, whether it exists or not.
template <typename Make>
Llama build(const LlamaConfig& c, Make make) {
  const int64_t d = c.dim, g = c.kv_dim(), f = c.ffn, l = c.layers;
  const double narrow = 0.02 / std::sqrt(2.0 * static_cast<double>(std::max<int64_t>(l, 1)));
  Llama m;
  m.embed = make(Shape{c.vocab, d}, 0.02);
  m.layers = {make(Shape{l, d, d}, 0.02), make(Shape{l, d, g}, 0.02), make(Shape{l, d, g}, 0.02),
              make(Shape{l, d, d}, narrow), make(Shape{l, d, f}, 0.02), make(Shape{l, d, f}, 0.02),
              make(Shape{l, f, d}, narrow), make(Shape{l, d}, 0.0), make(Shape{l, d}, 0.0)};
  m.norm = make(Shape{d}, 0.0);
  if (!c.tied) m.head = make(Shape{d, c.vocab}, 0.02);
  return m;
}

}  // namespace

Llama llama_abstract(const LlamaConfig& config) {
  return build(config, [](const Shape& shape, double) { return Array::abstract(shape); });
}

Llama llama_init(const LlamaConfig& config, const Array& key) {
  int64_t n = 0;
  return build(config, [&](const Shape& shape, double deviation) {
    if (deviation == 0) return ones(shape);
    return random::normal(random::fold_in(key, n++), shape) * deviation;
  });
}

Array llama_hidden(const LlamaConfig& config, const Llama& model, const Array& tokens,
                   const PolicyPtr& policy) {
  Array x;
  {
    Scope scope("embed");
    x = take(device_put(model.embed, MemoryKind::kDevice), tokens, 0, IndexMode::kClip)
            .astype(config.compute);  // [B, T, d]
  }
  if (config.layers > 0) {
    Rotary rotary;
    {
      Scope scope("rotary");
      rotary = rotary_tables(config, tokens.dim(1));
    }
    Scope scope("layers");
    const auto one = [&](const Array& h, const LlamaLayer& w) { return layer(config, h, w, rotary); };
    if (!config.nested_blocks.empty()) {
      x = nested_scan(one, x, model.layers, {.blocks = config.nested_blocks, .policy = policy});
    } else {
      x = scan(checkpoint(one, policy, {.prevent_cse = false}), x, model.layers);
    }
  }
  Scope scope("norm");
  return rms_norm(x, use(model.norm, config.compute), config.norm_eps);
}

namespace {

// Wherever it lies, [d, V] or, tied, [V, d]; and which axis is that of the words.
const Array& head_in_place(const Llama& model) { return model.head ? *model.head : model.embed; }
int words_axis(const Llama& model) { return model.head ? 1 : 0; }

Array head_of(const Llama& model) {  // [d, V]
  const Array head = device_put(head_in_place(model), MemoryKind::kDevice);
  return words_axis(model) == 1 ? head : swapaxes(head, 0, 1);
}

}  // namespace

Array llama_logits(const LlamaConfig& config, const Llama& model, const Array& hidden) {
  Scope scope("head");
  if (config.vocab_block > 0)
    return linear_in_blocks(hidden, head_in_place(model), config.vocab_block, words_axis(model));
  return matmul(hidden, head_of(model).astype(hidden.dtype()));
}

Array llama_loss(const LlamaConfig& config, const Llama& model, const Array& tokens,
                 const PolicyPtr& policy) {
  const int64_t t = tokens.dim(1) - 1;
  const Array hidden = llama_hidden(config, model, tokens.slice(1, 0, t), policy);
  if (config.loss_chunk > 0) {
    Scope scope("loss");
    return linear_cross_entropy(hidden, head_of(model), tokens.slice(1, 1, t + 1),
                                config.loss_chunk);
  }
  if (config.vocab_block > 0) {
    Scope scope("loss");
    return linear_cross_entropy_in_blocks(hidden, head_in_place(model), tokens.slice(1, 1, t + 1),
                                          config.vocab_block, words_axis(model));
  }
  const Array logits = llama_logits(config, model, hidden);
  Scope scope("loss");
  return mean(cross_entropy(logits, tokens.slice(1, 1, t + 1)));
}

}  // namespace stow::nn
