// PEFT's rules of which modules of a model an adapter means, and with what ranks and scales.
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
  size_t matrix = 0;        ///< nn::LoraMatrix, of a matrix of a layer.
  int64_t layer = 0;        ///< Layer of a matrix of a layer.
  int64_t in = 0, out = 0;  ///< Extents [out, in] of its matrix; of the embedding V and d.
  int64_t rank = 0;
  double scale = 0;
};

/// "self_attn.q_proj": the module of a matrix in its layer.
std::string_view module_of_matrix(size_t matrix);
/// All modules that can be targeted, layer by layer, then the embedding and the head; no ranks.
std::vector<PeftTarget> all_targets(const HfConfig& config);

/// The meaning of an adapter in a model.
struct PeftPlan {
  std::vector<PeftTarget> targets;  ///< In the order of all_targets().
  nn::LoraConfig lora;
};
/// Errors: "KEY: reason": patterns that cannot be read or that match nothing; modules that take no
///         adapter; modules_to_save other than the embedding, the head and the last norm; layers
///         that the model has not.
Result<PeftPlan> plan_targets(const PeftConfig& peft, const HfConfig& config);

}  // namespace stow::lm
