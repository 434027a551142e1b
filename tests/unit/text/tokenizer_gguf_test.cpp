#include "stowage/text/tokenizer_gguf.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "stowage/base/text_file.h"
#include "stowage/text/tokenizer_folder.h"
#include "tests/support/gguf_kit.h"
#include "tests/support/source_path.h"
#include "tests/support/temporary_folder.h"

namespace stow::text {
namespace {

Json json_of(const std::string& relative) {
  const Result<std::string> text = read_text_file(source_path(relative));
  STOW_CHECK(text.ok(), "{}", text.error());
  Result<Json> json = parse_json(*text);
  STOW_CHECK(json.ok(), "{}", json.error());
  return std::move(*json);
}

// Tokens by id, of one of tests/data/tokenizers.
std::vector<std::string> tokens_of(const Json& tokenizer) {
  std::vector<std::string> tokens;
  for (const JsonMember& member : *tokenizer.find("model")->find("vocab")->as_object()) {
    const auto id = static_cast<size_t>(*member.value.as_int());
    if (id >= tokens.size()) tokens.resize(id + 1);
    tokens[id] = member.key;
  }
  return tokens;
}

std::vector<int32_t> types_of(const Json& tokenizer, size_t n) {
  std::vector<int32_t> types(n, 1);
  for (const Json& token : *tokenizer.find("added_tokens")->as_array())
    types[static_cast<size_t>(*token.find("id")->as_int())] = 3;
  return types;
}

// The entries of a byte-level tokenizer of tests/data/tokenizers.
GgufBuilder byte_level_file(const std::string& name, std::string_view pre) {
  const Json json = json_of("tests/data/tokenizers/" + name + ".json");
  const std::vector<std::string> tokens = tokens_of(json);
  std::vector<std::string> merges;
  for (const Json& merge : *json.find("model")->find("merges")->as_array())
    merges.push_back(*(*merge.as_array())[0].as_string() + " " +
                     *(*merge.as_array())[1].as_string());
  GgufBuilder file;
  file.string("tokenizer.ggml.model", "gpt2").string("tokenizer.ggml.pre", pre);
  file.strings("tokenizer.ggml.tokens", tokens).strings("tokenizer.ggml.merges", merges);
  file.i32s("tokenizer.ggml.token_type", types_of(json, tokens.size()));
  return file;
}

Result<TokenizerFolder> load(const GgufBuilder& builder) {
  const TemporaryFolder folder;
  write_bytes(folder / "a.gguf", builder.build());
  return TokenizerFolder::load(folder / "a.gguf");
}

std::vector<int32_t> ids_of(const Json& json) {
  std::vector<int32_t> ids;
  for (const Json& id : *json.as_array()) ids.push_back(static_cast<int32_t>(*id.as_int()));
  return ids;
}

TEST(TokenizerGguf, GivesTheIdsOfTheTokenizerJsonOfTheSameModel) {
  std::map<std::string, Tokenizer> tokenizers;
  const auto add = [&](const std::string& name, const GgufBuilder& file) {
    Result<TokenizerFolder> loaded = load(file);
    ASSERT_TRUE(loaded.ok()) << loaded.error();
    tokenizers.emplace(name, loaded->tokenizer);
  };
  add("gpt2", byte_level_file("gpt2", "gpt-2"));
  add("digits", byte_level_file("digits", "smollm"));
  add("qwen", byte_level_file("qwen", "qwen2"));
  add("llama3", byte_level_file("llama3", "llama-bpe")
                    .u32("tokenizer.ggml.bos_token_id", 0)
                    .u32("tokenizer.ggml.eos_token_id", 1)
                    .boolean("tokenizer.ggml.add_eos_token", true));
  std::ifstream file(source_path("tests/data/tokenizers/cases.txt"));
  int n = 0;
  for (std::string line; std::getline(file, line);) {
    const Result<Json> row = parse_json(line);
    ASSERT_TRUE(row.ok()) << row.error();
    const auto tokenizer = tokenizers.find(*row->find("tokenizer")->as_string());
    if (tokenizer == tokenizers.end()) continue;
    ++n;
    const std::string& text = *row->find("text")->as_string();
    SCOPED_TRACE(tokenizer->first + ": " + Json(text).dump());
    const std::vector<int32_t> ids = ids_of(*row->find("ids"));
    EXPECT_EQ(*tokenizer->second.encode(text), ids);
    EXPECT_EQ(tokenizer->second.decode(ids), *row->find("decoded")->as_string());
  }
  EXPECT_EQ(n, 412);
}

GgufBuilder sentencepiece_file() {
  const Json json = json_of("tests/data/tokenizers/llama2.json");
  const std::vector<std::string> tokens = tokens_of(json);
  std::vector<int32_t> types = types_of(json, tokens.size());
  types[0] = 2;
  std::string scores = GgufBuilder::raw<uint32_t>(6) + GgufBuilder::raw<uint64_t>(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) scores += GgufBuilder::raw(-static_cast<float>(i));
  GgufBuilder file;
  file.string("tokenizer.ggml.model", "llama").strings("tokenizer.ggml.tokens", tokens);
  file.i32s("tokenizer.ggml.token_type", types).entry("tokenizer.ggml.scores", 9, scores);
  file.u32("tokenizer.ggml.unknown_token_id", 0).u32("tokenizer.ggml.bos_token_id", 1);
  return file;
}

TEST(TokenizerGguf, MergesByScoreAsTransformersDoes) {
  const Result<TokenizerFolder> model = load(sentencepiece_file());
  ASSERT_TRUE(model.ok()) << model.error();
  const Json rows = json_of("tests/data/gguf/sentencepiece.json");
  ASSERT_EQ(rows.as_array()->size(), 20u);
  for (const Json& row : *rows.as_array()) {
    const std::string& text = *row.find("text")->as_string();
    SCOPED_TRACE(Json(text).dump());
    std::vector<int32_t> ids = ids_of(*row.find("ids"));
    EXPECT_EQ(*model->tokenizer.encode(text, {.add_special_tokens = false}), ids);
    ids.insert(ids.begin(), 1);
    EXPECT_EQ(*model->tokenizer.encode(text), ids)
        << "a text begins with BOS unless it says not to";
  }
  EXPECT_EQ(
      model->tokenizer.decode(*model->tokenizer.encode("the quick", {.add_special_tokens = false})),
      "the quick");
}

TEST(TokenizerGguf, OrdersMergesOfOneScoreAsTransformersDoes) {
  const Json golden = json_of("tests/data/gguf/merges.json");
  std::vector<std::string> tokens;
  for (const Json& token : *golden.find("tokens")->as_array()) tokens.push_back(*token.as_string());
  std::string scores = GgufBuilder::raw<uint32_t>(6) + GgufBuilder::raw<uint64_t>(tokens.size());
  for (const Json& score : *golden.find("scores")->as_array())
    scores += GgufBuilder::raw(static_cast<float>(*score.as_double()));
  GgufBuilder builder;
  builder.string("tokenizer.ggml.model", "llama").strings("tokenizer.ggml.tokens", tokens);
  builder.entry("tokenizer.ggml.scores", 9, scores);
  const TemporaryFolder folder;
  write_bytes(folder / "a.gguf", builder.build());
  const Result<GgufFile> file = GgufFile::open(folder / "a.gguf");
  ASSERT_TRUE(file.ok()) << file.error();
  const Result<Json> json = gguf_tokenizer_json(*file);
  ASSERT_TRUE(json.ok()) << json.error();
  EXPECT_EQ(json->find("model")->find("merges")->dump(), golden.find("merges")->dump());
}

TEST(TokenizerGguf, HasTheChatTemplateAndItsTokens) {
  GgufBuilder file = byte_level_file("gpt2", "gpt-2");
  file.u32("tokenizer.ggml.bos_token_id", 2).u32("tokenizer.ggml.eos_token_id", 3);
  file.string("tokenizer.chat_template",
              "{% for m in messages %}{{ bos_token + m['content'] + eos_token }}{% endfor %}");
  const Result<TokenizerFolder> model = load(file);
  ASSERT_TRUE(model.ok()) << model.error();
  const Result<std::string> text =
      model->render_chat(*parse_json(R"([{"role": "user", "content": "hi"}])"));
  ASSERT_TRUE(text.ok()) << text.error();
  EXPECT_EQ(*text, "<|im_start|>hi<|im_end|>");
  EXPECT_EQ(*model->tokenizer.encode("hi"),
            *model->tokenizer.encode("hi", {.add_special_tokens = false}))
      << "no BOS unless the file or its kind says so";
}

// The reason alone, without "PATH: ".
std::string refusal(const GgufBuilder& builder) {
  const Result<TokenizerFolder> model = load(builder);
  if (model.ok()) return "";
  const size_t at = model.error().find(".gguf: ");
  EXPECT_NE(at, std::string::npos) << model.error();
  return model.error().substr(at + 7);
}

TEST(TokenizerGguf, RefusesByName) {
  EXPECT_EQ(refusal(GgufBuilder()), "tokenizer.ggml.model: is missing: the file has no tokenizer");
  const auto with = [](std::string_view model, std::string_view pre) {
    GgufBuilder file;
    file.string("tokenizer.ggml.model", model).string("tokenizer.ggml.pre", pre);
    file.strings("tokenizer.ggml.tokens", {"a", "b", "ab"});
    return file;
  };
  EXPECT_EQ(refusal(with("t5", "")),
            "tokenizer.ggml.model: \"t5\" is not supported; supported are gpt2, llama");
  EXPECT_EQ(
      refusal(with("gpt2", "tekken")),
      "tokenizer.ggml.pre: \"tekken\" is not supported; supported are gpt-2, default, smollm, "
      "llama-bpe, llama3, llama-v3, qwen2, deepseek-r1-qwen");
  EXPECT_EQ(refusal(with("gpt2", "qwen2")),
            "tokenizer.ggml.merges: expected an array, got nothing");
  EXPECT_EQ(refusal(with("gpt2", "qwen2").strings("tokenizer.ggml.merges", {"a c"})),
            "tokenizer.ggml.merges: merge 0 makes 'ac' of 'a' and 'c', and 'c' is not in "
            "model.vocab");
  EXPECT_EQ(refusal(with("llama", "")),
            "tokenizer.ggml.scores: expected an array of 3 numbers, got nothing");
  EXPECT_EQ(refusal(with("gpt2", "qwen2")
                        .strings("tokenizer.ggml.merges", {"a b"})
                        .i32s("tokenizer.ggml.token_type", {1})),
            "tokenizer.ggml.token_type: expected an array of 3 numbers, got [1]");
  EXPECT_EQ(refusal(with("gpt2", "qwen2")
                        .strings("tokenizer.ggml.merges", {"a b"})
                        .boolean("tokenizer.ggml.add_bos_token", true)),
            "tokenizer.ggml.bos_token_id: is missing, and add_bos_token is true");
  EXPECT_EQ(refusal(with("gpt2", "qwen2")
                        .strings("tokenizer.ggml.merges", {"a b"})
                        .u32("tokenizer.ggml.eos_token_id", 3)),
            "tokenizer.ggml.eos_token_id: expected an id below 3, got 3");
  EXPECT_EQ(refusal(with("gpt2", "qwen2")
                        .strings("tokenizer.ggml.merges", {"a b"})
                        .string("tokenizer.chat_template", "{% for %}")),
            "tokenizer.chat_template: line 1: expected a name, got ''");
}

}  // namespace
}  // namespace stow::text
