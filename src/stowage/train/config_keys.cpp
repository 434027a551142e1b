#include "stowage/train/config_keys.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <limits>

#include "stowage/base/bytes.h"
#include "stowage/train/dtypes.h"
#include "stowage/train/optimizer.h"
#include "stowage/train/policies.h"

namespace stow {
namespace {

#define STOW_FIELD(path) [](TrainConfig& c) -> decltype((c.path)) { return c.path; }

constexpr int64_t kMany = std::numeric_limits<int32_t>::max();
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

// clang-format off
constexpr ConfigKey kKeys[] = {
    {"model.path", TextField{STOW_FIELD(model.path), nullptr, true}, false, "a Hugging Face folder or a GGUF file to fine-tune (default: a new decoder of the sizes below)"},
    {"model.dtype", TextField{STOW_FIELD(model.dtype), weight_dtypes}, true, "dtype of the frozen weights; auto: as they are stored, quantized ones as f32", "", KeyScope::kFiles},
    {"model.dim", IntField{STOW_FIELD(model.dim), 2, 1 << 20}, true, "width of the residual stream", "", KeyScope::kSizes},
    {"model.layers", IntField{STOW_FIELD(model.layers), 0, 1 << 16}, true, "number of layers", "", KeyScope::kSizes},
    {"model.heads", IntField{STOW_FIELD(model.heads), 1, 1 << 16}, true, "attention heads; divides dim into an even size", "", KeyScope::kSizes},
    {"model.kv_heads", IntField{STOW_FIELD(model.kv_heads), 1, 1 << 16}, true, "heads of keys and values; divides heads", "", KeyScope::kSizes},
    {"model.ffn", IntField{STOW_FIELD(model.ffn), 1, 1 << 24}, true, "width inside the feed-forward block", "", KeyScope::kSizes},
    {"model.vocab", IntField{STOW_FIELD(model.vocab), 256, 1 << 24}, true, "number of tokens; bytes are the first 256", "", KeyScope::kSizes},
    {"model.tied", BoolField{STOW_FIELD(model.tied)}, true, "true: the head is the embedding, transposed", "", KeyScope::kSizes},
    {"lora.rank", IntField{STOW_FIELD(lora.rank), 0, 1 << 16}, true, "rank of an adapter that is trained while the model is frozen; 0: none, all weights train", "", KeyScope::kAdapter},
    {"lora.alpha", FloatField{STOW_FIELD(lora.alpha), 0, 1e6}, true, "the adapter is scaled by alpha / rank; 0: alpha is twice the rank", "", KeyScope::kAdapter},
    {"lora.targets", TextField{STOW_FIELD(lora.targets)}, true, "modules with an adapter: all-linear, names by commas (q_proj,v_proj) or regex:PATTERN", "", KeyScope::kAdapter},
    {"lora.rslora", BoolField{STOW_FIELD(lora.rslora)}, true, "true: the adapter is scaled by alpha / sqrt(rank)", "", KeyScope::kAdapter},
    {"lora.dropout", FloatField{STOW_FIELD(lora.dropout), 0, 1, true}, true, "share of an adapter's inputs that are dropped in training", "", KeyScope::kAdapter},
    {"lora.init", TextField{STOW_FIELD(lora.init), nullptr, true}, false, "a PEFT folder with the adapter to continue from", "", KeyScope::kFiles},
    {"data.path", TextField{STOW_FIELD(data.path)}, false, "the text to train on, its last tenth held out; with model.path a JSONL file, or a folder with train.jsonl and valid.jsonl"},
    {"data.batch", IntField{STOW_FIELD(data.batch), 1, kMany}, true, "sequences in a microbatch"},
    {"data.seq", IntField{STOW_FIELD(data.seq), 1, kMany}, true, "tokens in a sequence"},
    {"data.accumulate", IntField{STOW_FIELD(data.accumulate), 1, 1 << 16}, true, "microbatches in an update; their gradients are added in one set of buffers"},
    {"data.pack", BoolField{STOW_FIELD(data.pack)}, true, "true: several examples share a sequence; none attends to another", "", KeyScope::kFiles},
    {"data.mask_prompt", BoolField{STOW_FIELD(data.mask_prompt)}, true, "true: tokens of prompts are not targets", "", KeyScope::kFiles},
    {"data.shuffle", BoolField{STOW_FIELD(data.shuffle)}, true, "true: examples are shuffled each epoch; false: they keep the file's order", "", KeyScope::kFiles},
    {"data.length_buckets", BoolField{STOW_FIELD(data.length_buckets)}, true, "true: short examples are batched in sequences of a half, a quarter or an eighth of data.seq", "", KeyScope::kFiles},
    {"data.too_long", TextField{STOW_FIELD(data.too_long), too_long_choices}, true, "the treatment of examples longer than a sequence", "", KeyScope::kFiles},
    {"data.valid_fraction", FloatField{STOW_FIELD(data.valid_fraction), 0, 1, true}, true, "share of a file's lines, from its end, held out for validation", "", KeyScope::kFiles},
    {"eval.every", IntField{STOW_FIELD(eval.every), 0, kMany}, false, "steps between evaluations; 0: at the end alone"},
    {"eval.batch", IntField{STOW_FIELD(eval.batch), 0, kMany}, false, "sequences of a batch of evaluation; 0: as data.batch", "", KeyScope::kFiles},
    {"eval.seq", IntField{STOW_FIELD(eval.seq), 0, kMany}, false, "tokens of a sequence of evaluation; 0: as data.seq", "", KeyScope::kFiles},
    {"eval.data", TextField{STOW_FIELD(eval.data), nullptr, true}, false, "a JSONL file to evaluate on (default: the part that data.path holds out)", "", KeyScope::kFiles},
    {"eval.patience", IntField{STOW_FIELD(eval.patience), 0, kMany}, false, "evaluations without a lower loss, in a row, that end the run; 0: none do"},
    {"eval.keep_best", BoolField{STOW_FIELD(eval.keep_best)}, false, "true: the checkpoint of the lowest loss in evaluation is kept beside the newest ones; eval.patience sets it too"},
    {"optimizer.name", TextField{STOW_FIELD(optimizer.name), optimizer_names}, true, "the rule of the updates"},
    {"optimizer.lr", FloatField{STOW_FIELD(optimizer.lr), 0, 1e3}, true, "highest learning rate"},
    {"optimizer.schedule", TextField{STOW_FIELD(optimizer.schedule), schedule_names}, true, "after the warm-up: a cosine down to a tenth, or constant"},
    {"optimizer.warmup", IntField{STOW_FIELD(optimizer.warmup), 0, kMany}, true, "steps of linear warm-up to optimizer.lr"},
    {"optimizer.weight_decay", FloatField{STOW_FIELD(optimizer.weight_decay), 0, 1e3}, true, "decay of the weights, multiplied by the learning rate", "adamw, lion, muon"},
    {"optimizer.clip", FloatField{STOW_FIELD(optimizer.clip), 0, 1e9}, true, "largest global norm of the gradient; 0 for none"},
    {"optimizer.beta1", FloatField{STOW_FIELD(optimizer.beta1), 0, 1, true}, true, "decay of the first moment", "adamw, adam, lion, muon"},
    {"optimizer.beta2", FloatField{STOW_FIELD(optimizer.beta2), 0, 1, true}, true, "decay of the second moment (lion: of its only one)", "adamw, adam, lion, rmsprop, muon"},
    {"optimizer.eps", FloatField{STOW_FIELD(optimizer.eps), 0, 1}, true, "added to the root of the second moment", "adamw, adam, rmsprop, muon"},
    {"optimizer.momentum", FloatField{STOW_FIELD(optimizer.momentum), 0, 1, true}, true, "decay of the momentum; 0 for none", "sgd, rmsprop, adafactor"},
    {"optimizer.nesterov", BoolField{STOW_FIELD(optimizer.nesterov)}, true, "true: Nesterov's momentum", "adamw, adam, sgd, rmsprop"},
    {"optimizer.moments", TextField{STOW_FIELD(optimizer.moments), moment_formats}, true, "format of the moments: f32, bf16 or 8 bits a number", "adamw, adam, sgd, lion, muon"},
    {"optimizer.freeze", TextField{STOW_FIELD(optimizer.freeze), nullptr, true}, true, "parameters that are not trained: paths with * and ?, by commas"},
    {"optimizer.total_steps", IntField{STOW_FIELD(optimizer.total_steps), 1, kMany}, true, "length of the schedule (default: train.steps)"},
    {"train.steps", IntField{STOW_FIELD(train.steps), 1, kMany}, false, "steps to train"},
    {"train.compute", TextField{STOW_FIELD(train.compute), compute_dtypes, false, parse_compute_dtype}, true, "dtype of activations and products, or a policy such as p=bf16,c=bf16,o=f32; p: of trained weights, f32 unless it says bf16"},
    {"train.loss_chunk", IntField{STOW_FIELD(train.loss_chunk), 0, kMany}, true, "tokens whose logits are computed at a time; 0 for all"},
    {"train.vocab_block", IntField{STOW_FIELD(train.vocab_block), 0, kMany}, true, "words of the vocabulary whose logits are computed at a time; 0 for all", "", KeyScope::kSizes},
    {"train.seed", IntField{STOW_FIELD(train.seed), 0, kMax}, true, "seed of weights and data order"},
    {"train.out", TextField{STOW_FIELD(train.out)}, false, "folder for checkpoints"},
    {"train.checkpoint_every", IntField{STOW_FIELD(train.checkpoint_every), 0, kMany}, false, "steps between checkpoints; 0: at the end alone"},
    {"train.ema", FloatField{STOW_FIELD(train.ema), 0, 1, true}, true, "decay of an average of the weights over steps, which is evaluated and exported in their place; 0: none"},
    {"train.sample", IntField{STOW_FIELD(train.sample), 0, kMany}, false, "bytes of text sampled from the model at the end, one forward pass for each; 0: none", "", KeyScope::kSizes},
    {"train.tensorboard", TextField{STOW_FIELD(train.tensorboard), nullptr, true}, false, "folder for TensorBoard's event files; empty: none"},
    {"mesh.replica", IntField{STOW_FIELD(mesh.replica), 1, 1 << 20}, false, "replicas of the weights; each computes a share of the batch"},
    {"mesh.data", IntField{STOW_FIELD(mesh.data), 1, 1 << 20}, false, "devices that share the batch, and the weights and their state"},
    {"mesh.model", IntField{STOW_FIELD(mesh.model), 1, 1 << 20}, false, "devices that share heads, feed-forward blocks and the vocabulary"},
    {"mesh.sequence", BoolField{STOW_FIELD(mesh.sequence)}, false, "true: the input that each layer keeps is cut over mesh.model by tokens"},
    {"mesh.parameters", TextField{STOW_FIELD(mesh.parameters), mesh_forms}, false, "weights over mesh.data (auto: sharded, except vectors of up to 64 KiB)"},
    {"mesh.optimizer", TextField{STOW_FIELD(mesh.optimizer), mesh_forms}, false, "optimizer's state and average of the weights over mesh.data (auto: as the weights)"},
    {"runtime.platform", TextField{STOW_FIELD(runtime.platform), platforms}, false, "cpu: the host's memory is the device's; virtual: a device with a memory of its own"},
    {"runtime.disk_folder", TextField{STOW_FIELD(runtime.disk_folder), nullptr, true}, false, "folder of the disk's file"},
    {"runtime.timeout", FloatField{STOW_FIELD(runtime.timeout), 0.001, 1e6}, false, "seconds that a device of the mesh may be late before the run ends"},
    {"runtime.reduce", TextField{STOW_FIELD(runtime.reduce), reduce_orders}, true, "tree: sums over devices have the same bits on every transport; native: the transport makes them"},
    {"memory.device", SizeField{STOW_FIELD(memory.device)}, false, "budget (default: all that the machine can give)"},
    {"memory.host", SizeField{STOW_FIELD(memory.host)}, false, "the host's memory beside a virtual device (default: no limit)"},
    {"memory.disk", SizeField{STOW_FIELD(memory.disk)}, false, "space on the disk (default: none)"},
    {"memory.policy", TextField{STOW_FIELD(memory.policy), memory_policies}, false, "the residuals that layers keep for the backward pass"},
    {"memory.activations", TextField{STOW_FIELD(memory.activations), activation_places}, false, "memory of the values that offloading policies move"},
    {"memory.optimizer", TextField{STOW_FIELD(memory.optimizer), state_places}, false, "memory of the optimizer's state between its updates"},
    {"memory.parameters", TextField{STOW_FIELD(memory.parameters), state_places}, false, "memory of weights"},
    {"memory.gradients", TextField{STOW_FIELD(memory.gradients), state_places}, false, "memory of the weights' gradients (auto: that of the weights, or one farther away if they do not fit)"},
    {"memory.frozen", TextField{STOW_FIELD(memory.frozen), state_places}, false, "memory of weights that are not trained"},
    {"memory.feed_forward", TextField{STOW_FIELD(memory.feed_forward), chunk_forms}, false, "feed-forward blocks: all tokens at once (whole), or 256 at a time (chunked)"},
    {"memory.loss", TextField{STOW_FIELD(memory.loss), chunk_forms}, false, "the loss: all tokens at once (whole), or 256 at a time (chunked)"},
};
// clang-format on

#undef STOW_FIELD

template <typename... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};
template <typename... Fs>
Overloaded(Fs...) -> Overloaded<Fs...>;

// Returns the raw value for a message.
std::string shown(const RawValue& raw) {
  return std::visit(Overloaded{[](const std::string& s) { return fmt::format("'{}'", s); },
                               [](bool b) { return std::string(b ? "true" : "false"); },
                               [](int64_t number) { return fmt::format("{}", number); },
                               [](double number) { return fmt::format("{:#}", number); }},
                    raw.value);
}

template <typename Number>
std::string range_text(Number min, Number max, bool below_max, Number limitless) {
  if (max >= limitless) return fmt::format("at least {}", min);
  return fmt::format("from {} to {}{}", min, below_max ? "below " : "", max);
}

// Parses the text as a number of that type. Returns false if it is none; sets `too_big` if it is
// out of range.
template <typename Number>
bool parse_number(const std::string& text, Number& out, bool& too_big) {
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (end != text.data() + text.size() || text.empty()) return false;
  too_big = code == std::errc::result_out_of_range;
  return code == std::errc();
}

struct Setter {
  const ConfigKey& key;
  const RawValue& raw;
  TrainConfig& config;

