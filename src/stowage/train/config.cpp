#include "stowage/train/config.h"

#include <algorithm>
#include <cstdlib>
#include <map>

#include "stowage/base/nearest.h"
#include "stowage/base/text_file.h"
#include "stowage/base/toml_entries.h"
#include "stowage/train/config_keys.h"
#include "stowage/train/policies.h"

namespace stow {
namespace {

constexpr int64_t kMaxTomlBytes = 1 << 20;

// Returns the current name of a key that may have its former name.
std::string_view present_name(std::string_view name) {
  return name == "train.eval_every" ? "eval.every" : name;
}

const ConfigKey* find_key(std::string_view asked) {
  const std::string_view name = present_name(asked);
  for (const ConfigKey& key : config_keys())
    if (key.name == name) return &key;
  return nullptr;
}

Failure unknown_key(const std::string& name) {
  std::vector<std::string> names;
  for (const ConfigKey& key : config_keys()) names.emplace_back(key.name);
  return fail("unknown key '{}'; did you mean '{}'?", name, nearest_name(name, names));
}

// Returns the configuration with the batch of evaluation.
TrainConfig for_evaluation(TrainConfig config) {
  config.data.batch = config.eval_batch();
  config.data.seq = config.eval_seq();
  return config;
}

// Refuses sizes whose product exceeds any memory. `named` describes a key and its value.
template <typename Named>
Result<void> check_sizes(const TrainConfig& config, const Named& named) {
  struct Product {
    std::string_view what;
    std::vector<std::string_view> keys;
  };
  static const std::vector<Product> kProducts = {
      {"activations", {"data.batch", "data.seq", "model.layers", "model.dim"}},
      {"batch", {"data.batch", "data.seq", "data.accumulate"}},
      {"activations", {"data.batch", "data.seq", "model.layers", "model.ffn"}},
      {"logits", {"data.batch", "data.seq", "model.vocab"}},
      {"scores", {"data.batch", "data.seq", "data.seq", "model.heads"}},
      {"embedding", {"model.vocab", "model.dim"}},
      {"weights", {"model.layers", "model.dim", "model.ffn"}},
      {"weights", {"model.layers", "model.dim", "model.dim"}},
  };
  constexpr int64_t kMaxElems = int64_t{1} << 52;
  for (const Product& product : kProducts) {
    int64_t elems = 1;
    std::string names;
    for (std::string_view name : product.keys) {
      const int64_t value =
          std::get<IntField>(find_key(name)->field).get(const_cast<TrainConfig&>(config));
      if (names.find(name) == std::string::npos)
        names += (names.empty() ? "" : ", ") + named(name);
      if (__builtin_mul_overflow(elems, std::max<int64_t>(value, 1), &elems) || elems > kMaxElems)
        elems = kMaxElems + 1;
    }
    if (elems > kMaxElems)
      return fail("the {} would have more elements than any memory: {}", product.what, names);
  }
  return {};
}

// A configuration that is being read, with the place where each key was last set.
class Loader {
 public:
  Result<void> set(const std::string& name, const RawValue& raw, const std::string& place) {
    const ConfigKey* key = find_key(name);
    const Result<void> done = key ? set_key(*key, raw, config_) : unknown_key(name);
    if (!done) return fail("{}: {}", place, done.error());
    places_[std::string(key->name)] = place;
    return {};
  }

  Result<void> set_from_text(const std::string& setting) {
    const std::string place = "--set " + setting;
    const size_t equals = setting.find('=');
    if (equals == std::string::npos) return fail("{}: write --set key=value", place);
    return set(setting.substr(0, equals), {setting.substr(equals + 1), true}, place);
  }

  Result<void> read_toml(const std::string& path);
  Result<TrainConfig> finish();

 private:
  // Returns "model.dim = 128 (run.toml:3)", for values that contradict each other.
  std::string with_place(std::string_view name) const {
    const auto place = places_.find(name);
    return fmt::format("{} = {} ({})", name, key_text(*find_key(name), config_),
                       place == places_.end() ? "default" : place->second);
  }

