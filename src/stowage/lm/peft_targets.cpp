#include "stowage/lm/peft_targets.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "stowage/io/json_fields.h"
#include "stowage/text/regex.h"

namespace stow::lm {
namespace {

constexpr std::array<std::string_view, nn::kNumLoraMatrices> kModules = {
    "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
    "mlp.gate_proj",    "mlp.up_proj",      "mlp.down_proj"};
constexpr std::string_view kEmbedModule = "model.embed_tokens", kHeadModule = "lm_head",
                           kNormModule = "model.norm";

// True if `name` is `part` or has it behind a dot.
bool ends_with_module(std::string_view name, std::string_view part) {
  if (name == part) return true;
  return name.size() > part.size() && name.ends_with(part) &&
         name[name.size() - part.size() - 1] == '.';
}

// True if `name` is `part`, lies within it, or has it between dots.
bool is_within(std::string_view name, std::string_view part) {
  const std::string dotted = fmt::format(".{}.", name);
  return dotted.find(fmt::format(".{}.", part)) != std::string::npos;
}

// A regular expression of Python that a whole name must match.
class WholeMatch {
 public:
  // With `behind_dot` a name may have anything and a dot before what matches, as keys of
  // rank_pattern.
  static Result<WholeMatch> compile(std::string_view pattern, bool behind_dot) {
    std::string_view inside = pattern;
    const bool anchored = inside.starts_with("^");
    if (anchored) inside.remove_prefix(1);
    size_t slashes = 0;  // before the last character
    while (slashes + 1 < inside.size() && inside[inside.size() - 2 - slashes] == '\\') ++slashes;
    if (inside.ends_with("$") && slashes % 2 == 0) inside.remove_suffix(1);
    if (anchored && behind_dot && inside.find('|') != std::string_view::npos)
      return fail("the construct '^' beside '|' is not supported");
    const std::string whole = fmt::format(
        "{}(?:{})(?!(?:.|\\n))", behind_dot && !anchored ? "(?:.*\\.)?" : "", expand_words(inside));
    // A pattern that is invalid alone must not become valid inside of another.
    if (Result<text::Regex> alone = text::Regex::compile(expand_words(inside)); !alone)
      return alone.failure();
    Result<text::Regex> regex = text::Regex::compile(whole);
    if (!regex) return regex.failure();
    return WholeMatch(std::move(*regex));
  }

  Result<bool> matches(std::string_view name) const {
    const Result<text::Regex::Match> match = regex_.find(name, 0);
    if (!match) return match.failure();
    return match->found && match->begin == 0 && match->end == name.size();
  }

 private:
  explicit WholeMatch(text::Regex regex) : regex_(std::move(regex)) {}

  // \w spelt out: names of modules are ASCII.
  static std::string expand_words(std::string_view pattern) {
    std::string out;
    bool in_class = false;
    for (size_t i = 0; i < pattern.size(); ++i) {
      if (pattern[i] == '\\' && i + 1 < pattern.size()) {
        if (pattern[i + 1] == 'w') {
          out += in_class ? "0-9A-Za-z_" : "[0-9A-Za-z_]";
        } else {
          out += pattern.substr(i, 2);
        }
        ++i;
        continue;
      }
      if (pattern[i] == '[') in_class = true;
      if (pattern[i] == ']') in_class = false;
      out += pattern[i];
    }
    return out;
  }

  text::Regex regex_;
};

// Names of a list, or a pattern.
class Matcher {
 public:
  static Result<Matcher> make(const PeftModules& modules) {
    Matcher matcher(modules);
    if (modules.pattern) {
      Result<WholeMatch> pattern = WholeMatch::compile(*modules.pattern, false);
      if (!pattern) return pattern.failure();
      matcher.pattern_ = std::move(*pattern);
    }
    return matcher;
  }
  Result<bool> matches(std::string_view name) const {
    if (pattern_) return pattern_->matches(name);
    return std::any_of(modules_->names.begin(), modules_->names.end(),
                       [&](const std::string& part) { return ends_with_module(name, part); });
  }