  const std::string* text() const { return std::get_if<std::string>(&raw.value); }
  Failure wrong() const {
    return fail("{} takes {}, not {}", key.name, key_takes(key), shown(raw));
  }

  // The description of a key's values does not always name the limit.
  Failure too_large(const IntField& field) const {
    if (field.max < kMany) return wrong();
    return fail("{} takes {} and at most {}, not {}", key.name, key_takes(key), field.max,
                shown(raw));
  }

  Result<void> operator()(const IntField& field) const {
    int64_t value = 0;
    bool too_big = false;
    if (const int64_t* number = std::get_if<int64_t>(&raw.value))
      value = *number;
    else if (!raw.from_text || !text() || !parse_number(*text(), value, too_big))
      return too_big && text()->front() != '-' ? too_large(field) : wrong();
    if (value > field.max) return too_large(field);
    if (value < field.min) return wrong();
    field.get(config) = value;
    return {};
  }

  Result<void> operator()(const FloatField& field) const {
    double value = 0;
    bool too_big = false;
    if (const double* number = std::get_if<double>(&raw.value))
      value = *number;
    else if (const int64_t* whole = std::get_if<int64_t>(&raw.value))
      value = static_cast<double>(*whole);
    else if (!raw.from_text || !text())
      return wrong();
    else if (!parse_number(*text(), value, too_big)) {
      if (!too_big) return wrong();
      value = std::strtod(text()->c_str(), nullptr);  // infinite, or next to 0
    }
    // Computation uses the value as an f32.
    if (static_cast<float>(value) == 0 && (value != 0 || too_big))
      return fail("{} takes {}, as an f32; {} is 0 there", key.name, key_takes(key), shown(raw));
    const bool in_range =
        value >= field.min &&
        (field.below_max ? static_cast<float>(value) < field.max : value <= field.max);
    if (!in_range) return wrong();  // NaN too
    field.get(config) = value == 0 ? 0 : value;  // no -0
    return {};
  }

