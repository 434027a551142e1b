// Reads tokenizer.json. Everything that is not understood is refused by name.
#include <algorithm>
#include <utility>

#include "stowage/base/text_file.h"
#include "stowage/io/json.h"
#include "stowage/io/json_fields.h"
#include "stowage/text/tokenizer_impl.h"

namespace stow::text {
namespace {

constexpr JsonLimits kLimits = {.depth = 32, .n_values = 1 << 24};

// A place in the file, for errors: "normalizer.pattern".
using Key = std::string;

Failure unsupported(const Key& key, std::string_view what) {
  return fail("{}: {} is not supported", key, what);
}

bool is_set(const Json* value) {
  return value && !value->is_null();
}

Result<std::string> string_at(const Json& object, std::string_view name, const Key& key) {
  const Json* value = object.find(name);
  if (!value || !value->as_string())
    return fail("{}.{}: expected a string, got {}", key, name, shown(value));
  return *value->as_string();
}

Result<bool> bool_at(const Json& object, std::string_view name, bool otherwise, const Key& key) {
  const Json* value = object.find(name);
  if (!is_set(value)) return otherwise;
  if (!value->as_bool())
    return fail("{}.{}: expected true or false, got {}", key, name, shown(value));
  return *value->as_bool();
}

Result<int64_t> int_at(const Json& object, std::string_view name, int64_t least, int64_t most,
                       const Key& key) {
  const Json* value = object.find(name);
  const Result<int64_t> number = value ? value->as_int() : Result<int64_t>(fail("missing"));
  if (!number || *number < least || *number > most)
    return fail("{}.{}: expected an integer from {} to {}, got {}", key, name, least, most,
                shown(value));
  return *number;
}

// A pattern as {"Regex": …} or {"String": …}.
Result<Regex> pattern_at(const Json& object, const Key& key) {
  const Json* pattern = object.find("pattern");
  if (!pattern || !pattern->is_object())
    return fail("{}.pattern: expected an object, got {}", key, shown(pattern));
  if (const Json* text = pattern->find("String"); text && text->as_string())
    return Regex::literal(*text->as_string());
  Result<std::string> text = string_at(*pattern, "Regex", key + ".pattern");
  if (!text) return text.failure();
  Result<Regex> regex = Regex::compile(*text);
  if (!regex) return fail("{}.pattern.Regex: {}", key, regex.error());
  return regex;
}

Result<Replace> replace_at(const Json& step, const Key& key) {
  Result<Regex> pattern = pattern_at(step, key);
  if (!pattern) return pattern.failure();
  Result<std::string> content = string_at(step, "content", key);
  if (!content) return content.failure();
  return Replace{std::move(*pattern), std::move(*content)};
}

// Calls `read` for the object of a step, or for each one of a sequence of steps.
template <typename Read>
Result<void> each_step(const Json* value, const Key& key, std::string_view list, const Read& read) {
  if (!is_set(value)) return {};
  Result<std::string> type = string_at(*value, "type", key);
  if (!type) return type.failure();
  if (*type != "Sequence") return read(*value, *type, key);
  const Json* steps = value->find(list);
  if (!steps || !steps->as_array())
    return fail("{}.{}: expected an array, got {}", key, list, shown(steps));
  for (size_t i = 0; i < steps->as_array()->size(); ++i) {
    const Result<void> done =
        each_step(&(*steps->as_array())[i], fmt::format("{}.{}[{}]", key, list, i), list, read);
    if (!done) return done;
  }
  return {};
}

Result<void> read_normalizer(const Json& json, Tokenizer::Impl& out) {
  return each_step(json.find("normalizer"), "normalizer", "normalizers",
                   [&](const Json& step, const std::string& type, const Key& key) -> Result<void> {
                     constexpr std::pair<std::string_view, NormalForm> kForms[] = {
                         {"NFC", NormalForm::kNfc},
                         {"NFD", NormalForm::kNfd},
                         {"NFKC", NormalForm::kNfkc},
                         {"NFKD", NormalForm::kNfkd}};
                     for (const auto& [name, form] : kForms)
                       if (type == name) return out.normalizers.emplace_back(form), Result<void>();
                     if (type == "Prepend") {
                       Result<std::string> text = string_at(step, "prepend", key);
                       if (!text) return text.failure();
                       out.normalizers.emplace_back(Prepend{std::move(*text)});
                       return {};
                     }
                     if (type == "Replace") {
                       Result<Replace> replace = replace_at(step, key);
                       if (!replace) return replace.failure();
                       out.normalizers.emplace_back(std::move(*replace));
                       return {};
                     }
                     return unsupported(key, "the normalizer " + type);
                   });
}

Result<SplitBehavior> behavior_at(const Json& step, const Key& key) {
  constexpr std::pair<std::string_view, SplitBehavior> kBehaviors[] = {
      {"Isolated", SplitBehavior::kIsolated},
      {"Removed", SplitBehavior::kRemoved},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous}};
  Result<std::string> name = string_at(step, "behavior", key);
  if (!name) return name.failure();
  for (const auto& [known, behavior] : kBehaviors)
    if (*name == known) return behavior;
  return unsupported(key + ".behavior", *name);
}

struct MetaspaceFields {
  std::string replacement;
  Metaspace::Prepend prepend = Metaspace::Prepend::kAlways;
};
Result<MetaspaceFields> metaspace_at(const Json& step, const Key& key) {
  MetaspaceFields fields;
  Result<std::string> replacement = string_at(step, "replacement", key);
  if (!replacement) return replacement.failure();
  if (replacement->empty())
    return fail("{}.replacement: expected a character, got an empty text", key);
  fields.replacement = std::move(*replacement);
  const Result<bool> adds = bool_at(step, "add_prefix_space", true, key);
  if (!adds) return adds.failure();
  if (!*adds) fields.prepend = Metaspace::Prepend::kNever;
  if (is_set(step.find("prepend_scheme"))) {
    Result<std::string> scheme = string_at(step, "prepend_scheme", key);
    if (!scheme) return scheme.failure();
    if (*scheme == "always")
      fields.prepend = Metaspace::Prepend::kAlways;
    else if (*scheme == "first")
      fields.prepend = Metaspace::Prepend::kFirst;
    else if (*scheme == "never")
      fields.prepend = Metaspace::Prepend::kNever;
    else
      return unsupported(key + ".prepend_scheme", *scheme);
  }
  return fields;
}

Result<void> read_pre_tokenizer(const Json& json, Tokenizer::Impl& out, bool& byte_level) {
  byte_level = false;
  return each_step(
      json.find("pre_tokenizer"), "pre_tokenizer", "pretokenizers",
      [&](const Json& step, const std::string& type, const Key& key) -> Result<void> {
        if (byte_level) return unsupported(key, "a step behind ByteLevel");
        if (type == "Split") {
          Result<Regex> pattern = pattern_at(step, key);
          if (!pattern) return pattern.failure();
          const Result<SplitBehavior> behavior = behavior_at(step, key);
          if (!behavior) return behavior.failure();
          const Result<bool> invert = bool_at(step, "invert", false, key);
          if (!invert) return invert.failure();
          out.pre_tokenizers.emplace_back(SplitByPattern{std::move(*pattern), *behavior, *invert});
          return {};
        }
        if (type == "Digits") {
          const Result<bool> individual = bool_at(step, "individual_digits", false, key);
          if (!individual) return individual.failure();
          out.pre_tokenizers.emplace_back(SplitDigits{*individual});
          return {};
        }
        if (type == "ByteLevel") {
          const Result<bool> space = bool_at(step, "add_prefix_space", true, key);
          if (!space) return space.failure();
          const Result<bool> regex = bool_at(step, "use_regex", true, key);
          if (!regex) return regex.failure();
          out.pre_tokenizers.emplace_back(ByteLevel{*space, *regex});
          byte_level = true;
          return {};
        }
        if (type == "Metaspace") {
          Result<MetaspaceFields> fields = metaspace_at(step, key);
          if (!fields) return fields.failure();
          const Result<bool> split = bool_at(step, "split", true, key);
          if (!split) return split.failure();
          out.pre_tokenizers.emplace_back(
              Metaspace{std::move(fields->replacement), fields->prepend, *split});
          return {};
        }
        return unsupported(key, "the pre-tokenizer " + type);
      });
}

Result<void> read_merges(const Json& model, BpeModel& out) {
  const Json* merges = model.find("merges");
  if (!merges || !merges->as_array())
    return fail("model.merges: expected an array, got {}", shown(merges));
  out.merges.reserve(merges->as_array()->size());
  for (const Json& merge : *merges->as_array()) {
    const size_t i = out.merges.size();
    if (const std::string* text = merge.as_string()) {
      const size_t space = text->find(' ');
      if (space == std::string::npos || text->find(' ', space + 1) != std::string::npos)
        return fail("model.merges[{}]: expected two tokens with a space between, got '{}'", i,
                    *text);
      out.merges.emplace_back(text->substr(0, space), text->substr(space + 1));
    } else if (const Json::Array* pair = merge.as_array();
               pair && pair->size() == 2 && (*pair)[0].as_string() && (*pair)[1].as_string()) {
      out.merges.emplace_back(*(*pair)[0].as_string(), *(*pair)[1].as_string());
    } else {
      return fail("model.merges[{}]: expected two tokens, got {}", i, shown(merge));
    }
  }
  return {};
}

Result<void> read_model(const Json& json, bool byte_level, Tokenizer::Impl& out) {
  const Json* model = json.find("model");
  if (!model || !model->is_object()) return fail("model: expected an object, got {}", shown(model));
  // Files of old have no type.
  if (is_set(model->find("type"))) {
    Result<std::string> type = string_at(*model, "type", "model");
    if (!type) return type.failure();
    if (*type != "BPE") return unsupported("model", "the model " + *type);
  }
  BpeModel bpe;
  bpe.byte_level = byte_level;
  const Json* vocab = model->find("vocab");
  if (!vocab || !vocab->as_object())
    return fail("model.vocab: expected an object, got {}", shown(vocab));
  bpe.vocab.reserve(vocab->as_object()->size());
  for (const JsonMember& member : *vocab->as_object()) {
    const Result<int64_t> id = member.value.as_int();
    if (!id || *id < 0 || *id > INT32_MAX)
      return fail("model.vocab: expected an id for '{}', got {}", member.key, shown(member.value));
    bpe.vocab.emplace_back(member.key, static_cast<int32_t>(*id));
  }
  if (Result<void> done = read_merges(*model, bpe); !done) return done;
  for (const std::string_view name : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (const Json* text = model->find(name);
        is_set(text) && !(text->as_string() && text->as_string()->empty()))
      return unsupported("model", name);
  if (const Json* dropout = model->find("dropout"); is_set(dropout)) {
    const Result<double> share = dropout->as_double();
    if (!share || *share != 0) return unsupported("model", "dropout");
  }
  if (is_set(model->find("unk_token"))) {
    Result<std::string> unk = string_at(*model, "unk_token", "model");
    if (!unk) return unk.failure();
    bpe.unk_token = std::move(*unk);
  }
  for (const auto& [name, flag] :
       {std::pair<std::string_view, bool BpeModel::*>{"fuse_unk", &BpeModel::fuse_unk},
        {"byte_fallback", &BpeModel::byte_fallback},
        {"ignore_merges", &BpeModel::ignore_merges}}) {
    const Result<bool> value = bool_at(*model, name, false, "model");
    if (!value) return value.failure();
    bpe.*flag = *value;
  }
  Result<Bpe> made = Bpe::create(std::move(bpe));
  if (!made) return made.failure();
  out.bpe = std::move(*made);
  return {};
}

Result<void> read_added_tokens(const Json& json, Tokenizer::Impl& out) {
  const Json* list = json.find("added_tokens");
  if (!is_set(list)) return {};
  if (!list->as_array()) return fail("added_tokens: expected an array, got {}", shown(list));
  for (const Json& entry : *list->as_array()) {
    const Key key = fmt::format("added_tokens[{}]", out.added.size());
    AddedToken token;
    const Result<int64_t> id = int_at(entry, "id", 0, (1 << 24) - 1, key);
    if (!id) return id.failure();
    token.id = static_cast<int32_t>(*id);
    Result<std::string> content = string_at(entry, "content", key);
    if (!content) return content.failure();
    token.content = std::move(*content);
    for (const auto& [name, flag, otherwise] :
         {std::tuple<std::string_view, bool AddedToken::*, bool>{"single_word",
                                                                 &AddedToken::single_word, false},
          {"lstrip", &AddedToken::lstrip, false},
          {"rstrip", &AddedToken::rstrip, false},
          {"normalized", &AddedToken::normalized, true},
          {"special", &AddedToken::special, false}}) {
      const Result<bool> value = bool_at(entry, name, otherwise, key);
      if (!value) return value.failure();
      token.*flag = *value;
    }
    if (const int32_t in_model = out.bpe.id_of(token.content);
        in_model >= 0 && in_model != token.id)
      return fail("{}: '{}' has the id {} here and {} in model.vocab", key, token.content, token.id,
                  in_model);
    if (const std::string* other = out.bpe.token_of(token.id); other && *other != token.content)
      return fail("{}: the id {} of '{}' is that of '{}' in model.vocab", key, token.id,
                  token.content, *other);
    if (!out.added_by_id.emplace(token.id, out.added.size()).second)
      return fail("{}: the id {} stands there twice", key, token.id);
    if (!out.added_ids.emplace(token.content, token.id).second)
      return fail("{}: '{}' stands there twice", key, token.content);
    out.added.push_back(std::move(token));
  }
  std::vector<AddedTokenMatcher::Pattern> raw, normalized;
  for (AddedToken& token : out.added) {
    if (!token.normalized) {
      raw.push_back({token.content, token});
      continue;
    }
    Result<std::string> text = normalize_text(out.normalizers, token.content);
    if (!text) return fail("added_tokens: '{}': {}", token.content, text.error());
    token.normal_form = *text;
    normalized.push_back({std::move(*text), token});
  }
  out.raw_matcher = AddedTokenMatcher(std::move(raw));
  out.normalized_matcher = AddedTokenMatcher(std::move(normalized));
  return {};
}

// The ids that a post-processor puts around one text.
Result<void> read_template(const Json& step, const Key& key, Tokenizer::Impl& out) {
  const Json* single = step.find("single");
  if (!single || !single->as_array())
    return fail("{}.single: expected an array, got {}", key, shown(single));
  std::vector<int32_t> before, behind;
  bool has_text = false;
  for (const Json& piece : *single->as_array()) {
    if (piece.find("Sequence")) {
      if (has_text) return unsupported(key + ".single", "the text twice");
      has_text = true;
      continue;
    }
    const Json* token = piece.find("SpecialToken");
    if (!token)
      return fail("{}.single: expected Sequence or SpecialToken, got {}", key, shown(piece));
    Result<std::string> name = string_at(*token, "id", key + ".single");
    if (!name) return name.failure();
    const Json* tokens = step.find("special_tokens");
    const Json* entry = tokens ? tokens->find(*name) : nullptr;
    const Json* ids = entry ? entry->find("ids") : nullptr;
    if (!ids || !ids->as_array())
      return fail("{}.special_tokens.{}.ids: expected an array, got {}", key, *name, shown(ids));
    for (const Json& id : *ids->as_array()) {
      const Result<int64_t> number = id.as_int();
      if (!number || *number < 0 || *number >= 1 << 24)
        return fail("{}.special_tokens.{}.ids: expected ids from 0 to {}, got {}", key, *name,
                    (1 << 24) - 1, shown(id));
      (has_text ? behind : before).push_back(static_cast<int32_t>(*number));
    }
  }
  if (!has_text) return unsupported(key + ".single", "a template without the text");
  out.prefix.insert(out.prefix.begin(), before.begin(), before.end());
  out.suffix.insert(out.suffix.end(), behind.begin(), behind.end());
  return {};
}

Result<void> read_post_processor(const Json& json, Tokenizer::Impl& out) {
  return each_step(json.find("post_processor"), "post_processor", "processors",
                   [&](const Json& step, const std::string& type, const Key& key) -> Result<void> {
                     if (type == "ByteLevel") return {};  // It moves offsets alone.
                     if (type == "TemplateProcessing") return read_template(step, key, out);
                     return unsupported(key, "the post-processor " + type);
                   });
}

Result<void> read_decoder(const Json& json, Tokenizer::Impl& out) {
  return each_step(
      json.find("decoder"), "decoder", "decoders",
      [&](const Json& step, const std::string& type, const Key& key) -> Result<void> {
        if (type == "ByteLevel") return out.decoder.emplace_back(DecodeByteLevel{}), Result<void>();
        if (type == "Fuse") return out.decoder.emplace_back(DecodeFuse{}), Result<void>();
        if (type == "ByteFallback")
          return out.decoder.emplace_back(DecodeByteFallback{}), Result<void>();
        if (type == "Strip") {
          DecodeStrip strip;
          Result<std::string> content = string_at(step, "content", key);
          if (!content) return content.failure();
          strip.content = std::move(*content);
          if (strip.content.empty())
            return fail("{}.content: expected a character, got an empty text", key);
          const Result<int64_t> start = int_at(step, "start", 0, 1 << 20, key);
          if (!start) return start.failure();
          const Result<int64_t> stop = int_at(step, "stop", 0, 1 << 20, key);
          if (!stop) return stop.failure();
          strip.start = static_cast<size_t>(*start);
          strip.stop = static_cast<size_t>(*stop);
          out.decoder.emplace_back(std::move(strip));
          return {};
        }
        if (type == "Replace") {
          Result<Replace> replace = replace_at(step, key);
          if (!replace) return replace.failure();
          out.decoder.emplace_back(std::move(*replace));
          return {};
        }
        if (type == "Metaspace") {
          Result<MetaspaceFields> fields = metaspace_at(step, key);
          if (!fields) return fields.failure();
          out.decoder.emplace_back(DecodeMetaspace{std::move(fields->replacement),
                                                   fields->prepend != Metaspace::Prepend::kNever});
          return {};
        }
        return unsupported(key, "the decoder " + type);
      });
}

Result<void> read_all(const Json& json, Tokenizer::Impl& out) {
  if (!json.is_object()) return fail("expected an object, got {}", shown(json));
  bool byte_level = false;
  if (Result<void> done = read_normalizer(json, out); !done) return done;
  if (Result<void> done = read_pre_tokenizer(json, out, byte_level); !done) return done;
  if (Result<void> done = read_model(json, byte_level, out); !done) return done;
  if (Result<void> done = read_added_tokens(json, out); !done) return done;
  if (Result<void> done = read_post_processor(json, out); !done) return done;
  if (Result<void> done = read_decoder(json, out); !done) return done;
  out.end_id = out.bpe.end_id();
  for (const AddedToken& token : out.added) out.end_id = std::max(out.end_id, token.id + 1);
  return {};
}

}  // namespace

Result<Tokenizer> Tokenizer::parse(std::string_view text, const std::string& name) {
  const Result<Json> json = parse_json(text, kLimits);
  if (!json) return fail("{}: {}", name, json.error());
  Result<Tokenizer> tokenizer = from_json(*json);
  if (!tokenizer) return fail("{}: {}", name, tokenizer.error());
  return tokenizer;
}

Result<Tokenizer> Tokenizer::from_json(const Json& json) {
  auto impl = std::make_shared<Impl>();
  if (const Result<void> done = read_all(json, *impl); !done) return done.failure();
  return Tokenizer(std::move(impl));
}

Result<Tokenizer> Tokenizer::load(const std::string& path) {
  const Result<std::string> text = read_text_file(path);
  if (!text) return text.failure();
  return parse(*text, path);
}

}  // namespace stow::text
