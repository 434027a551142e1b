#include "stowage/io/peft_files.h"

#include <algorithm>
#include <array>

#include "stowage/base/text_file.h"
#include "stowage/io/json_fields.h"

namespace stow {
namespace {

constexpr int64_t kMaxFileBytes = int64_t{1} << 20;
constexpr double kMaxAlpha = 1e9;
constexpr int64_t kMaxLayer = 1 << 20;

// Keys that say nothing of the adapter's numbers, given the keys that are read.
constexpr std::array<std::string_view, 12> kIgnored = {
    "auto_mapping",  "peft_version",      "revision",       "inference_mode",
    "megatron_core", "qalora_group_size", "runtime_config", "loftq_config",
    "eva_config",    "corda_config",      "lora_ga_config", "base_model_name_or_path"};
constexpr std::array<std::string_view, 16> kRead = {"peft_type",
                                                    "r",
                                                    "lora_alpha",
                                                    "lora_dropout",
                                                    "use_rslora",
                                                    "target_modules",
                                                    "exclude_modules",
                                                    "layers_to_transform",
                                                    "layers_pattern",
                                                    "rank_pattern",
                                                    "alpha_pattern",
                                                    "modules_to_save",
                                                    "bias",
                                                    "init_lora_weights",
                                                    "fan_in_fan_out",
                                                    "task_type"};

bool is_unset(const Json& value) {
  if (value.is_null()) return true;
  if (const bool* flag = value.as_bool()) return !*flag;
  if (const Json::Array* elements = value.as_array()) return elements->empty();
  if (const Json::Object* members = value.as_object()) return members->empty();
  return false;
}

std::vector<std::string> read_names(JsonFields& fields, std::string_view key) {
  const Json* value = fields.find(key);
  if (!value) return {};
  std::vector<std::string> names;
  if (value->as_array()) {
    for (const Json& element : *value->as_array()) {
      const std::string* name = element.as_string();
      if (!name || name->empty()) {
        fields.refuse(key, fmt::format("expected names, got {}", shown(element)));
        return {};
      }
      names.push_back(*name);
    }
    return names;
  }
  fields.refuse(key, fmt::format("expected an array of names, got {}", shown(*value)));
  return {};
}

PeftModules read_modules(JsonFields& fields, std::string_view key) {
  const Json* value = fields.find(key);
  PeftModules modules;
  if (value && value->as_string()) {
    if (!value->as_string()->empty()) modules.pattern = *value->as_string();
  } else {
    modules.names = read_names(fields, key);
  }
  return modules;
}

// An object of patterns and numbers.
template <typename T, typename Read>
std::vector<std::pair<std::string, T>> read_pattern(JsonFields& fields, std::string_view key,
                                                    Read read) {
  std::vector<std::pair<std::string, T>> all;
  const Json* value = fields.find(key);
  if (!value) return all;
  if (!value->as_object()) {
    fields.refuse(key, fmt::format("expected an object, got {}", shown(*value)));
    return all;
  }
  for (const JsonMember& member : *value->as_object()) {
    const std::optional<T> number = read(member.value);
    if (!number) {
      fields.refuse(key, fmt::format("{}: expected a number in range, got {}",
                                     shown_name(member.key), shown(member.value)));
      return {};
    }
    all.emplace_back(member.key, *number);
  }
  return all;
}

void read_init(JsonFields& fields) {
  const Json* init = fields.find("init_lora_weights");
  if (!init || init->as_bool()) return;
  const std::string* name = init->as_string();
  for (const char* known : {"gaussian", "orthogonal", "eva"})
    if (name && *name == known) return;
  fields.refuse(
      "init_lora_weights",
      fmt::format("{} is not supported: it may have changed the base's weights", shown(*init)));
}

// Keys that nobody reads must say nothing.
void refuse_others(JsonFields& fields, const Json& json) {
  for (const JsonMember& member : *json.as_object()) {
    const auto is = [&](const auto& list) {
      return std::find(list.begin(), list.end(), member.key) != list.end();
    };
    if (is(kRead) || is(kIgnored) || is_unset(member.value)) continue;
    fields.refuse(member.key, fmt::format("{} is not supported", shown(member.value)));
  }
}

void read_layers(JsonFields& fields, PeftConfig& c) {
  if (const Json* layers = fields.find("layers_to_transform")) {
    const bool is_empty = layers->as_array() && layers->as_array()->empty();
    if (!is_empty) c.layers_to_transform = fields.integers("layers_to_transform", 0, kMaxLayer);
  }
  const Json* pattern = fields.find("layers_pattern");
  if (!pattern || is_unset(*pattern)) return;
  std::vector<std::string> names;
  if (pattern->as_string()) {
    names = {*pattern->as_string()};
  } else {
    names = read_names(fields, "layers_pattern");
  }
  const bool known = std::find(names.begin(), names.end(), "layers") != names.end();
  if (!known && !(names.size() == 1 && names[0].empty()))
    fields.refuse("layers_pattern", fmt::format("expected \"layers\", got {}", shown(*pattern)));
  else if (!c.layers_to_transform)
    fields.refuse("layers_pattern", "has no effect without layers_to_transform");
}

}  // namespace

Result<PeftConfig> PeftConfig::load(const std::string& folder) {
  const std::string path = folder + "/adapter_config.json";
  const Result<std::string> text = read_text_file(path, kMaxFileBytes);
  if (!text) return text.failure();
  return parse(*text, path);
}

Result<PeftConfig> PeftConfig::parse(std::string_view text, const std::string& path) {
  const Result<Json> json = parse_json(text, {.n_values = 1 << 17});
  if (!json) return fail("{}: {}", path, json.error());
  if (!json->is_object()) return fail("{}: expected an object, got {}", path, shown(*json));
  std::string error;
  JsonFields fields(*json, &error);
  const std::string type = fields.text("peft_type").value_or("");
  if (type != "LORA")
    fields.refuse("peft_type", fmt::format("expected \"LORA\", got {}", shown(Json(type))));
  if (fields.boolean("use_dora", false)) fields.refuse("use_dora", "DoRA is not supported");
  if (fields.boolean("lora_bias", false))
    fields.refuse("lora_bias", "biases of adapters are not supported");
  if (const std::string bias = fields.text("bias").value_or("none"); bias != "none")
    fields.refuse("bias", fmt::format("expected \"none\", got {}", shown(Json(bias))));
  if (const std::string task = fields.text("task_type").value_or("CAUSAL_LM"); task != "CAUSAL_LM")
    fields.refuse("task_type", fmt::format("expected \"CAUSAL_LM\", got {}", shown(Json(task))));
  read_init(fields);
  refuse_others(fields, *json);

  PeftConfig c;
  c.r = fields.integer("r", 1, kMaxPeftRank, 8);
  c.lora_alpha = fields.number("lora_alpha", -kMaxAlpha, kMaxAlpha, 8);
  c.lora_dropout = fields.number("lora_dropout", 0, 1, 0);
  if (c.lora_dropout == 1) fields.refuse("lora_dropout", "expected less than 1, got 1");
  c.use_rslora = fields.boolean("use_rslora", false);
  (void)fields.boolean("fan_in_fan_out", false);  // of matrices [out, in] PEFT itself ignores it
  c.target_modules = read_modules(fields, "target_modules");
  if (const std::optional<std::string>& pattern = c.target_modules.pattern) {
    std::string lower = *pattern;
    for (char& letter : lower)
      if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
    c.is_all_linear = lower == "all-linear";
    if (c.is_all_linear) c.target_modules = {};
  }
  if (c.target_modules.is_empty() && !c.is_all_linear) {
    const Json* given = fields.find("target_modules");
    fields.refuse("target_modules",
                  fmt::format("expected names of modules, a pattern or \"all-linear\", got {}",
                              shown(given)));
  }
  c.exclude_modules = read_modules(fields, "exclude_modules");
  read_layers(fields, c);
  if (c.layers_to_transform && (c.target_modules.pattern || c.is_all_linear))
    fields.refuse("layers_to_transform", "expected a list of target_modules, got a string");
  c.rank_pattern = read_pattern<int64_t>(fields, "rank_pattern", [](const Json& value) {
    const Result<int64_t> number = value.as_int();
    const bool good = number.ok() && *number >= 1 && *number <= kMaxPeftRank;
    return good ? std::optional(*number) : std::nullopt;
  });
  c.alpha_pattern = read_pattern<double>(fields, "alpha_pattern", [](const Json& value) {
    const Result<double> number = value.as_double();
    const bool good = number.ok() && *number >= -kMaxAlpha && *number <= kMaxAlpha;
    return good ? std::optional(*number) : std::nullopt;
  });
  c.modules_to_save = read_names(fields, "modules_to_save");
  c.base_model_name_or_path = fields.text("base_model_name_or_path").value_or("");
  if (fields.failed()) return fail("{}: {}", path, error);
  return c;
}

Json PeftConfig::to_json() const {
  const auto list = [](const auto& values) {
    Json array = Json::array();
    for (const auto& value : values) array.push_back(value);
    return array;
  };
  const auto modules = [&](const PeftModules& m) {
    if (m.pattern) return Json(*m.pattern);
    return m.names.empty() ? Json(nullptr) : list(m.names);
  };
  const auto pattern = [](const auto& entries) {
    Json object = Json::object();
    for (const auto& [key, value] : entries) object.set(key, value);
    return object;
  };
  // PEFT's own type of alpha is an integer.
  const auto whole = static_cast<int64_t>(lora_alpha);
  const Json alpha = static_cast<double>(whole) == lora_alpha ? Json(whole) : Json(lora_alpha);
  const std::string& base = base_model_name_or_path;
  return Json::object(
      {{"peft_type", "LORA"},
       {"task_type", "CAUSAL_LM"},
       {"base_model_name_or_path", base.empty() ? Json(nullptr) : Json(base)},
       {"inference_mode", true},
       {"r", r},
       {"lora_alpha", alpha},
       {"lora_dropout", lora_dropout},
       {"use_rslora", use_rslora},
       {"use_dora", false},
       {"lora_bias", false},
       {"bias", "none"},
       {"fan_in_fan_out", false},
       {"init_lora_weights", true},
       {"target_modules", is_all_linear ? Json("all-linear") : modules(target_modules)},
       {"exclude_modules", modules(exclude_modules)},
       {"layers_to_transform", layers_to_transform ? list(*layers_to_transform) : Json(nullptr)},
       {"layers_pattern", nullptr},
       {"rank_pattern", pattern(rank_pattern)},
       {"alpha_pattern", pattern(alpha_pattern)},
       {"modules_to_save", modules_to_save.empty() ? Json(nullptr) : list(modules_to_save)}});
}

}  // namespace stow