  Result<void> operator()(const BoolField& field) const {
    if (const bool* value = std::get_if<bool>(&raw.value))
      field.get(config) = *value;
    else if (raw.from_text && text() && (*text() == "true" || *text() == "false"))
      field.get(config) = *text() == "true";
    else
      return wrong();
    return {};
  }

  Result<void> operator()(const TextField& field) const {
    if (!text()) return wrong();
    if (text()->empty() && !field.may_be_empty) return fail("{} is empty", key.name);
    if (text()->find('\0') != std::string::npos) return fail("{} holds a zero byte", key.name);
    if (field.parse) {
      Result<std::string> parsed = field.parse(*text());
      if (!parsed) return fail("{}: {}", key.name, parsed.error());
      field.get(config) = std::move(*parsed);
      return {};
    }
    if (field.choices) {
      const std::vector<std::string>& choices = field.choices();
      if (std::find(choices.begin(), choices.end(), *text()) == choices.end()) return wrong();
    }
    field.get(config) = *text();
    return {};
  }

  Result<void> operator()(const SizeField& field) const {
    int64_t bytes = 0;
    if (const int64_t* number = std::get_if<int64_t>(&raw.value)) {
      bytes = *number;
    } else {
      if (!text()) return wrong();
      const Result<int64_t> parsed = parse_bytes(*text());
      if (!parsed) return fail("{}: {}", key.name, parsed.error());
      bytes = *parsed;
    }
    if (bytes < 1) return wrong();
    field.get(config) = bytes;
    return {};
  }
};

}  // namespace

