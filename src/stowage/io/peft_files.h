// PeftConfig: what adapter_config.json of a PEFT folder says of a low-rank adapter.
// Not its tensors and not which modules of a model it means; lm/adapter.h has both.
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

/// Modules by name: a list of names or of what follows a dot in them, or a regular expression that
/// the whole name matches.
struct PeftModules {
  std::vector<std::string> names;
  std::optional<std::string> pattern;

  bool is_empty() const { return names.empty() && !pattern; }
  friend bool operator==(const PeftModules&, const PeftModules&) = default;
};

/// A LoRA configuration. What would change its meaning and is not read is refused by name when a
/// file is read: other kinds of adapters, DoRA and the other variants, biases, quantized bases,
/// initializations that change the base.
struct PeftConfig {
  int64_t r = 8;
  double lora_alpha = 8;
  double lora_dropout = 0;
  bool use_rslora = false;     ///< Scales are alpha / sqrt(r), not alpha / r.
  bool is_all_linear = false;  ///< target_modules is "all-linear": all matrices but the head.
  PeftModules target_modules, exclude_modules;
  /// Numbers of the layers to which names in target_modules are confined; none: all.
  std::optional<std::vector<int64_t>> layers_to_transform;
  /// Regular expressions of names, as a whole or behind a dot, and what stands in for r and
  /// lora_alpha. The first that matches counts.
  std::vector<std::pair<std::string, int64_t>> rank_pattern;
  std::vector<std::pair<std::string, double>> alpha_pattern;
  std::vector<std::string> modules_to_save;  ///< Ends of names of modules that are stored whole.
  std::string base_model_name_or_path;       ///< Empty where the file does not say.

  /// Reads FOLDER/adapter_config.json. Errors: "PATH: KEY: reason".
  static Result<PeftConfig> load(const std::string& folder);
  /// The same from the text of such a file; `path` stands in errors.
  static Result<PeftConfig> parse(std::string_view text, const std::string& path);
  /// The keys that PEFT writes of it. parse() of this gives an equal configuration.
  Json to_json() const;

  friend bool operator==(const PeftConfig&, const PeftConfig&) = default;
};

inline constexpr std::string_view kPeftPrefix = "base_model.model.";  ///< Begins tensor names.
inline constexpr int64_t kMaxPeftRank = 1 << 16;

}  // namespace stow
