// Generation: continues prompts token by token with a planned KV cache.
// Not the choice of a token from logits; sample.h has that.
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
  /// Places of a row in the KV cache: the prompt, padded to whole chunks, and the new tokens.
  int64_t cache = 64;
  /// Tokens of the vocabulary whose rows of the head are on the device at a time; 0: all.
  int64_t vocab_block = 0;
};

/// One of the programs, and the memory in use while it runs.
struct GeneratePhase {
  std::string name;  ///< "prefill", "head", "decode"
  BytesByKind peak_bytes{};
};

/// The planned programs of a shape. They allocate no tensor before they run. If there is an
/// adapter, its arrays follow the weights in the arguments.
///   prefill: (weights, cache, last [B,d], tokens i32 [B,C], at i32, lengths i32 [B])
///              -> (cache, last); cache and last donated.
///            `last` is the hidden state of each row's last token so far
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
  /// Returns the peak bytes of loading the model and running all programs, weights and cache
  /// included.
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

/// A batch of prompts that is being continued, and its KV cache on the model's device.
class Decoding {
 public:
  /// Allocates the cache. Model and programs must outlive this object.
  Decoding(const Model& model, const GeneratePrograms& programs);
  /// Writes prompts into the cache, one for each row, none empty. There may be fewer prompts than
  /// rows. Returns the logits f32 [B, V] of the token after each prompt.
  std::vector<float> prefill(const std::vector<std::vector<int32_t>>& prompts);
  /// Appends a token to each row, at the row's place in the cache. Returns the next logits f32 [B,
  /// V].
  std::vector<float> decode(std::span<const int32_t> tokens, std::span<const int32_t> places);

 private:
  std::vector<DeviceBufferPtr> with_weights(std::vector<DeviceBufferPtr> more) const;
  DeviceBufferPtr put(std::span<const int32_t> values) const;

  const Model& model_;
  const GeneratePrograms& programs_;
  std::vector<DeviceBufferPtr> cache_;  // keys, values
};

struct GenerateOptions {
  int64_t max_tokens = 128;  ///< Most new tokens for each prompt.
  SamplingOptions sampling = {};
  uint64_t seed = 0;
  std::vector<std::string> stop = {};   ///< Texts that end a row as soon as one appears in it.
  int64_t rows = 0;                     ///< Prompts at a time; 0: up to 8, as many as fit.
  std::optional<int64_t> memory_bytes;  ///< Device memory allowed; none: the machine's.
  std::optional<DType> dtype, compute;  ///< See WeightOptions.
  std::optional<MemoryKind> weights;    ///< None: the device, or the disk if they do not fit.
  std::shared_ptr<const AdapterFiles> adapter = {};  ///< See WeightOptions.
  int threads = 1;
};

/// Returns the first programs that fit `memory_bytes`, from the fastest down: fewer prompts at a
/// time, smaller chunks of the prefill, then weights on the disk, the head in blocks of the
/// vocabulary. `lengths`: lengths of the prompts in tokens.
/// Errors: CapacityError that names the least memory with which some programs fit.
GeneratePrograms plan_generate(const HfConfig& config, const std::vector<int64_t>& lengths,
                               const GenerateOptions& options);

enum class FinishReason : uint8_t { kStop, kLength };

/// The continuation of one prompt.
struct Generated {
  std::vector<int32_t> ids;     ///< New tokens, including an end token.
  std::vector<float> logprobs;  ///< One for each id, from the logits before sampling options.
  std::string text;  ///< Text of `ids` without special tokens, cut before a stop text.
  FinishReason finish = FinishReason::kLength;
};

/// Called with new text of a prompt: the prompt's index, and whole characters.
using OnText = std::function<void(size_t prompt, const std::string& piece)>;

/// Continues prompts, each of at least one token, in their order. A row ends with one of the
/// model's end tokens, a stop text, or max_tokens. Except for the rounding of sums, a prompt's
/// tokens do not depend on the other prompts of its batch.
/// Errors: a prompt is empty, has ids outside of the vocabulary, or exceeds, with max_tokens, the
///         model's positions; a stop text without a tokenizer; logits that are not finite.
Result<std::vector<Generated>> generate(const Model& model, const GeneratePrograms& programs,
                                        const std::vector<std::vector<int32_t>>& prompts,
                                        const GenerateOptions& options, const OnText& on_text = {});
/// Plans with plan_generate() and generates.
Result<std::vector<Generated>> generate(const Model& model,
                                        const std::vector<std::vector<int32_t>>& prompts,
                                        const GenerateOptions& options = {},
                                        const OnText& on_text = {});
/// Checks prompts. Errors: those of generate() for prompts.
Result<void> check_prompts(const ModelFiles& files,
                           const std::vector<std::vector<int32_t>>& prompts,
                           const GenerateOptions& options);

}  // namespace stow::lm