bool ConfigKey::is_in_scope(const TrainConfig& config) const {
  switch (scope) {
    case KeyScope::kAll:
      return true;
    case KeyScope::kSizes:
      return !config.model.is_from_files();
    case KeyScope::kFiles:
      return config.model.is_from_files();
    case KeyScope::kAdapter:
      return config.model.is_from_files() && config.lora.init.empty() &&
             (config.lora.rank > 0 || name == "lora.rank");
  }
  return true;
}

bool ConfigKey::has_effect(const TrainConfig& config) const {
  if (!is_in_scope(config)) return false;
  if (name == "optimizer.total_steps" && config.optimizer.schedule == "constant") return false;
  const std::string list = fmt::format(" {},", optimizers);
  return optimizers.empty() ||
         list.find(fmt::format(" {},", config.optimizer.name)) != std::string::npos;
}

std::span<const ConfigKey> config_keys() {
  return kKeys;
}

const std::vector<std::string>& schedule_names() {
  static const std::vector<std::string> names = {"cosine", "constant"};
  return names;
}

const std::vector<std::string>& weight_dtypes() {
  static const std::vector<std::string> names = {"auto", "f32", "bf16", "f16"};
  return names;
}

const std::vector<std::string>& too_long_choices() {
  static const std::vector<std::string> names = {"cut", "drop"};
  return names;
}

