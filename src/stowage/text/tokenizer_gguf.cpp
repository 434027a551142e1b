#include "stowage/text/tokenizer_gguf.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <utility>

#include "stowage/io/json_fields.h"

namespace stow::text {
namespace {

constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

// A pre-tokenizer that tokenizer.ggml.pre names. Source: llama.cpp, llama-vocab.cpp, and the
// tokenizer.json of the models that it is written for.
struct PreName {
  std::string_view name;
  std::string_view pattern;  // of Split; empty: GPT-2's
  bool digits = false, nfc = false;
  bool ignore_merges = false, adds_bos = false;
};
constexpr PreName kPreNames[] = {
    {"gpt-2", ""},
    {"default", ""},
    {"smollm", "", true},
    {"llama-bpe", kLlama3, false, false, true, true},
    {"llama3", kLlama3, false, false, true, true},
    {"llama-v3", kLlama3, false, false, true, true},
    {"qwen2", kQwen2, false, true},
    {"deepseek-r1-qwen", kQwen2, false, true},
};

// token_type of a token.
enum TokenType : int64_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4 };

constexpr size_t kMaxTokens = 1 << 21;
constexpr std::string_view kWordMark = "\xE2\x96\x81";

Json step(std::string_view type) {
  return Json::object({{"type", type}});
}

Json sequence(std::string_view key, Json::Array steps) {
  Json json = step("Sequence");
  json.set(key, Json(std::move(steps)));
  return json;
}

// A piece of a template.
Json piece(std::string_view kind, std::string_view id, int64_t type_id) {
  return Json::object({{std::string(kind), Json::object({{"id", id}, {"type_id", type_id}})}});
}

// A step of byte-level BPE, with all fields that tokenizers asks for.
Json byte_level_step(bool use_regex) {
  Json json = step("ByteLevel");
  json.set("add_prefix_space", false);
  json.set("trim_offsets", true);
  json.set("use_regex", use_regex);
  return json;
}

// The entries of tokenizer.ggml.
class Reader {
 public:
  explicit Reader(const Json& metadata) : metadata_(metadata) {}

  Result<Json> tokenizer();

 private:
  static constexpr std::string_view kPrefix = "tokenizer.ggml.";
  const Json* find(std::string_view key) const {
    return metadata_.find(std::string(kPrefix) + std::string(key));
  }
  template <typename... Args>
  static Failure bad(std::string_view key, fmt::format_string<Args...> format, Args&&... args) {
    return fail("{}{}: {}", kPrefix, key, fmt::format(format, std::forward<Args>(args)...));
  }
  Result<bool> flag(std::string_view key, bool otherwise) const;
  // The token of an entry that is an id; none where it is absent.
  Result<std::optional<int64_t>> id(std::string_view key) const;

  Result<void> read_tokens();
  Result<void> add_ends(Json& json, bool adds_bos) const;
  Json added_tokens() const;
  Json vocabulary() const;
  Result<Json> byte_level() const;
  Result<Json> sentencepiece() const;
  Result<Json> merges_by_score() const;