 private:
  explicit Matcher(const PeftModules& modules) : modules_(&modules) {}
  const PeftModules* modules_;
  std::optional<WholeMatch> pattern_;
};

// Modules beside all_targets() that a name could mean.
std::vector<std::string> other_modules(const HfConfig& c) {
  std::vector<std::string> all = {"model", "model.layers", std::string(kNormModule),
                                  "model.rotary_emb"};
  for (int64_t l = 0; l < c.num_hidden_layers; ++l) {
    const std::string layer = fmt::format("model.layers.{}", l);
    all.push_back(layer);
    for (const char* part :
         {"self_attn", "mlp", "mlp.act_fn", "input_layernorm", "post_attention_layernorm"})
      all.push_back(fmt::format("{}.{}", layer, part));
    for (const char* part : {"self_attn.q_norm", "self_attn.k_norm"})
      if (c.qk_norm) all.push_back(fmt::format("{}.{}", layer, part));
  }
  return all;
}

// Numbers by pattern of a name; the first that matches counts.
template <typename T>
class Patterns {
 public:
  static Result<Patterns> make(const std::vector<std::pair<std::string, T>>& entries) {
    Patterns patterns;
    for (const auto& [key, value] : entries) {
      Result<WholeMatch> match = WholeMatch::compile(key, true);
      if (!match) return fail("{}: {}", shown_name(key), match.error());
      patterns.entries_.emplace_back(std::move(*match), value);
    }
    return patterns;
  }
  Result<T> find(std::string_view name, T otherwise) const {
    for (const auto& [match, value] : entries_) {
      const Result<bool> hit = match.matches(name);
      if (!hit) return hit.failure();
      if (*hit) return value;
    }
    return otherwise;
  }

