// Generation: prompts continued token by token with a planned KV cache.
// Not the choice of a token from logits; sample.h has it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "stowage/lm/model.h"
#include "stowage/lm/sample.h"
#include "stowage/session/compile.h"

namespace stow::lm {

/// The shapes of the programs that generate.
struct GenerateShape {
  int64_t rows = 1;    ///< Prompts at a time.
  int64_t chunk = 16;  ///< Tokens of each prompt that one call of the prefill takes.
  int64_t cache = 64;  ///< Places of the KV cache a row: prompt, filled up to whole chunks, and new.
  /// Words of the vocabulary whose part of the head is on the device at a time; 0: all.
  int64_t vocab_block = 0;
};

/// One of the programs, and the memory in use while it runs.
struct GeneratePhase {
  std::string name;  ///< "prefill", "head", "decode"
  BytesByKind peak_bytes{};
};

/// The programs of a shape, planned. Nothing of a tensor exists before they run. Behind the weights come
/// the arrays of the adapter, where there is one.
///   prefill: (weights, cache, last [B,d], tokens i32 [B,C], at i32, lengths i32 [B]) -> (cache, last)
///            cache and last donated; `last` is the hidden state of each row's last token so far
///   head:    (weights, last) -> logits f32 [B,V]
///   decode:  (weights, cache, tokens i32 [B,1], at i32 [B]) -> (cache, logits); cache donated
class GeneratePrograms {
 public:
  GeneratePrograms(const HfConfig& config, const WeightOptions& weights, const GenerateShape& shape,
                   const Device::Capacities& capacities, int threads);

  const GenerateShape& shape() const { return shape_; }
  const WeightOptions& weights() const { return weights_; }
  const std::vector<GeneratePhase>& phases() const { return phases_; }
  int64_t cache_bytes() const { return cache_bytes_; }  ///< Keys and values of all layers and rows.
  /// The peak of loading the model and running all programs, weights and cache included.
  BytesByKind peak_bytes() const;
  const ExecutablePtr& prefill() const { return prefill_; }
  const ExecutablePtr& head() const { return head_; }
  const ExecutablePtr& decode() const { return decode_; }

 private:
  WeightOptions weights_;
  GenerateShape shape_;
  int64_t cache_bytes_ = 0;
  ExecutablePtr prefill_, head_, decode_;
  std::vector<GeneratePhase> phases_;
};

/// A batch of prompts under way: their cache and their last hidden states, on the model's device.
class Decoding {
 public:
  /// Allocates the cache. Model and programs must live as long.
  Decoding(const Model& model, const GeneratePrograms& programs);
  /// Takes prompts, one a row, none empty, into the cache; rows that are missing have none. Returns
  /// logits f32 [B, V] of what follows each.
  std::vector<float> prefill(const std::vector<std::vector<int32_t>>& prompts);
  /// Appends a token to each row, at its place in the cache. Returns logits f32 [B, V].
  std::vector<float> decode(std::span<const int32_t> tokens, std::span<const int32_t> places);

 private:
  std::vector<DeviceBufferPtr> with_weights(std::vector<DeviceBufferPtr> more) const;
  DeviceBufferPtr put(std::span<const int32_t> values) const;

  const Model& model_;
  const GeneratePrograms& programs_;
  std::vector<DeviceBufferPtr> cache_;  // keys, values
};

struct GenerateOptions {
  int64_t max_tokens = 128;  ///< New tokens a prompt, at most.
  SamplingOptions sampling = {};
  uint64_t seed = 0;
  std::vector<std::string> stop = {};   ///< A text that ends a row as soon as it appears.
  int64_t rows = 0;                     ///< Prompts at a time; 0: up to 8, or what fits.
  std::optional<int64_t> memory_bytes;  ///< Device memory allowed; none: what the machine has.
  std::optional<DType> dtype, compute;  ///< See WeightOptions.
  std::optional<MemoryKind> weights;    ///< None: the device, or where they do not fit the disk.
  std::shared_ptr<const AdapterFiles> adapter = {};  ///< See WeightOptions.
  int threads = 1;
};

/// The first programs that fit `memory_bytes`, from the fastest down: fewer prompts at a time, smaller
/// chunks of the prefill, then weights on the disk, the head in blocks of words. `lengths` are those of the prompts in tokens.
/// Errors: CapacityError that names the least memory with which some fit.
GeneratePrograms plan_generate(const HfConfig& config, const std::vector<int64_t>& lengths,
                               const GenerateOptions& options);

enum class FinishReason : uint8_t { kStop, kLength };

/// The continuation of one prompt.
struct Generated {
  std::vector<int32_t> ids;     ///< The token that ends a text is there.
  std::vector<float> logprobs;  ///< One an id, under the model's own distribution.
  std::string text;  ///< Text of ids, without special tokens and what follows a stop text.
  FinishReason finish = FinishReason::kLength;
};

/// Hears of text as it becomes certain: the prompt's number and whole characters.
using OnText = std::function<void(size_t prompt, const std::string& piece)>;

/// Continues prompts, each of at least one token, in their order. A row ends with one of the model's
/// end tokens, a stop text, or max_tokens. A prompt's tokens do not depend on those beside it but for
/// the rounding of sums.
/// Errors: a prompt that is empty, has ids that the model has not, or is with max_tokens longer than
///         the model's positions; a stop text without a tokenizer; logits that are not finite.
Result<std::vector<Generated>> generate(const Model& model, const GeneratePrograms& programs,
                                        const std::vector<std::vector<int32_t>>& prompts,
                                        const GenerateOptions& options, const OnText& on_text = {});
/// Plans and generates.
Result<std::vector<Generated>> generate(const Model& model,
                                        const std::vector<std::vector<int32_t>>& prompts,
                                        const GenerateOptions& options = {},
                                        const OnText& on_text = {});
/// Checks prompts as generate() does. Errors: those of generate() for prompts.
Result<void> check_prompts(const ModelFiles& files,
                           const std::vector<std::vector<int32_t>>& prompts,
                           const GenerateOptions& options);

}  // namespace stow::lm