  Result<void> check_scopes() const;
  Result<void> check_optimizer() const;
  Result<void> check_model() const;
  Result<void> check_loss() const;
  Result<void> check_places() const;
  Result<void> check_mesh() const;

  TrainConfig config_;
  std::map<std::string, std::string, std::less<>> places_;
};

bool is_section(const std::string& name) {
  return std::any_of(config_keys().begin(), config_keys().end(),
                     [&](const ConfigKey& key) { return key.name.starts_with(name + "."); });
}

Result<void> Loader::read_toml(const std::string& path) {
  const Result<std::string> text = read_text_file(path, kMaxTomlBytes);
  if (!text) return text.failure();
  const Result<std::vector<TomlEntry>> entries = read_toml_entries(
      *text, path, [](const std::string& name) { return find_key(name) != nullptr; });
  if (!entries) return entries.failure();
  for (const TomlEntry& entry : *entries) {
    const std::string place = fmt::format("{}:{}", path, entry.line);
    const TomlOther* other = std::get_if<TomlOther>(&entry.value);
    const ConfigKey* key = find_key(entry.name);
    if (other && key)
      return fail("{}: {} takes {}, not a value of this kind", place, key->name, key_takes(*key));
    if (other && *other == TomlOther::kTable && is_section(entry.name))
      continue;  // a section without keys
    if (is_section(entry.name))
      return fail("{}: '{}' is a section of keys, {}", place, entry.name,
                  other ? fmt::format("written [{}]", entry.name) : "not a key");
    if (other) return fail("{}: {}", place, unknown_key(entry.name).message);
    RawValue raw;
    std::visit(
        [&](const auto& value) {
          if constexpr (!std::is_same_v<std::decay_t<decltype(value)>, TomlOther>)
            raw.value = value;
        },
        entry.value);
    if (Result<void> done = set(entry.name, raw, place); !done) return done;
  }
  return {};
}

// Refuses keys that were set and have no effect.
Result<void> Loader::check_scopes() const {
  for (const ConfigKey& key : config_keys()) {
    if (!places_.contains(key.name) || key.is_in_scope(config_)) continue;
    if (key.name == "train.sample" && config_.train.sample == 0) continue;  // as it is
    if (key.scope == KeyScope::kSizes)
      return fail("{} has no effect with {}; leave one of them out", with_place(key.name),
                  with_place("model.path"));
    if (!config_.model.is_from_files())
      return fail("{} has no effect without a model from files: set model.path",
                  with_place(key.name));
    return config_.lora.init.empty()
               ? fail("{} has no effect without an adapter: set lora.rank", with_place(key.name))
               : fail("{} has no effect with {}, whose adapter_config.json sets it; leave it out",
                      with_place(key.name), with_place("lora.init"));
  }
  if (places_.contains("model.dtype") && !config_.lora.is_used())
    return fail("{} has no effect without an adapter: weights that train are f32; set lora.rank",
                with_place("model.dtype"));
  if (config_.data.valid_fraction > 0 && !config_.eval.data.empty())
    return fail("{} does not go with {}", with_place("data.valid_fraction"),
                with_place("eval.data"));
  return {};
}

Result<void> Loader::check_optimizer() const {
  for (const ConfigKey& key : config_keys())
    if (places_.contains(key.name) && key.is_in_scope(config_) && !key.has_effect(config_)) {
      if (key.optimizers.empty())
        return fail("{} has no effect with {}; set optimizer.schedule=cosine",
                    with_place(key.name), with_place("optimizer.schedule"));
      return fail("{} has no effect with {}; it has one with {}", with_place(key.name),
                  with_place("optimizer.name"), key.optimizers);
    }
  const TrainConfig::Optimizer& o = config_.optimizer;
  if (places_.contains("optimizer.moments") && o.name == "sgd" && o.momentum == 0)
    return fail("{} has no effect with {}: there is no moment; set optimizer.momentum",
                with_place("optimizer.moments"), with_place("optimizer.momentum"));
  return {};
}

Result<void> Loader::check_model() const {
  if (config_.model.is_from_files()) return {};
  const TrainConfig::Model& m = config_.model;
  if (m.dim % m.heads != 0)
    return fail("{} does not divide {}", with_place("model.heads"), with_place("model.dim"));
  if (m.heads % m.kv_heads != 0)
    return fail("{} does not divide {}", with_place("model.kv_heads"), with_place("model.heads"));
  if (m.dim / m.heads % 2 != 0)
    return fail("{} and {} give heads of {}; rotary positions need an even size",
                with_place("model.dim"), with_place("model.heads"), m.dim / m.heads);
  return {};
}

Result<void> Loader::check_loss() const {
  const TrainConfig::Train& t = config_.train;
  if (t.loss_chunk > config_.microbatch_tokens_per_device())
    return fail("{} has no effect: a device has {} tokens of a microbatch; set fewer",
                with_place("train.loss_chunk"), config_.microbatch_tokens_per_device());
  if (config_.model.is_from_files()) return {};
  if (t.vocab_block > config_.model.vocab)
    return fail("{} has no effect with {}; set a smaller block", with_place("train.vocab_block"),
                with_place("model.vocab"));
  if (t.loss_chunk > 0 && t.vocab_block > 0)
    return fail("{} does not go with {}: logits are cut by tokens or by words",
                with_place("train.vocab_block"), with_place("train.loss_chunk"));
  return {};
}

// Refuses memories that the run does not have.
Result<void> Loader::check_places() const {
  const TrainConfig::Memory& m = config_.memory;
  if (m.host && !config_.is_virtual())
    return fail("{} has no effect with {}: the host's memory is the device's there; set "
                "memory.device",
                with_place("memory.host"), with_place("runtime.platform"));
  if (!config_.runtime.disk_folder.empty() && !m.disk)
    return fail("{} has no effect without a disk: set memory.disk",
                with_place("runtime.disk_folder"));
  const std::pair<std::string_view, const std::string&> places[] = {
      {"memory.activations", m.activations},
      {"memory.optimizer", m.optimizer},
      {"memory.parameters", m.parameters},
      {"memory.gradients", m.gradients},
      {"memory.frozen", m.frozen}};
  for (const auto& [key, place] : places) {
    if (place == "pinned_host" && !config_.is_virtual())
      return fail("{} saves nothing with {}: the host's memory is the device's there",
                  with_place(key), with_place("runtime.platform"));
    if (place == "disk" && !m.disk)
      return fail("{} needs space there: set memory.disk", with_place(key));
  }
  const std::optional<StepPolicy> policy = parse_policy(m.policy);
  const bool moves = policy && traits_of(*policy).offloads;
  if (moves && !config_.is_virtual() && !m.disk)
    return fail("{} has nowhere to put them: set memory.disk, or runtime.platform=virtual",
                with_place("memory.policy"));
  if (moves && config_.model.layers == 0)
    return fail("{} has no effect with {}: it moves residuals of layers; set another policy",
                with_place("memory.policy"), with_place("model.layers"));
  for (const auto& [key, form] :
       {std::pair<std::string_view, const std::string&>("memory.feed_forward", m.feed_forward),
        {"memory.loss", m.loss}}) {
    if (form == "auto") continue;
    if (key == "memory.loss" && config_.has_loss_in_parts())
      return fail(
          "{} does not go with {}, which says how the loss is computed", with_place(key),
          with_place(config_.train.loss_chunk > 0 ? "train.loss_chunk" : "train.vocab_block"));
    if (form != "chunked") continue;
    if (config_.train.compute != "f32" && !(key == "memory.loss" && config_.lora.is_used()))
      return fail("{} would change numbers with {}: gradients of weights are rounded once a chunk",
                  with_place(key), with_place("train.compute"));
    if (key == "memory.feed_forward" && config_.model.layers == 0)
      return fail("{} has no effect with {}; set memory.feed_forward=whole", with_place(key),
                  with_place("model.layers"));
    if (!config_.has_chunks())
      return fail("{} has no effect: a chunk has {} tokens, and a device has {} of a microbatch; "
                  "leave it out",
                  with_place(key), kProductBlock, config_.microbatch_tokens_per_device());
  }
  if (m.activations != "auto" && m.policy != "auto" && !moves)
    return fail("{} has no effect with {}{}", with_place("memory.activations"),
                with_place("memory.policy"),
                m.policy == "nested" ? "; offload_nested moves what enters each block"
                                     : "; set a policy that offloads");
  return {};
}

// Refuses sizes that the mesh cannot divide, and keys without effect.
Result<void> Loader::check_mesh() const {
  const TrainConfig::Mesh& m = config_.mesh;
  constexpr int64_t kMostDevices = 1 << 20;
  if (m.replica > kMostDevices / m.data || m.replica * m.data > kMostDevices / m.model)
    return fail("{}, {} and {} are more than {} devices", with_place("mesh.replica"),
                with_place("mesh.data"), with_place("mesh.model"), kMostDevices);
  const auto divides = [&](std::string_view key, int64_t size, std::string_view axes,
                           int64_t parts) -> Result<void> {
    if (size % parts == 0) return {};
    const int64_t below = size / parts * parts;
    return fail("{} cannot be cut into {} parts, as {} asks: {}{} can", with_place(key), parts,
                axes, below > 0 ? fmt::format("{} and ", below) : "", below + parts);
  };
  const std::string batch_axes =
      m.replica > 1 ? with_place("mesh.replica") + " times " + with_place("mesh.data")
                    : with_place("mesh.data");
  if (Result<void> fits = divides("data.batch", config_.data.batch, batch_axes, m.replica * m.data);
      !fits)
    return fits;
  if (config_.eval.batch > 0)
    if (Result<void> fits =
            divides("eval.batch", config_.eval.batch, batch_axes, m.replica * m.data);
        !fits)
      return fits;
  if (!config_.model.is_from_files()) {
    const std::pair<std::string_view, int64_t> cut_by_model[] = {
        {"model.heads", config_.model.heads},
        {"model.kv_heads", config_.model.kv_heads},
        {"model.ffn", config_.model.ffn},
        {"model.vocab", config_.model.vocab}};
    for (const auto& [key, size] : cut_by_model)
      if (Result<void> fits = divides(key, size, with_place("mesh.model"), m.model); !fits)
        return fits;
  }
  if (config_.train.vocab_block > 0 && m.model > 1)
    return fail("{} does not go with {}, which cuts the vocabulary already",
                with_place("train.vocab_block"), with_place("mesh.model"));
  if (m.sequence && m.model == 1)
    return fail("{} has no effect with {}; set mesh.model to 2 or more",
                with_place("mesh.sequence"), with_place("mesh.model"));
  if (m.sequence)
    if (Result<void> fits =
            divides("data.seq", config_.data.seq, with_place("mesh.model"), m.model);
        !fits)
      return fits;
  for (const std::string_view key : {"mesh.parameters", "mesh.optimizer"})
    if (places_.contains(key) && m.data == 1 && key_text(*find_key(key), config_) != "auto")
      return fail("{} has no effect with {}; set mesh.data to 2 or more", with_place(key),
                  with_place("mesh.data"));
  return {};
}

Result<TrainConfig> Loader::finish() {
  if (config_.data.path.empty() && !config_.model.is_from_files())
    config_.data.path = default_data_path();
  if (config_.optimizer.total_steps == 0) config_.optimizer.total_steps = config_.train.steps;
  if (config_.eval.patience > 0 && !places_.contains("eval.keep_best"))
    config_.eval.keep_best = true;
  if (Result<void> fits = check_scopes(); !fits) return fits.failure();
  if (Result<void> fits = check_optimizer(); !fits) return fits.failure();
  if (Result<void> fits = check_model(); !fits) return fits.failure();
  const auto named = [&](std::string_view name) { return with_place(name); };
  if (config_.eval.patience > 0 && config_.eval.every == 0)
    return fail("{} has no effect with {}; set eval.every", with_place("eval.patience"),
                with_place("eval.every"));
  if (config_.eval.keep_best && config_.eval.every == 0)
    return fail("{} has no effect with {}: only the last weights are evaluated; set eval.every",
                with_place("eval.keep_best"), with_place("eval.every"));
  if (Result<void> fits = check_sizes(config_, named); !fits) return fits.failure();
  if (Result<void> fits = check_sizes(for_evaluation(config_), named); !fits) return fits.failure();
  if (Result<void> fits = check_mesh(); !fits) return fits.failure();
  if (Result<void> fits = check_loss(); !fits) return fits.failure();
  if (Result<void> fits = check_places(); !fits) return fits.failure();
  return config_;
}

std::string toml_value(const ConfigKey& key, const TrainConfig& config) {
  const std::string text = key_text(key, config);
  if (!std::holds_alternative<TextField>(key.field)) return text;
  std::string quoted;
  for (const char c : Json(text).dump()) {  // TOML wants one more escaped than JSON does
    if (c == '\x7f')
      quoted += "\\u007f";
    else
      quoted += c;
  }
  return quoted;
}

}  // namespace

std::string repository_file(const std::string& path) {
  const char* root = std::getenv("STOW_ROOT");
  return std::string(root && *root ? root : STOW_SOURCE_DIR) + "/" + path;
}

std::string default_data_path() { return repository_file("data/corpus.txt"); }

Result<void> check_model_sizes(const TrainConfig& config) {
  for (const TrainConfig& one : {config, for_evaluation(config)})
    if (Result<void> fits = check_sizes(one, [&](std::string_view name) {
          return fmt::format("{} = {}", name, key_text(*find_key(name), one));
        });
        !fits)
      return fits;
  return {};
}

Result<TrainConfig> load_train_config(const ConfigSources& sources) {
  Loader loader;
  if (!sources.toml_path.empty())
    if (Result<void> done = loader.read_toml(sources.toml_path); !done) return done.failure();
  for (const std::string& setting : sources.settings)
    if (Result<void> done = loader.set_from_text(setting); !done) return done.failure();
  if (!sources.memory.empty()) {
    const Result<void> done =
        loader.set("memory.device", {sources.memory, true}, "--memory " + sources.memory);
    if (!done) return done.failure();
  }
  return loader.finish();
}

ConfigText config_text(const TrainConfig& config) {
  ConfigText text;
  for (const ConfigKey& key : config_keys())
    if (std::string value = key_text(key, config); !value.empty() && key.has_effect(config))
      text.emplace_back(key.name, std::move(value));
  return text;
}

ConfigText config_to_resume(const TrainConfig& config) {
  ConfigText text;
  for (const ConfigKey& key : config_keys())
    if (key.resumes && key.has_effect(config)) text.emplace_back(key.name, key_text(key, config));
  return text;
}

std::string config_toml(const TrainConfig& config) {
  std::string text, section;
  for (const ConfigKey& key : config_keys()) {
    const std::string value = toml_value(key, config);
    if (value.empty() || !key.has_effect(config)) continue;
    const size_t dot = key.name.find('.');
    if (key.name.substr(0, dot) != section) {
      section = key.name.substr(0, dot);
      text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", section);
    }
    text += fmt::format("{} = {}\n", key.name.substr(dot + 1), value);
  }
  return text;
}

std::string config_help() {
  std::string text = "Keys of CONFIG.toml and of --set key=value:\n";
  const TrainConfig defaults;
  for (const ConfigKey& key : config_keys()) {
    std::string value = key_text(key, defaults);
    if (key.name == "optimizer.total_steps") value.clear();  // stands in its help
    if (key.name == "data.path") value = "the repository's data/corpus.txt";
    text += fmt::format("  {:<24}{}{}\n", key.name, key.help,
                        value.empty() ? "" : fmt::format(" (default: {})", value));
    if (!key.optimizers.empty())
      text += fmt::format("  {:<24}  with {} alone\n", "", key.optimizers);
    const TextField* is_text = std::get_if<TextField>(&key.field);
    if (is_text && !is_text->choices) continue;
    text += fmt::format("  {:<24}  {}\n", "", key_takes(key));
  }
  return text;
}

}  // namespace stow
