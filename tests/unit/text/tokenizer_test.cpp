#include "stowage/text/tokenizer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "stowage/base/text_file.h"
#include "stowage/io/json.h"
#include "tests/support/source_path.h"

namespace stow::text {
namespace {

std::vector<int32_t> ids_of(const Json& array) {
  std::vector<int32_t> ids;
  for (const Json& id : *array.as_array()) ids.push_back(static_cast<int32_t>(*id.as_int()));
  return ids;
}

std::string file_of(const std::string& name) {
  return source_path("tests/data/tokenizers/" + name + ".json");
}

std::string streamed(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  StreamDecoder decoder(tokenizer);
  std::string text;
  for (const int32_t id : ids) {
    const std::string piece = decoder.push(id);
    EXPECT_TRUE(is_utf8(piece)) << text;
    text += piece;
  }
  return text + decoder.finish();
}

// What Hugging Face's tokenizers makes of texts: tests/data/make_tokenizers.py.
TEST(Tokenizer, DoesAsTheReference) {
  std::ifstream file(source_path("tests/data/tokenizers/cases.txt"));
  std::map<std::string, Tokenizer> tokenizers;
  int n = 0;
  for (std::string line; std::getline(file, line); ++n) {
    const Result<Json> row = parse_json(line);
    ASSERT_TRUE(row.ok()) << row.error();
    const std::string& name = *row->find("tokenizer")->as_string();
    if (!tokenizers.contains(name)) {
      Result<Tokenizer> loaded = Tokenizer::load(file_of(name));
      ASSERT_TRUE(loaded.ok()) << loaded.error();
      tokenizers.emplace(name, std::move(*loaded));
    }
    const Tokenizer& tokenizer = tokenizers.at(name);
    const std::string& text = *row->find("text")->as_string();
    SCOPED_TRACE(name + ": " + Json(text).dump());
    const std::vector<int32_t> ids = ids_of(*row->find("ids"));
    EXPECT_EQ(*tokenizer.encode(text), ids);
    EXPECT_EQ(*tokenizer.encode(text, {.add_special_tokens = false}), ids_of(*row->find("plain")));
    EXPECT_EQ(tokenizer.decode(ids), *row->find("decoded")->as_string());
    EXPECT_EQ(tokenizer.decode(ids, {.skip_special_tokens = true}),
              *row->find("without_special")->as_string());
    EXPECT_EQ(streamed(tokenizer, ids), tokenizer.decode(ids));
  }
  EXPECT_EQ(n, 824);
}

TEST(Tokenizer, KnownWordsHaveTheSameIdsAgain) {
  const Result<Tokenizer> tokenizer = Tokenizer::load(file_of("qwen"));
  const std::string text = "the same words, the same words";
  const std::vector<int32_t> first = *tokenizer->encode(text);
  EXPECT_EQ(*tokenizer->encode(text), first);
}

TEST(Tokenizer, LongWordsAreMergedAsShortOnes) {
  // Words of up to 40 symbols are merged by search, longer ones by a heap: the ids of a long word
  // that the merges cut at a boundary are those of its parts.
  const Result<Tokenizer> tokenizer = Tokenizer::load(file_of("llama2"));
  for (const size_t n : {30u, 39u, 40u, 41u, 42u, 80u, 400u}) {
    std::string text;
    for (size_t i = 0; i < n; ++i) text += "the quick brown"[i % 15];
    const std::vector<int32_t> ids = *tokenizer->encode(text, {.add_special_tokens = false});
    EXPECT_EQ(tokenizer->decode(ids), text);
    EXPECT_LT(ids.size(), n);
  }
}

TEST(Tokenizer, NamesIdsAndTokens) {
  const Result<Tokenizer> tokenizer = Tokenizer::load(file_of("llama3"));
  EXPECT_EQ(tokenizer->id_of("<s>"), 0);
  EXPECT_EQ(tokenizer->token_of(0), "<s>");
  EXPECT_TRUE(tokenizer->is_special(0));
  EXPECT_EQ(tokenizer->id_of("no such token"), -1);
  EXPECT_EQ(tokenizer->token_of(-1), "");
  EXPECT_EQ(tokenizer->token_of(1 << 30), "");
  EXPECT_FALSE(tokenizer->is_special(100));
  EXPECT_EQ(tokenizer->end_id(), 600);
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{-5, 0, 1 << 30}), "<s>");
}

TEST(Tokenizer, RefusesTextThatIsNotUtf8) {
  EXPECT_EQ(Tokenizer::load(file_of("gpt2"))->encode("a\xff").error(),
            "expected UTF-8, got bytes that are not");
}

