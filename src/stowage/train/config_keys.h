// The table of configuration keys: each row has all that is known of one key.
// Not for users of the configuration; those read the fields of TrainConfig.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/train/config.h"

namespace stow {

struct IntField {
  int64_t& (*get)(TrainConfig&);
  int64_t min;
  int64_t max;
};
struct FloatField {
  double& (*get)(TrainConfig&);
  double min;
  double max;
  bool below_max = false;  ///< True if max itself is out of range.
};
struct BoolField {
  bool& (*get)(TrainConfig&);
};
/// Text; one of `choices` where there are any, or what `parse` makes one of them.
struct TextField {
  std::string& (*get)(TrainConfig&);
  const std::vector<std::string>& (*choices)() = nullptr;
  bool may_be_empty = false;
  Result<std::string> (*parse)(const std::string& text) = nullptr;
};
struct SizeField {
  std::optional<int64_t>& (*get)(TrainConfig&);
};

/// The models that a key is for.
enum class KeyScope : uint8_t {
  kAll,
  kSizes,    ///< The decoder of the configuration's own sizes.
  kFiles,    ///< Models of model.path.
  kAdapter,  ///< Models of model.path with an adapter that is not read from lora.init.
};

struct ConfigKey {
  std::string_view name;
  std::variant<IntField, FloatField, BoolField, TextField, SizeField> field;
  bool resumes;  ///< True if a resumed run must have the same value.
  std::string_view help;
  std::string_view optimizers = "";  ///< Optimizers that use the key: "sgd, lion"; empty for all.
  KeyScope scope = KeyScope::kAll;

  /// True if it has an effect with the configuration's model, optimizer and schedule.
  bool serves(const TrainConfig& config) const;
  /// True if its model is of that scope.
  bool is_of_model(const TrainConfig& config) const;
};

std::span<const ConfigKey> config_keys();

/// A value as it comes from outside: TOML has types, the command line has text alone.
struct RawValue {
  std::variant<int64_t, double, bool, std::string> value;
  bool from_text = false;  ///< A string that is to be read as whatever the key takes.
};

/// Sets one key. Errors: "model.dim must be …", without the place.
Result<void> set_key(const ConfigKey& key, const RawValue& raw, TrainConfig& config);

/// The value as set_key reads it from text; empty for a size that is not set.
std::string key_text(const ConfigKey& key, const TrainConfig& config);

/// "an integer, at least 1".
std::string key_takes(const ConfigKey& key);

}  // namespace stow
