#include "stowage/nn/lora_slots.h"

#include <limits>

#include "stowage/api/checkpoint.h"
#include "stowage/api/linalg.h"
#include "stowage/api/math.h"
#include "stowage/api/memory.h"
#include "stowage/api/shaping.h"
#include "stowage/api/trace.h"
#include "stowage/nn/decoder.h"

namespace stow::nn {
namespace {

Array abstract(Shape shape) {
  return Array::abstract(std::move(shape), DType::kF32);
}

Array on_device(const Array& x) {
  return device_put(x, MemoryKind::kDevice);
}

// [B] as [B, 1, ..] beside an array of `rank` axes.
Array by_row(const Array& x, int rank) {
  Dims dims(static_cast<size_t>(rank), 1);
  dims[0] = x.dim(0);
  return x.reshape(dims);
}

// x [B, .., in] times each row's matrix [B, out, in], [B, .., out].
Array row_products(const Array& x, const Array& matrices) {
  return dot_general(x, matrices, {x.rank() - 1}, {2}, {0}, {0});
}

}  // namespace

LoraSlots lora_slots_abstract(const DecoderConfig& config, const LoraSlotsConfig& slots) {
  const int64_t n = slots.adapters, r = slots.max_rank, l = config.layers;
  if (n < 1 || r < 1)
    trace_error_here("[slots] expected at least one adapter of rank 1, got {} of rank {}", n, r);
  if (slots.unembed && config.tied)
    trace_error_here(
        "[slots] train_unembed with tied embeddings: an adapter of either would change both");
  if (n > std::numeric_limits<int32_t>::max() / std::max<int64_t>(config.vocab, 1))
    trace_error_here("[slots] {} adapters of a vocabulary of {} are beyond i32", n, config.vocab);
  LoraConfig one;  // for the extents of each matrix
  for (size_t m = 0; m < kNumLoraMatrices; ++m)
    if (m >= kLoraGate ? slots.mlp : slots.attention)
      one.layers[m] = {1, {}, std::vector<float>(static_cast<size_t>(l), 1.0f)};
  const Lora extents = lora_abstract(config, one);
  LoraSlots made;
  for (size_t m = 0; m < kNumLoraMatrices; ++m)
    if (const auto& factors = lora_matrix(extents.layers, m))
      lora_matrix(made.layers, m) = LowRank{abstract({l, n, r, factors->a.dim(2)}),
                                            abstract({l, n, factors->b.dim(1), r})};
  if (slots.unembed) {
    made.embed = LowRank{abstract({n, config.vocab, r}), abstract({n, config.dim, r})};
    made.head = LowRank{abstract({n, r, config.dim}), abstract({config.vocab, n, r})};
  }
  return made;
}

SlotScales slot_scales_abstract(const DecoderConfig& config, const LoraSlotsConfig& slots) {
  const int64_t n = slots.adapters;
  return {abstract({config.layers, n, static_cast<int64_t>(kNumLoraMatrices)}), abstract({n}),
          abstract({n})};
}

int slot_axis(std::string_view path) {
  return path.starts_with("layers/") || path == "head/b" ? 1 : 0;
}

Array rows_of_slots(const Array& x, const Array& slot_of_row) {
  // Beyond the last adapter: read as zeros, and dropped by the gradient. Negative numbers would
  // count from the end.
  const Array place =
      where(slot_of_row > kBaseSlot, slot_of_row - 1, static_cast<int32_t>(x.dim(0)));
  return take(x, place, 0, IndexMode::kFill, 0.0);
}

Array add_slots(const Array& y, const Array& x, const LowRank& factors, const Array& scales,
                const Array& slot_of_row) {
  const Array a = rows_of_slots(factors.a, slot_of_row), b = rows_of_slots(factors.b, slot_of_row);
  const Array scale = by_row(rows_of_slots(scales, slot_of_row), x.rank());
  const Array z = checkpoint_name(row_products(x.astype(a.dtype()), a), "lora_z") * scale;
  return (y + row_products(z, b)).astype(y.dtype());
}

Array add_embed_slots(const Array& x, const Array& tokens, const SlotRows& rows) {
  const Array a = on_device(rows.slots.embed->a);  // [N, V, r]
  const int64_t n = a.dim(0), vocab = a.dim(1), r = a.dim(2);
  // One gather of rows [r] of all adapters' words; those of the base lie beyond the last.
  const Array slot = rows.slot_of_row.reshape({rows.slot_of_row.dim(0), 1});
  const Array word = minimum(maximum(tokens, 0), static_cast<int32_t>(vocab - 1));
  const Array place = where(slot > kBaseSlot, (slot - 1) * static_cast<int32_t>(vocab) + word,
                            static_cast<int32_t>(n * vocab));
  const Array columns = take(a.reshape({n * vocab, r}), place, 0, IndexMode::kFill, 0.0);
  const Array scale = by_row(rows_of_slots(rows.scales.embed, rows.slot_of_row), 3);
  const Array b = rows_of_slots(on_device(rows.slots.embed->b), rows.slot_of_row);
  return (x + row_products(columns * scale, b)).astype(x.dtype());
}

HeadSlots head_slots(const Array& hidden, const SlotRows& rows) {
  const Array a = rows_of_slots(on_device(rows.slots.head->a), rows.slot_of_row);  // [B, r, d]
  const Array scale = by_row(rows_of_slots(rows.scales.head, rows.slot_of_row), hidden.rank());
  const Array& b = rows.slots.head->b;  // [V, N, r]
  const Dims lead(hidden.shape().begin(), hidden.shape().end() - 1);
  return {row_products(hidden.astype(a.dtype()), a) * scale,
          broadcast_to(by_row(rows.slot_of_row, hidden.rank() - 1), Shape(lead)),
          on_device(b).reshape({b.dim(0), b.dim(1) * b.dim(2)})};
}

Array spread_slots(const Array& z, const Array& slots, int64_t adapters) {
  const int64_t n = z.dim(0), r = z.dim(1);
  const Array own = slots.reshape({n, 1, 1}) - 1 == iota({1, adapters, 1}, 1, DType::kI32);
  return where(own, z.reshape({n, 1, r}), 0.0).reshape({n, adapters * r});
}

void check_slots(const DecoderConfig& config, const ForwardOptions& options) {
  if (!options.slots) return;
  const SlotRows& rows = *options.slots;
  if (options.lora)
    trace_error_here("[decoder] slots and an adapter do not go together; leave one of them out");
  if (config.ffn_chunk > 0)
    trace_error_here("[decoder] slots and ffn_chunk do not go together; set ffn_chunk to 0");
  if (rows.slot_of_row.rank() != 1 || rows.slot_of_row.dtype() != DType::kI32)
    trace_error_here("[decoder] expected slot_of_row i32[B], got {}",
                     to_string(rows.slot_of_row.type()));
  if (rows.slots.head && config.tied)
    trace_error_here(
        "[decoder] slots of the head with tied embeddings: an adapter of either would change both");
}

}  // namespace stow::nn
