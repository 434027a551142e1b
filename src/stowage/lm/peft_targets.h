// PEFT's rules for the modules that an adapter targets, and their ranks and scales.
// Not the adapter's tensors; adapter.h has them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/io/hf_config.h"
#include "stowage/io/peft_files.h"
#include "stowage/nn/lora.h"

namespace stow::lm {

/// A module of a model that an adapter targets.
struct PeftTarget {
  enum class Kind : uint8_t { kMatrix, kEmbed, kHead };
  std::string name;  ///< "model.layers.0.self_attn.q_proj"
  Kind kind = Kind::kMatrix;
  size_t matrix = 0;        ///< An nn::LoraMatrix; only for kMatrix.
  int64_t layer = 0;        ///< Index of the layer; only for kMatrix.
  int64_t in = 0, out = 0;  ///< Extents [out, in] of the matrix; for the embedding V and d.
  int64_t rank = 0;
  double scale = 0;
};

/// Returns the module name of an nn::LoraMatrix within its layer: "self_attn.q_proj".
std::string_view module_of_matrix(size_t matrix);
/// Returns all modules that can be targeted, layer by layer, then the embedding and the head. Ranks
/// and scales are 0.
std::vector<PeftTarget> all_targets(const HfConfig& config);

/// The modules of a model that an adapter targets.
struct PeftPlan {
  std::vector<PeftTarget> targets;  ///< In the order of all_targets().
  nn::LoraConfig lora;
};
/// Resolves a PEFT configuration against a model.
/// Errors: "KEY: reason": invalid patterns, or patterns without a match; modules that cannot have
///         an adapter; modules_to_save other than the embedding, the head and the last norm; layers
///         that the model does not have.
Result<PeftPlan> plan_targets(const PeftConfig& peft, const HfConfig& config);

}  // namespace stow::lm
