#include "stowage/train/dataset_lines.h"

#include <algorithm>

#include "tests/unit/train/dataset_kit.h"

namespace stow {
namespace {

std::vector<int32_t> encoded(const text::TokenizerFolder& text, const std::string& what,
                             bool special = true) {
  const Result<std::vector<int32_t>> ids =
      text.tokenizer.encode(what, {.add_special_tokens = special});
  EXPECT_TRUE(ids.ok()) << ids.error();
  return *ids;
}

std::vector<int32_t> tokens_of(const SeenExample& seen) {
  std::vector<int32_t> ids = {seen.tokens[0]};
  ids.insert(ids.end(), seen.targets.begin(), seen.targets.end());
  return ids;
}

// The text of the targets that count, with "|" where others lie between them.
std::string learned(const SeenExample& seen, const text::TokenizerFolder& text) {
  std::string out;
  std::vector<int32_t> run;
  const auto flush = [&] {
    if (run.empty()) return;
    out += (out.empty() ? "" : "|") + text.tokenizer.decode(run);
    run.clear();
  };
  for (size_t k = 0; k < seen.targets.size(); ++k)
    if (seen.weights[k] == 1.0f)
      run.push_back(seen.targets[k]);
    else
      flush();
  flush();
  return out;
}

SeenExample example_of(const Json& line, const text::TokenizerFolder& text,
                       DatasetOptions options = {}) {
  return only_example(open_lines(line.dump(), options, &text));
}

Json message(const std::string& role, const std::string& content) {
  return Json::object({{"role", role}, {"content", content}});
}

TEST(DatasetLines, TextBeginsWithOneBosAndEndsWithOneEos) {
  const text::TokenizerFolder text = tokenizer_of("llama2", "</s>");
  std::vector<int32_t> want = encoded(text, "the cat");
  ASSERT_EQ(want[0], text.tokenizer.id_of("<s>"));
  want.push_back(text.tokenizer.id_of("</s>"));
  const SeenExample seen = example_of(Json::object({{"text", "the cat"}}), text);
  EXPECT_EQ(tokens_of(seen), want);
  EXPECT_EQ(std::count(seen.weights.begin(), seen.weights.end(), 1.0f),
            static_cast<int64_t>(want.size()) - 1);
  EXPECT_EQ(tokens_of(example_of(Json::object({{"text", "the cat</s>"}}), text)), want);
  // A tokenizer without an EOS adds none; one whose post-processor adds it has it once.
  const text::TokenizerFolder none = tokenizer_of("llama2");
  want.pop_back();
  EXPECT_EQ(tokens_of(example_of(Json::object({{"text", "the cat"}}), none)), want);
  const text::TokenizerFolder both = tokenizer_of("llama3", "</s>");
  EXPECT_EQ(tokens_of(example_of(Json::object({{"text", "the cat"}}), both)),
            encoded(both, "the cat"));
}

TEST(DatasetLines, CompletionsAreTargetsAndPromptsAreNot) {
  for (const char* name : {"llama2", "llama3", "qwen", "gpt2", "metaspace", "digits"}) {
    SCOPED_TRACE(name);
    const text::TokenizerFolder text = tokenizer_of(name, "</s>");
    const Json line = Json::object({{"prompt", "Question: who?"}, {"completion", "\nNobody."}});
    SeenExample seen = example_of(line, text);
    std::vector<int32_t> want = encoded(text, "Question: who?\nNobody.");
    if (want.back() != text.tokenizer.id_of("</s>")) want.push_back(text.tokenizer.id_of("</s>"));
    EXPECT_EQ(tokens_of(seen), want);
    EXPECT_EQ(learned(seen, text), "\nNobody.</s>");
    seen = example_of(line, text, {.mask_prompt = false});
    EXPECT_EQ(std::count(seen.weights.begin(), seen.weights.end(), 0.0f), 0);
  }
}

// A token that is part prompt, part completion is a target: the completion needs it.
TEST(DatasetLines, ATokenAcrossTheBoundaryIsATarget) {
  const text::TokenizerFolder text = tokenizer_of("llama3", "</s>");
  ASSERT_EQ(encoded(text, " st", false).size(), 1u);
  const SeenExample seen = example_of(Json::object({{"prompt", "a s"}, {"completion", "t"}}), text);
  EXPECT_EQ(learned(seen, text), " st</s>");
}

// llama-cpp-python#1501: the template's BOS is the only one.
TEST(DatasetLines, AssistantsOfMessagesAreTargets) {
  const text::TokenizerFolder text = tokenizer_of("llama3", "<|im_end|>", kChatMl, "<s>");
  Json line = Json::object();
  line.set("messages", Json::Array{message("system", "Be brief."), message("user", "Hi"),
                                   message("assistant", "Hello."), message("user", "Who?"),
                                   message("assistant", "Me.")});
  SeenExample seen = example_of(line, text);
  const std::string rendered =
      "<s><|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
      "<|im_start|>assistant\nHello.<|im_end|>\n<|im_start|>user\nWho?<|im_end|>\n"
      "<|im_start|>assistant\nMe.<|im_end|>\n";
  EXPECT_EQ(tokens_of(seen), encoded(text, rendered, false));
  EXPECT_EQ(std::count(seen.tokens.begin(), seen.tokens.end(), text.tokenizer.id_of("<s>")), 1);
  EXPECT_EQ(learned(seen, text), "Hello.<|im_end|>\n|Me.<|im_end|>\n");
  seen = example_of(line, text, {.mask_prompt = false});
  EXPECT_EQ(std::count(seen.weights.begin(), seen.weights.end(), 0.0f), 0);
  // What a user says last is no target.
  line.set("messages", Json::Array{message("user", "Hi"), message("assistant", "Hello."),
                                   message("user", "Who?")});
  EXPECT_EQ(learned(example_of(line, text), text), "Hello.<|im_end|>\n");
}

// Templates of reasoning models write the last answer otherwise than those before.
TEST(DatasetLines, FindsTurnsThatTheTemplateWritesOtherwiseAtTheEnd) {
  const std::string thinking =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n"
      "{% if m.role == 'assistant' and loop.last %}<think></think>{% endif %}"
      "{% if m.role == 'assistant' and not loop.last %}{{ m.content.split('</think>')[-1] }}"
      "{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant\n<think>é{% endif %}";
  const text::TokenizerFolder text = tokenizer_of("qwen", "<|im_end|>", thinking);
  const auto line = [](const std::string& first) {
    Json out = Json::object();
    out.set("messages", Json::Array{message("user", "Hi"), message("assistant", first),
                                    message("user", "Who?"), message("assistant", "Me.")});
    return out;
  };
  // The generation prompt opens what the text closes at once or lacks.
  EXPECT_EQ(learned(example_of(line("Hello."), text), text),
            "Hello.<|im_end|>|</think>Me.<|im_end|>\n");
  Result<Dataset> data = open_lines(line("hm</think>Hello.").dump(), DatasetOptions(), &text);
  ASSERT_TRUE(data.ok()) << data.error();
  EXPECT_EQ(data->counts().lost_turns, 1);
  EXPECT_EQ(learned(only_example(std::move(data)), text), "</think>Me.<|im_end|>\n");
}

TEST(DatasetLines, TemplatesGetToolsAndOneDate) {
  const text::TokenizerFolder text = tokenizer_of(
      "qwen", "<|im_end|>",
      "{{ date_string }}{{ tools | length }}{% for m in messages %}{{ m.content }}{% endfor %}");
  Json line = Json::object();
  line.set("messages", Json::Array{message("user", "Hi"), message("assistant", "Yo")});
  line.set("tools", Json::Array{Json::object({{"name", "f"}})});
  EXPECT_EQ(text.tokenizer.decode(tokens_of(example_of(line, text))), "26 Jul 20241HiYo");
}

TEST(DatasetLines, MasksSayWhichTokensAreTargets) {
  SeenExample seen = only_example(open_lines("{\"tokens\":[5,6,7,8],\"mask\":[1,0,1,true]}", {}));
  EXPECT_EQ(seen.tokens, (std::vector<int32_t>{5, 6, 7}));
  EXPECT_EQ(seen.targets, (std::vector<int32_t>{6, 7, 8}));
  EXPECT_EQ(seen.weights, (std::vector<float>{0, 1, 1}));
  seen = only_example(open_lines("{\"tokens\":[0,0,0]}", {}));
  EXPECT_EQ(seen.weights, (std::vector<float>{1, 1}));
}

// llm-course#33, unsloth#416: where the padding token is EOS, EOS is still learned.
TEST(DatasetLines, PaddingIsKnownByLength) {
  const text::TokenizerFolder text = tokenizer_of("qwen", "</s>");
  const int32_t eos = text.tokenizer.id_of("</s>");
  Result<Dataset> data = open_lines("{\"text\":\"Hello\"}\n", {.seq = 64}, &text);
  ASSERT_TRUE(data.ok());
  const TokenBatch batch = data->update(0).microbatches[0];
  const auto last = static_cast<size_t>(batch.n_tokens) - 1;
  EXPECT_EQ(batch.targets[last], eos);
  EXPECT_EQ(batch.weights[last], 1.0f);
  EXPECT_EQ(batch.hi[last], batch.n_tokens);
  EXPECT_EQ(batch.hi[last + 1], 0);
  // Token 0, which fills unused slots, is a token like any other in an example.
  data = open_lines("{\"tokens\":[0,0,0]}\n", {.seq = 8});
  EXPECT_EQ(data->update(0).microbatches[0].weights, (std::vector<float>{1, 1, 0, 0, 0, 0, 0, 0}));
}

TEST(DatasetLines, ErrorsNameFileAndLine) {
  const text::TokenizerFolder text = tokenizer_of("qwen", "</s>", kChatMl);
  const auto chat = [&](const std::string& messages) {
    return error_of("{\"messages\":" + messages + "}", &text);
  };
  EXPECT_EQ(error_of("{\"text\":\"a\"}\n\n{\"text\":\n", &text),
            "data.jsonl: line 3: not JSON that can be read: a syntax error at byte 9");
  EXPECT_EQ(error_of("{\"text\":\"a\"}\r\n{\"tokens\":[1,2]}\r\n", &text),
            "data.jsonl: line 2: expected text as in the lines before, got tokens");
  EXPECT_EQ(error_of("{\"text\":\"a\",\"messages\":[]}", &text),
            "data.jsonl: line 1: expected an object with text, prompt and completion, messages, or "
            "tokens, got messages beside text");
  EXPECT_EQ(error_of("{\"completion\":\"a\"}", &text),
            "data.jsonl: line 1: expected prompt and completion, got completion alone");
  EXPECT_EQ(error_of("{\"prompt\":\"a\",\"completion\":\"\"}", &text),
            "data.jsonl: line 1: completion: expected a text, got an empty one");
  EXPECT_EQ(error_of("{\"prompt\":3,\"completion\":\"b\"}", &text),
            "data.jsonl: line 1: prompt: expected a string, got 3");
  EXPECT_EQ(error_of("{\"text\":[1]}", &text),
            "data.jsonl: line 1: text: expected a string, got [1]");
  EXPECT_EQ(error_of("{\"input\":\"a\"}", &text),
            "data.jsonl: line 1: expected an object with text, prompt and completion, messages, or "
            "tokens, got none of these keys");
  EXPECT_EQ(error_of("7\n", &text),
            "data.jsonl: line 1: expected an object with text, prompt and completion, messages, or "
            "tokens, got 7");
  EXPECT_EQ(error_of("{\"tokens\":[1,1000]}"),
            "data.jsonl: line 1: tokens: expected ids from 0 to 999, got 1000");
  EXPECT_EQ(error_of("{\"tokens\":[1,-1]}"),
            "data.jsonl: line 1: tokens: expected ids from 0 to 999, got -1");
  EXPECT_EQ(error_of("{\"tokens\":[1,2.5]}"),
            "data.jsonl: line 1: tokens: expected ids from 0 to 999, got 2.5");
  EXPECT_EQ(error_of("{\"tokens\":[1,2],\"mask\":[1]}"),
            "data.jsonl: line 1: mask: expected 2 elements as tokens has, got 1");
  EXPECT_EQ(error_of("{\"tokens\":[1,2],\"mask\":[1,2]}"),
            "data.jsonl: line 1: mask: expected 0 or 1, got 2");
  EXPECT_EQ(error_of("{\"text\":\"a\"}"),
            "data.jsonl: line 1: expected the key tokens, as the model has no tokenizer, got text");
  EXPECT_EQ(chat("[{\"role\":\"usr\",\"content\":\"a\"}]"),
            "data.jsonl: line 1: messages[0].role: expected system, developer, user, assistant or "
            "tool, got \"usr\"");
  EXPECT_EQ(
      chat("[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"\"}]"),
      "data.jsonl: line 1: messages[1].content: expected what the assistant says, got nothing");
  EXPECT_EQ(chat("[]"), "data.jsonl: line 1: messages: expected at least one, got an empty array");
  EXPECT_EQ(chat("[3]"),
            "data.jsonl: line 1: messages[0]: expected an object with role and content, got 3");
  EXPECT_EQ(chat("{}"),
            "data.jsonl: line 1: messages: expected an array, got an object of 0 members");
  const text::TokenizerFolder raises = tokenizer_of(
      "qwen", "",
      "{% if messages[0].role != 'user' %}{{ raise_exception('no system') }}{% endif %}");
  EXPECT_EQ(error_of("{\"messages\":[{\"role\":\"system\",\"content\":\"a\"}]}", &raises),
            "data.jsonl: line 1: messages: raised: no system");
  const text::TokenizerFolder plain = tokenizer_of("qwen");
  EXPECT_EQ(error_of("{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}", &plain),
            "data.jsonl: line 1: messages: the model has no chat template");
  Result<Dataset> small = open_lines("{\"text\":\"Hello\"}", {}, &plain, 5);
  ASSERT_FALSE(small.ok());
  EXPECT_NE(small.error().find("outside the model's vocabulary of 5"), std::string::npos);
}

TEST(DatasetLines, LargeAndHostileFiles) {
  const text::TokenizerFolder text = tokenizer_of("qwen", "</s>", kChatMl);
  EXPECT_EQ(error_of(""), "data.jsonl: expected lines of JSON, got an empty file");
  EXPECT_EQ(error_of("\n \n\r\n"), "data.jsonl: expected lines of JSON, got an empty file");
  EXPECT_NE(error_of(std::string("{\"text\":\"a\0b\"}", 14), &text).find("line 1: "),
            std::string::npos);
  EXPECT_NE(error_of("{\"text\":\"\xff\"}", &text).find("line 1: "), std::string::npos);
  EXPECT_NE(error_of(std::string(100000, '['), &text).find("nested deeper"), std::string::npos);
  EXPECT_NE(error_of("{\"tokens\":[1,99999999999999999999]}").find("line 1: "), std::string::npos);
  EXPECT_NE(error_of("{\"tokens\":[1],\"tokens\":[2]}").find("stands twice"), std::string::npos);
  TemporaryFolder folder;
  EXPECT_FALSE(Dataset::open({.path = folder.path()}, nullptr, kVocab).ok());
  EXPECT_FALSE(Dataset::open({.path = folder / "absent.jsonl"}, nullptr, kVocab).ok());
  EXPECT_FALSE(Dataset::open({.path = "/dev/zero"}, nullptr, kVocab).ok());

  // Lines across the pieces in which a file is read, the last without an end.
  std::string lines;
  std::vector<int32_t> first;
  for (int i = 0; i < 3000; ++i) {
    Json ids = Json::array();
    for (int k = 0; k <= (i == 1000 ? 700'000 : i % 500); ++k) ids.push_back((i + k) % 1000);
    lines += Json::object({{"tokens", ids}}).dump() + (i == 2999 ? "" : "\n");
  }
  lines += "\n{\"tokens\":[1000]}";
  EXPECT_EQ(error_of(lines), "data.jsonl: line 3001: tokens: expected ids from 0 to 999, got 1000");
  lines.resize(lines.rfind('\n'));
  Result<Dataset> data = open_lines(lines, {.seq = 700'000, .shuffle = false});
  ASSERT_TRUE(data.ok()) << data.error();
  EXPECT_EQ(data->counts().lines, 3000);
  EXPECT_EQ(data->counts().without_target, 5);
  EXPECT_EQ(data->counts().targets, 700'000 + 6 * (499 * 500 / 2));
  EXPECT_EQ(data->update(998).microbatches[0].n_tokens, 700'000);

  // Lines with bytes changed are read or refused.
  std::mt19937 rng(2);
  const std::string good =
      "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"},"
      "{\"role\":\"assistant\",\"content\":\"Yo é\"}],\"tools\":null}";
  int n_read = 0;
  for (int trial = 0; trial < 400; ++trial) {
    std::string bad = good;
    for (int n = std::uniform_int_distribution<int>(1, 3)(rng); n > 0; --n)
      bad[std::uniform_int_distribution<size_t>(0, bad.size() - 1)(rng)] =
          static_cast<char>(std::uniform_int_distribution<int>(0, 255)(rng));
    Result<Dataset> read = open_lines(bad, {.seq = 64}, &text);
    if (!read) {
      EXPECT_NE(read.error().find("data.jsonl: "), std::string::npos);
      continue;
    }
    ++n_read;
    EXPECT_GT(read->update(0).n_targets, 0);
  }
  EXPECT_GT(n_read, 5);
}

}  // namespace
}  // namespace stow
