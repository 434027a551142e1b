#include "stowage/nn/lora.h"

#include <algorithm>
#include <cmath>

#include "stowage/api/checkpoint.h"
#include "stowage/api/linalg.h"
#include "stowage/api/math.h"
#include "stowage/api/names.h"
#include "stowage/api/random.h"
#include "stowage/api/reduce.h"
#include "stowage/api/shaping.h"
#include "stowage/api/trace.h"
#include "stowage/nn/decoder.h"

namespace stow::nn {
namespace {

// Extents of a matrix of a layer.
std::pair<int64_t, int64_t> in_out(const DecoderConfig& c, size_t matrix) {
  switch (static_cast<LoraMatrix>(matrix)) {
    case kLoraQ:
      return {c.dim, c.q_dim()};
    case kLoraK:
    case kLoraV:
      return {c.dim, c.kv_dim()};
    case kLoraO:
      return {c.q_dim(), c.dim};
    case kLoraGate:
    case kLoraUp:
      return {c.dim, c.ffn};
    case kLoraDown:
      return {c.ffn, c.dim};
  }
  trace_error_here("[lora] expected the number of a matrix of the decoder, got {}", matrix);
}

void check(const LoraTarget& target, std::string_view name, int64_t n) {
  const auto fits = [&](size_t size) { return static_cast<int64_t>(size) == n; };
  if (!fits(target.scales.size()) || (!target.ranks.empty() && !fits(target.ranks.size())))
    trace_error_here("[lora] {}: expected {} scales and as many ranks or none, got {} and {}", name,
                     n, target.scales.size(), target.ranks.size());
  for (const int64_t rank : target.ranks)
    if (rank < 0 || rank > target.rank)
      trace_error_here("[lora] {}: expected ranks from 0 to {}, got {}", name, target.rank, rank);
}

// Every array from its shape. `make` gets the target, shape, the axis of the rank, and what it is.
enum class Factor : uint8_t { kA, kB, kEmbedA, kEmbedB };
template <typename Make, typename Saved>
Lora build(const DecoderConfig& c, const LoraConfig& lora, Make make, Saved saved) {
  Lora made;
  for (size_t m = 0; m < kNumLoraMatrices; ++m) {
    const LoraTarget& target = lora.layers[m];
    if (target.rank == 0) continue;
    check(target, lora_matrix_name(m), c.layers);
    const auto [in, out] = in_out(c, m);
    Array a = make(target, Shape{c.layers, target.rank, in}, 1, Factor::kA);
    lora_matrix(made.layers, m) =
        LowRank{a, make(target, Shape{c.layers, out, target.rank}, 2, Factor::kB)};
  }
  if (const LoraTarget& target = lora.embed; target.rank > 0) {
    check(target, "embed", 1);
    Array a = make(target, Shape{target.rank, c.vocab}, 0, Factor::kEmbedA);
    made.embed = LowRank{a, make(target, Shape{c.dim, target.rank}, 1, Factor::kEmbedB)};
  }
  if (const LoraTarget& target = lora.head; target.rank > 0) {
    check(target, "head", 1);
    Array a = make(target, Shape{target.rank, c.dim}, 0, Factor::kA);
    made.head = LowRank{a, make(target, Shape{c.vocab, target.rank}, 1, Factor::kB)};
  }
  if (lora.saved_embed) made.saved_embed = saved(Shape{c.vocab, c.dim});
  if (lora.saved_head)
    made.saved_head = saved(c.out_in ? Shape{c.vocab, c.dim} : Shape{c.dim, c.vocab});
  if (lora.saved_norm) made.saved_norm = saved(Shape{c.dim});
  return made;
}

// Zeros beyond each layer's rank.
Array cut(const Array& x, const LoraTarget& target, int axis) {
  if (target.ranks.empty()) return x;
  if (x.rank() == 2)  // of embedding or head
    return where(iota(x.shape(), axis, DType::kI32) < static_cast<int32_t>(target.ranks[0]), x,
                 0.0);
  std::vector<Array> layers;
  for (const int64_t rank : target.ranks)
    layers.push_back(full({1, 1, 1}, static_cast<double>(rank), DType::kI32));
  if (layers.empty()) return x;
  return where(iota(x.shape(), axis, DType::kI32) < concatenate(layers), x, 0.0);
}

}  // namespace

std::string_view lora_matrix_name(size_t matrix) {
  constexpr std::array<std::string_view, kNumLoraMatrices> kNames = {"wq", "wk", "wv", "wo",
                                                                     "w1", "w3", "w2"};
  return kNames.at(matrix);
}

std::optional<LowRank>& lora_matrix(LoraLayer& layers, size_t matrix) {
  const std::array<std::optional<LowRank>*, kNumLoraMatrices> fields = {
      &layers.wq, &layers.wk, &layers.wv, &layers.wo, &layers.w1, &layers.w3, &layers.w2};
  return *fields.at(matrix);
}

const std::optional<LowRank>& lora_matrix(const LoraLayer& layers, size_t matrix) {
  return lora_matrix(const_cast<LoraLayer&>(layers), matrix);
}

LoraConfig lora_config(const DecoderConfig& config, const std::vector<LoraMatrix>& matrices,
                       int64_t rank, double scale) {
  LoraConfig lora;
  for (const LoraMatrix matrix : matrices)
    lora.layers[matrix] = {
        rank,
        {},
        std::vector<float>(static_cast<size_t>(config.layers), static_cast<float>(scale))};
  return lora;
}

Lora lora_abstract(const DecoderConfig& config, const LoraConfig& lora) {
  return build(
      config, lora,
      [](const LoraTarget&, const Shape& shape, int, Factor) {
        return Array::abstract(shape, DType::kF32);
      },
      [](const Shape& shape) { return Array::abstract(shape, DType::kF32); });
}

Lora lora_init(const DecoderConfig& config, const LoraConfig& lora, const Array& key) {
  int64_t n = 0;
  return build(
      config, lora,
      [&](const LoraTarget& target, const Shape& shape, int axis, Factor factor) {
        const Array own = random::fold_in(key, n++);
        if (factor == Factor::kB || factor == Factor::kEmbedA) return zeros(shape);
        if (factor == Factor::kEmbedB) return cut(random::normal(own, shape), target, axis);
        const double bound = 1 / std::sqrt(static_cast<double>(shape[shape.rank() - 1]));
        return cut(random::uniform(own, shape, DType::kF32, -bound, bound), target, axis);
      },
      [](const Shape&) -> Array {
        trace_error_here("[lora] saved weights begin as copies of the decoder's, not at random");
      });
}

Array low_rank_input(const Array& x, const Array& a, const LowRankOptions& options) {
  Array h = x.astype(a.dtype());
  if (options.dropout > 0 && options.key) {
    const double kept = 1 - options.dropout;
    h = where(random::bernoulli(*options.key, kept, h.shape()), h / kept, 0.0);
  }
  return checkpoint_name(dot_general(h, a, {h.rank() - 1}, {1}), "lora_z") *
         options.scale.astype(a.dtype());
}

Array add_low_rank(const Array& y, const Array& x, const LowRank& factors,
                   const LowRankOptions& options) {
  const Array z = low_rank_input(x, factors.a, options);
  const Array delta = checkpoint_name(dot_general(z, factors.b, {z.rank() - 1}, {1}), "lora_delta");
  return (y + delta).astype(y.dtype());
}

}  // namespace stow::nn
