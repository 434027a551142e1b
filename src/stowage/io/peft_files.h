// PeftConfig: the configuration of a low-rank adapter, from adapter_config.json of a PEFT folder.
// Not its tensors, and not the modules of a model that it matches; lm/adapter.h has both.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/io/json.h"

namespace stow {

/// A set of modules by name: a list of whole names or of suffixes that follow a dot, or a regular
/// expression that matches the whole name.
struct PeftModules {
  std::vector<std::string> names;
  std::optional<std::string> pattern;

  bool is_empty() const { return names.empty() && !pattern; }
  friend bool operator==(const PeftModules&, const PeftModules&) = default;
};

/// A LoRA configuration. Reading a file refuses unsupported settings by name: other kinds of
/// adapters, DoRA and other variants, biases, quantized base models, and initializations that
/// change the base model.
struct PeftConfig {
  int64_t r = 8;
  double lora_alpha = 8;
  double lora_dropout = 0;
  bool use_rslora = false;     ///< Scales are alpha / sqrt(r), not alpha / r.
  bool is_all_linear = false;  ///< target_modules is "all-linear": all matrices except the head.
  PeftModules target_modules, exclude_modules;
  /// Numbers of the layers to which target_modules is restricted; none: all layers.
  std::optional<std::vector<int64_t>> layers_to_transform;
  /// Values that replace r and lora_alpha for modules whose whole name, or a suffix of it that
  /// follows a dot, matches a regular expression. The first match counts.
  std::vector<std::pair<std::string, int64_t>> rank_pattern;
  std::vector<std::pair<std::string, double>> alpha_pattern;
  std::vector<std::string> modules_to_save;  ///< Name suffixes of modules that are stored whole.
  std::string base_model_name_or_path;       ///< Empty if the file lacks the key.

  /// Reads FOLDER/adapter_config.json. Errors: "PATH: KEY: reason".
  static Result<PeftConfig> load(const std::string& folder);
  /// Parses the text of an adapter_config.json; `path` is for errors.
  static Result<PeftConfig> parse(std::string_view text, const std::string& path);
  /// Returns the configuration with the keys that PEFT writes. parse() of its text returns an equal
  /// configuration.
  Json to_json() const;

  friend bool operator==(const PeftConfig&, const PeftConfig&) = default;
};

inline constexpr std::string_view kPeftPrefix = "base_model.model.";  ///< Prefix of tensor names.
inline constexpr int64_t kMaxPeftRank = 1 << 16;

}  // namespace stow