 private:
  std::vector<std::pair<WholeMatch, T>> entries_;
};

Result<void> plan_saved(const PeftConfig& peft, const HfConfig& config, nn::LoraConfig& lora) {
  std::vector<std::string> modules = other_modules(config);
  for (const PeftTarget& target : all_targets(config)) modules.push_back(target.name);
  for (const std::string& part : peft.modules_to_save) {
    bool is_found = false;
    for (const std::string& module : modules) {
      if (!module.ends_with(part)) continue;
      is_found = true;
      if (module == kEmbedModule) {
        lora.saved_embed = true;
      } else if (module == kHeadModule) {
        lora.saved_head = true;
      } else if (module == kNormModule) {
        lora.saved_norm = true;
      } else {
        return fail(
            "modules_to_save: {} is {}, which is not supported; the embedding, lm_head and "
            "model.norm are",
            shown_name(part), module);
      }
    }
    if (!is_found) return fail("modules_to_save: the model has no module {}", shown_name(part));
  }
  return {};
}

// The widest rank and all scales of the targets.
void fill(const PeftTarget& target, int64_t layers, nn::LoraConfig& lora) {
  nn::LoraTarget& t = target.kind == PeftTarget::Kind::kEmbed  ? lora.embed
                      : target.kind == PeftTarget::Kind::kHead ? lora.head
                                                               : lora.layers[target.matrix];
  const bool of_layer = target.kind == PeftTarget::Kind::kMatrix;
  const auto n = static_cast<size_t>(of_layer ? layers : 1);
  t.ranks.resize(n, 0);
  t.scales.resize(n, 0.0f);
  const auto at = static_cast<size_t>(of_layer ? target.layer : 0);
  t.ranks[at] = target.rank;
  t.scales[at] = static_cast<float>(target.scale);
  t.rank = std::max(t.rank, target.rank);
}

}  // namespace

std::string_view module_of_matrix(size_t matrix) {
  return kModules.at(matrix);
}

std::vector<PeftTarget> all_targets(const HfConfig& c) {
  const int64_t d = c.hidden_size, q = c.num_attention_heads * c.head_dim,
                kv = c.num_key_value_heads * c.head_dim, f = c.intermediate_size;
  const std::array<std::pair<int64_t, int64_t>, nn::kNumLoraMatrices> in_out = {
      {{d, q}, {d, kv}, {d, kv}, {q, d}, {d, f}, {d, f}, {f, d}}};
  std::vector<PeftTarget> all;
  for (int64_t l = 0; l < c.num_hidden_layers; ++l)
    for (size_t m = 0; m < kModules.size(); ++m)
      all.push_back({fmt::format("model.layers.{}.{}", l, kModules[m]), PeftTarget::Kind::kMatrix,
                     m, l, in_out[m].first, in_out[m].second});
  all.push_back({std::string(kEmbedModule), PeftTarget::Kind::kEmbed, 0, 0, c.vocab_size, d});
  all.push_back({std::string(kHeadModule), PeftTarget::Kind::kHead, 0, 0, d, c.vocab_size});
  return all;
}

Result<PeftPlan> plan_targets(const PeftConfig& peft, const HfConfig& config) {
  PeftPlan plan;
  plan.lora.dropout = peft.lora_dropout;
  if (Result<void> saved = plan_saved(peft, config, plan.lora); !saved) return saved.failure();
  const Result<Matcher> wanted = Matcher::make(peft.target_modules);
  if (!wanted) return fail("target_modules: {}", wanted.error());
  const Result<Matcher> excluded = Matcher::make(peft.exclude_modules);
  if (!excluded) return fail("exclude_modules: {}", excluded.error());
  const Result<Patterns<int64_t>> ranks = Patterns<int64_t>::make(peft.rank_pattern);
  if (!ranks) return fail("rank_pattern: {}", ranks.error());
  const Result<Patterns<double>> alphas = Patterns<double>::make(peft.alpha_pattern);
  if (!alphas) return fail("alpha_pattern: {}", alphas.error());

  const auto is_out = [&](const std::string& name) -> Result<bool> {
    const Result<bool> hit = excluded->matches(name);
    if (!hit) return fail("exclude_modules: {}", hit.error());
    return *hit || std::any_of(peft.modules_to_save.begin(), peft.modules_to_save.end(),
                               [&](const std::string& part) { return is_within(name, part); });
  };
  const auto is_wanted = [&](const std::string& name) -> Result<bool> {
    const Result<bool> hit = wanted->matches(name);
    if (!hit) return fail("target_modules: {}", hit.error());
    return *hit;
  };
  if (!peft.is_all_linear && !peft.layers_to_transform) {
    for (const std::string& name : other_modules(config)) {
      const Result<bool> hit = is_wanted(name), out = is_out(name);
      if (!hit) return hit.failure();
      if (!out) return out.failure();
      if (*hit && !*out) return fail("target_modules: {} takes no adapter", name);
    }
  }
  for (const int64_t layer : peft.layers_to_transform.value_or(std::vector<int64_t>()))
    if (layer >= config.num_hidden_layers)
      return fail("layers_to_transform: expected layers from 0 to {}, got {}",
                  config.num_hidden_layers - 1, layer);
  for (PeftTarget& target : all_targets(config)) {
    const Result<bool> out = is_out(target.name);
    if (!out) return out.failure();
    if (*out) continue;
    const bool of_layer = target.kind == PeftTarget::Kind::kMatrix;
    if (peft.is_all_linear) {
      if (!of_layer) continue;
    } else {
      const Result<bool> hit = is_wanted(target.name);
      if (!hit) return hit.failure();
      if (!*hit) continue;
      if (peft.layers_to_transform) {
        const std::vector<int64_t>& layers = *peft.layers_to_transform;
        if (!of_layer || std::find(layers.begin(), layers.end(), target.layer) == layers.end())
          continue;
      }
    }
    const Result<int64_t> rank = ranks->find(target.name, peft.r);
    if (!rank) return fail("rank_pattern: {}", rank.error());
    const Result<double> alpha = alphas->find(target.name, peft.lora_alpha);
    if (!alpha) return fail("alpha_pattern: {}", alpha.error());
    target.rank = *rank;
    const auto r = static_cast<double>(*rank);
    target.scale = *alpha / (peft.use_rslora ? std::sqrt(r) : r);
    fill(target, config.num_hidden_layers, plan.lora);
    plan.targets.push_back(target);
  }
  if (plan.targets.empty()) return fail("target_modules: the model has no such module");
  return plan;
}

}  // namespace stow::lm