  const Json& metadata_;
  std::vector<std::string_view> tokens_;
  std::vector<int64_t> types_;  // by token; empty: none is given
};

Result<bool> Reader::flag(std::string_view key, bool otherwise) const {
  const Json* value = find(key);
  if (!value) return otherwise;
  if (!value->as_bool()) return bad(key, "expected a bool, got {}", shown(*value));
  return *value->as_bool();
}

Result<std::optional<int64_t>> Reader::id(std::string_view key) const {
  const Json* value = find(key);
  if (!value) return std::optional<int64_t>();
  const Result<int64_t> number = value->as_int();
  if (!number || *number < 0 || *number >= static_cast<int64_t>(tokens_.size()))
    return bad(key, "expected an id below {}, got {}", tokens_.size(), shown(*value));
  return std::optional(*number);
}

Result<void> Reader::read_tokens() {
  const Json* tokens = find("tokens");
  if (!tokens || !tokens->as_array())
    return bad("tokens", "expected an array, got {}", shown(tokens));
  if (tokens->as_array()->size() > kMaxTokens)
    return bad("tokens", "expected at most {} tokens, got {}", kMaxTokens,
               tokens->as_array()->size());
  for (const Json& token : *tokens->as_array()) {
    if (!token.as_string()) return bad("tokens", "expected texts, got {}", shown(token));
    if (!is_utf8(*token.as_string())) return bad("tokens", "{} is not UTF-8", shown(token));
    tokens_.push_back(*token.as_string());
  }
  const Json* types = find("token_type");
  if (!types) return {};
  if (!types->as_array() || types->as_array()->size() != tokens_.size())
    return bad("token_type", "expected an array of {} numbers, got {}", tokens_.size(),
               shown(*types));
  for (const Json& type : *types->as_array()) {
    const Result<int64_t> number = type.as_int();
    if (!number) return bad("token_type", "expected numbers, got {}", shown(type));
    types_.push_back(*number);
  }
  return {};
}

// Control tokens are special; those of users are found in the text too.
Json Reader::added_tokens() const {
  Json added = Json::array();
  for (size_t i = 0; i < types_.size(); ++i) {
    const bool special = types_[i] == kControl || types_[i] == kUnknown;
    if ((!special && types_[i] != kUserDefined) || tokens_[i].empty()) continue;
    added.push_back(Json::object({{"id", i},
                                  {"content", tokens_[i]},
                                  {"single_word", false},
                                  {"lstrip", false},
                                  {"rstrip", false},
                                  {"normalized", false},
                                  {"special", special}}));
  }
  return added;
}

Json Reader::vocabulary() const {
  Json::Object vocab;
  vocab.reserve(tokens_.size());
  for (size_t i = 0; i < tokens_.size(); ++i)
    vocab.push_back({std::string(tokens_[i]), Json(static_cast<int64_t>(i))});
  return Json(std::move(vocab));
}

// The tokens around a text, as a post-processor.
Result<void> Reader::add_ends(Json& json, bool adds_bos) const {
  Json single = Json::array(), special = Json::object();
  const auto add = [&](std::string_view flag_key, std::string_view id_key,
                       bool otherwise) -> Result<void> {
    const Result<bool> wanted = flag(flag_key, otherwise);
    if (!wanted) return wanted.failure();
    if (!*wanted) return {};
    const Result<std::optional<int64_t>> token = id(id_key);
    if (!token) return token.failure();
    // A default that the file has no token for.
    if (!*token && !find(flag_key)) return {};
    if (!*token) return bad(id_key, "is missing, and {} is true", flag_key);
    const std::string_view name = tokens_[static_cast<size_t>(**token)];
    single.push_back(piece("SpecialToken", name, 0));
    special.set(name, Json::object({{"id", name},
                                    {"ids", Json(Json::Array{Json(**token)})},
                                    {"tokens", Json(Json::Array{Json(name)})}}));
    return {};
  };
  if (Result<void> done = add("add_bos_token", "bos_token_id", adds_bos); !done) return done;
  single.push_back(piece("Sequence", "A", 0));
  if (Result<void> done = add("add_eos_token", "eos_token_id", false); !done) return done;
  Json post = step("TemplateProcessing");
  post.set("single", std::move(single));
  // Pairs are not encoded here, but tokenizers asks for their template.
  post.set("pair", Json(Json::Array{piece("Sequence", "A", 0), piece("Sequence", "B", 1)}));
  post.set("special_tokens", std::move(special));
  json.set("post_processor", std::move(post));
  return {};
}

Result<Json> Reader::byte_level() const {
  const Json* pre = find("pre");
  const PreName* known = nullptr;
  std::string_view name = "default";
  if (pre && pre->as_string()) name = *pre->as_string();
  for (const PreName& p : kPreNames)
    if (p.name == name) known = &p;
  if (!known || (pre && !pre->as_string())) {
    std::string names;
    for (const PreName& p : kPreNames) names += (names.empty() ? "" : ", ") + std::string(p.name);
    return bad("pre", "{} is not supported; supported are {}", shown(*pre), names);
  }
  const Json* merges = find("merges");
  if (!merges || !merges->as_array())
    return bad("merges", "expected an array, got {}", shown(merges));

  Json json = Json::object();
  if (known->nfc) json.set("normalizer", step("NFC"));
  Json::Array steps;
  if (known->digits) {
    Json digits = step("Digits");
    digits.set("individual_digits", true);
    steps.push_back(std::move(digits));
  }
  if (!known->pattern.empty()) {
    Json split = step("Split");
    split.set("pattern", Json::object({{"Regex", known->pattern}}));
    split.set("behavior", "Isolated");
    split.set("invert", false);
    steps.push_back(std::move(split));
  }
  steps.push_back(byte_level_step(known->pattern.empty()));
  json.set("pre_tokenizer", sequence("pretokenizers", std::move(steps)));
  json.set("decoder", byte_level_step(true));
  json.set("model", Json::object({{"type", "BPE"},
                                  {"vocab", vocabulary()},
                                  {"merges", *merges},
                                  {"ignore_merges", known->ignore_merges}}));
  if (Result<void> done = add_ends(json, known->adds_bos); !done) return done.failure();
  return json;
}

// Every way to make a token of two others, the best score first. Source: transformers,
// tokenization_utils_base.py, generate_merges.
Result<Json> Reader::merges_by_score() const {
  constexpr size_t kMaxTokenBytes = 256;
  const Json* scores = find("scores");
  if (!scores || !scores->as_array() || scores->as_array()->size() != tokens_.size())
    return bad("scores", "expected an array of {} numbers, got {}", tokens_.size(),
               shown(scores));
  std::unordered_map<std::string_view, size_t> ids;
  for (size_t i = 0; i < tokens_.size(); ++i) ids[tokens_[i]] = i;
  struct Merge {
    double score;
    size_t left_chars, right_chars;
    std::string_view left, right;
    std::pair<size_t, size_t> parts;
  };
  const auto is_start = [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; };
  std::vector<Merge> merges;
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const Result<double> score = (*scores->as_array())[i].as_double();
    if (!score || !std::isfinite(*score))
      return bad("scores", "expected finite numbers, got {}", shown((*scores->as_array())[i]));
    const std::string_view token = tokens_[i];
    if (token.size() > kMaxTokenBytes)
      return bad("tokens", "expected tokens of at most {} bytes, got one of {}", kMaxTokenBytes,
                 token.size());
    const auto n_chars = static_cast<size_t>(std::count_if(token.begin(), token.end(), is_start));
    const size_t first = merges.size();
    size_t chars = 1;
    for (size_t cut = 1; cut < token.size(); ++cut) {
      if (!is_start(token[cut])) continue;
      const std::string_view left = token.substr(0, cut), right = token.substr(cut);
      const auto l = ids.find(left), r = ids.find(right);
      if (l != ids.end() && r != ids.end())
        merges.push_back({*score, chars, n_chars - chars, left, right, {l->second, r->second}});
      ++chars;
    }
    std::sort(merges.begin() + static_cast<std::ptrdiff_t>(first), merges.end(),
              [](const Merge& a, const Merge& b) { return a.parts < b.parts; });
  }
  std::stable_sort(merges.begin(), merges.end(), [](const Merge& a, const Merge& b) {
    return std::tie(a.score, a.left_chars, a.right_chars) >
           std::tie(b.score, b.left_chars, b.right_chars);
  });
  Json::Array pairs;
  pairs.reserve(merges.size());
  for (const Merge& m : merges) pairs.push_back(Json(Json::Array{Json(m.left), Json(m.right)}));
  return Json(std::move(pairs));
}