const std::vector<std::string>& moment_formats() {
  static const std::vector<std::string> names = {"f32", "bf16", "8bit"};
  return names;
}

const std::vector<std::string>& compute_dtypes() {
  static const std::vector<std::string> names = {"f32", "bf16"};
  return names;
}

const std::vector<std::string>& memory_policies() {
  static const std::vector<std::string> words = [] {
    std::vector<std::string> all = {"auto"};
    for (const StepPolicyTraits& policy : step_policies()) all.emplace_back(policy.name);
    return all;
  }();
  return words;
}
const std::vector<std::string>& platforms() {
  static const std::vector<std::string> names = {"cpu", "virtual"};
  return names;
}
const std::vector<std::string>& reduce_orders() {
  static const std::vector<std::string> names = {"tree", "native"};
  return names;
}
const std::vector<std::string>& activation_places() {
  static const std::vector<std::string> names = {"auto", "pinned_host", "disk"};
  return names;
}
const std::vector<std::string>& state_places() {
  static const std::vector<std::string> names = {"auto", "device", "pinned_host", "disk"};
  return names;
}

const std::vector<std::string>& mesh_forms() {
  static const std::vector<std::string> names = {"auto", "sharded", "replicated"};
  return names;
}

const std::vector<std::string>& chunk_forms() {
  static const std::vector<std::string> names = {"auto", "whole", "chunked"};
  return names;
}

Result<void> set_key(const ConfigKey& key, const RawValue& raw, TrainConfig& config) {
  return std::visit(Setter{key, raw, config}, key.field);
}

std::string key_text(const ConfigKey& key, const TrainConfig& config) {
  // The accessors return references for writing; nothing is written here.
  TrainConfig& c = const_cast<TrainConfig&>(config);
  return std::visit(
      Overloaded{[&](const BoolField& f) { return std::string(f.get(c) ? "true" : "false"); },
                 [&](const TextField& f) { return f.get(c); },
                 [&](const SizeField& f) {
                   return f.get(c) ? fmt::format("{}", *f.get(c)) : std::string();
                 },
                 [&](const auto& f) { return fmt::format("{}", f.get(c)); }},
      key.field);
}

std::string key_takes(const ConfigKey& key) {
  return std::visit(
      Overloaded{
          [](const IntField& f) { return "an integer, " + range_text(f.min, f.max, false, kMany); },
          [](const FloatField& f) {
            return "a number, " + range_text(f.min, f.max, f.below_max, 1e300);
          },
          [](const BoolField&) { return std::string("true or false"); },
          [](const TextField& f) {
            return f.choices ? fmt::format("one of {}", fmt::join(f.choices(), ", "))
                             : std::string("a text");
          },
          [](const SizeField&) { return std::string("a size such as 64MiB, at least 1"); }},
      key.field);
}

}  // namespace stow