// A change of a good file, and what is said of it.
struct Damage {
  std::string from, to, error;
};
TEST(Tokenizer, NamesWhatIsWrongInAFile) {
  const std::string good = *read_text_file(file_of("gpt2"));
  const Damage cases[] = {
      {R"("type": "BPE")", R"("type": "Unigram")", "f: model: the model Unigram is not supported"},
      {R"("dropout": null)", R"("dropout": 0.1)", "f: model: dropout is not supported"},
      {R"("continuing_subword_prefix": null)", R"("continuing_subword_prefix": "##")",
       "f: model: continuing_subword_prefix is not supported"},
      {R"("normalizer": null)", R"("normalizer": {"type": "Lowercase"})",
       "f: normalizer: the normalizer Lowercase is not supported"},
      {R"("normalizer": null)",
       R"("normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Nmt"}]})",
       "f: normalizer.normalizers[1]: the normalizer Nmt is not supported"},
      {R"("normalizer": null)", R"("normalizer": {})",
       "f: normalizer.type: expected a string, got nothing"},
      {R"("pre_tokenizer": {"type": "ByteLevel",)", R"("pre_tokenizer": {"type": "Punctuation",)",
       "f: pre_tokenizer: the pre-tokenizer Punctuation is not supported"},
      {R"("decoder": {"type": "ByteLevel",)", R"("decoder": {"type": "WordPiece",)",
       "f: decoder: the decoder WordPiece is not supported"},
      {R"("post_processor": null)", R"("post_processor": {"type": "BertProcessing"})",
       "f: post_processor: the post-processor BertProcessing is not supported"},
      {R"("id": 1, "content": "</s>")", R"("id": 0, "content": "</s>")",
       "f: added_tokens[1]: '</s>' has the id 0 here and 1 in model.vocab"},
      {R"("id": 1, "content": "</s>")", R"("id": -1, "content": "</s>")",
       "f: added_tokens[1].id: expected an integer from 0 to 16777215, got -1"},
      {R"("<s>": 0)", R"("<s>": 1)", "f: model.vocab: '<s>' and '</s>' have the same id 1"},
      {R"("<s>": 0)", R"("<s>": 99999999)",
       "f: model.vocab: expected ids from 0 to 16777215, got 99999999 for '<s>'"},
      {R"("<s>": 0)", R"("<s>": "0")", "f: model.vocab: expected an id for '<s>', got \"0\""},
      {R"("merges": [[")", R"("merges": [["zzz", ")",
       "f: model.merges[0]: expected two tokens, got [\"zzz\", \"Ġ\", \"Ġ\"]"},
      {R"("merges": [)", R"("merges": ["a b c", )",
       "f: model.merges[0]: expected two tokens with a space between, got 'a b c'"},
      {R"("merges": [)", R"("merges": [["zz", "q"], )",
       "f: model.merges: merge 0 makes 'zzq' of 'zz' and 'q', and 'zz' is not in model.vocab"},
      {R"("normalizer": null)",
       R"x("normalizer": {"type": "Replace", "pattern": {"Regex": "a(?>b)"}, "content": ""})x",
       "f: normalizer.pattern.Regex: the construct '(?>' at byte 1 is not supported"},
      {R"("normalizer": null)",
       R"x("normalizer": {"type": "Replace", "pattern": {"Regex": "a("}, "content": ""})x",
       "f: normalizer.pattern.Regex: missing closing parenthesis"},
  };
  for (const Damage& d : cases) {
    SCOPED_TRACE(d.to);
    const size_t at = good.find(d.from);
    ASSERT_NE(at, std::string::npos);
    std::string damaged = good;
    damaged.replace(at, d.from.size(), d.to);
    const Result<Tokenizer> loaded = Tokenizer::parse(damaged, "f");
    ASSERT_FALSE(loaded.ok());
    EXPECT_EQ(loaded.error(), d.error);
  }
  EXPECT_EQ(Tokenizer::load("/no/such/tokenizer.json").error(),
            "/no/such/tokenizer.json: No such file or directory");
}

// Files cut short or changed anywhere are refused or read, and nothing else happens.
TEST(Tokenizer, SurvivesDamagedFiles) {
  for (const char* name : {"added", "llama2", "llama3"}) {
    const std::string good = *read_text_file(file_of(name));
    uint64_t seed = 1;
    const auto random = [&] {
      return seed = seed * 6364136223846793005u + 1442695040888963407u, seed >> 33;
    };
    for (int i = 0; i < 60; ++i) {
      std::string damaged = good;
      if (i % 3 == 0) damaged.resize(random() % good.size());
      for (int k = 0; k < 4 && i % 3 != 0; ++k)
        damaged[random() % (i % 3 == 1 ? 900 : good.size())] = "\"{}[],:0aZ"[random() % 10];
      const Result<Tokenizer> loaded = Tokenizer::parse(damaged, name);
      if (loaded.ok()) (void)loaded->encode("Hello <s> \xE6\xBC\xA2 word");
    }
  }
}

}  // namespace
}  // namespace stow::text