Result<Json> Reader::sentencepiece() const {
  Result<Json> merges = [&]() -> Result<Json> {
    const Json* given = find("merges");
    if (given && given->as_array()) return *given;
    return merges_by_score();
  }();
  if (!merges) return merges;
  const Result<bool> space = flag("add_space_prefix", true);
  if (!space) return space.failure();
  const Result<std::optional<int64_t>> unknown = id("unknown_token_id");
  if (!unknown) return unknown.failure();

  Json json = Json::object();
  Json pre = step("Metaspace");
  pre.set("replacement", kWordMark);
  pre.set("prepend_scheme", *space ? "first" : "never");
  pre.set("split", false);
  json.set("pre_tokenizer", std::move(pre));
  Json model = Json::object({{"type", "BPE"},
                             {"vocab", vocabulary()},
                             {"merges", std::move(*merges)},
                             {"fuse_unk", true},
                             {"byte_fallback", true}});
  if (*unknown) model.set("unk_token", tokens_[static_cast<size_t>(**unknown)]);
  json.set("model", std::move(model));
  Json replace = step("Replace");
  replace.set("pattern", Json::object({{"String", kWordMark}}));
  replace.set("content", " ");
  Json::Array decoders = {std::move(replace), step("ByteFallback"), step("Fuse")};
  if (*space) {
    Json strip = step("Strip");
    strip.set("content", " ");
    strip.set("start", 1);
    strip.set("stop", 0);
    decoders.push_back(std::move(strip));
  }
  json.set("decoder", sequence("decoders", std::move(decoders)));
  if (Result<void> done = add_ends(json, true); !done) return done.failure();
  return json;
}

Result<Json> Reader::tokenizer() {
  const Json* model = find("model");
  if (!model) return bad("model", "is missing: the file has no tokenizer");
  if (Result<void> done = read_tokens(); !done) return done.failure();
  Result<Json> json = *model == Json("gpt2")    ? byte_level()
                      : *model == Json("llama") ? sentencepiece()
                                                : Result<Json>(bad("model",
                                                                   "{} is not supported; supported "
                                                                   "are gpt2, llama",
                                                                   shown(*model)));
  if (!json) return json;
  json->set("version", "1.0");
  json->set("added_tokens", added_tokens());
  return json;
}

// An error about the tokenizer.json that was made, with the key of the file.
std::string with_file_key(const std::string& error) {
  for (const auto& [made, key] : {std::pair("model.vocab", "tokenizer.ggml.tokens"),
                                  std::pair("model.merges", "tokenizer.ggml.merges"),
                                  std::pair("model.unk_token", "tokenizer.ggml.unknown_token_id"),
                                  std::pair("added_tokens", "tokenizer.ggml.tokens")})
    if (error.starts_with(made)) return key + error.substr(std::string_view(made).size());
  return error;
}

}  // namespace

Result<Json> gguf_tokenizer_json(const GgufFile& file) {
  Result<Json> json = Reader(file.metadata()).tokenizer();
  if (!json) return fail("{}: {}", file.path(), json.error());
  return json;
}

Result<Tokenizer> gguf_tokenizer(const GgufFile& file) {
  const Result<Json> json = gguf_tokenizer_json(file);
  if (!json) return json.failure();
  Result<Tokenizer> tokenizer = Tokenizer::from_json(*json);
  if (!tokenizer) return fail("{}: {}", file.path(), with_file_key(tokenizer.error()));
  return tokenizer;
}

}  // namespace stow::text
