// The table of configuration keys: one row for each key, with its field, range, scope and help.
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
/// A text. If `choices` is set, the value must be one of them; if `parse` is set, it converts the
/// text first.
struct TextField {
  std::string& (*get)(TrainConfig&);
  const std::vector<std::string>& (*choices)() = nullptr;
  bool may_be_empty = false;
  Result<std::string> (*parse)(const std::string& text) = nullptr;
};
struct SizeField {
  std::optional<int64_t>& (*get)(TrainConfig&);
};

/// The models for which a key has an effect.
enum class KeyScope : uint8_t {
  kAll,
  kSizes,    ///< The decoder whose sizes the configuration gives.
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

  /// True if the key has an effect with the configuration's model, optimizer and schedule.
  bool has_effect(const TrainConfig& config) const;
  /// True if the configuration's model is in `scope`.
  bool is_in_scope(const TrainConfig& config) const;
};

std::span<const ConfigKey> config_keys();

/// An unchecked value: typed if from TOML, a text if from the command line.
struct RawValue {
  std::variant<int64_t, double, bool, std::string> value;
  bool from_text = false;  ///< True: `value` is a string to be parsed as the key's type.
};

/// Sets one key. Errors: "model.dim must be …", without the place.
Result<void> set_key(const ConfigKey& key, const RawValue& raw, TrainConfig& config);

/// Returns the key's value as text that set_key() can parse; "" for a size that is not set.
std::string key_text(const ConfigKey& key, const TrainConfig& config);

/// Returns the accepted values of a key, for people: "an integer, at least 1".
std::string key_takes(const ConfigKey& key);

}  // namespace stow
