// Generation: the cache gives what a pass without one gives, batches change no token, rows end as
// they should, and memory is as planned.
#include "stowage/lm/generate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "stowage/base/error.h"
#include "stowage/io/safetensors.h"
#include "stowage/lm/score.h"
#include "tests/support/lm_kit.h"
#include "tests/support/temporary_folder.h"

namespace stow::lm {
namespace {

using ::testing::HasSubstr;
using Prompts = std::vector<std::vector<int32_t>>;

constexpr int64_t kMiB = 1 << 20;

Model load_apart(const std::string& folder, const WeightOptions& weights = {}) {
  Result<Model> model = load(folder, weights, device_for(weights.memory, 64 * kMiB, 1));
  STOW_CHECK(model.ok(), "{}", model.error());
  return std::move(*model);
}

std::vector<Generated> made_by(const Model& model, const Prompts& prompts,
                               const GenerateOptions& options, const OnText& on_text = {}) {
  Result<std::vector<Generated>> made = generate(model, prompts, options, on_text);
  STOW_CHECK(made.ok(), "{}", made.error());
  return std::move(*made);
}

GenerateOptions greedy(int64_t max_tokens) {
  GenerateOptions options;
  options.max_tokens = max_tokens;
  options.sampling.temperature = 0;
  return options;
}

// A configuration that never ends by itself.
HfConfig endless(HfConfig config) {
  config.eos_token_ids.clear();
  return config;
}

// What a pass over everything without a cache would have chosen: each id is the argmax of its
// position.
void expect_as_without_cache(const Model& model, const std::vector<int32_t>& prompt,
                             const Generated& made, const std::string& what) {
  std::vector<int32_t> all = prompt;
  all.insert(all.end(), made.ids.begin(), made.ids.end());
  const ScoreResult scored = score(model, whole_rows({all}), {.logits = true});
  const auto vocab = static_cast<size_t>(model.config().vocab_size);
  for (size_t i = 0; i < made.ids.size(); ++i) {
    const size_t t = prompt.size() + i - 1;
    const auto row = scored.logits.begin() + static_cast<std::ptrdiff_t>(t * vocab);
    EXPECT_EQ(std::max_element(row, row + static_cast<std::ptrdiff_t>(vocab)) - row, made.ids[i])
        << what << i;
    EXPECT_NEAR(scored.logprobs[t], made.logprobs[i], 2e-5) << what << i;
  }
}

const Prompts& prompts() {  // shorter and longer than a chunk of the prefill, and of one token
  static const Prompts all = [] {
    Prompts made;
    size_t at = 0;
    const std::vector<int32_t> tokens = formula_tokens(400, 80);
    for (const size_t n : {7, 1, 300, 16, 17}) {
      made.emplace_back(tokens.begin() + static_cast<std::ptrdiff_t>(at),
                        tokens.begin() + static_cast<std::ptrdiff_t>(at + n));
      at += n / 4;
    }
    return made;
  }();
  return all;
}

TEST(LmGenerate, GreedyTokensAreThoseOfAPassWithoutACache) {
  for (const char* family : {"llama-wide-heads-biases", "llama-rope-yarn", "llama-no-layers",
                             "mistral-window", "qwen2-window", "qwen3-tied"}) {
    const TemporaryFolder folder;
    write_lm(folder.path(), endless(lm_config(family)));
    const Model model = load_apart(folder.path());
    const std::vector<Generated> made = made_by(model, prompts(), greedy(12));
    ASSERT_EQ(made.size(), prompts().size());
    for (size_t i = 0; i < made.size(); ++i) {
      EXPECT_EQ(made[i].ids.size(), 12u);
      EXPECT_EQ(made[i].finish, FinishReason::kLength);
      EXPECT_EQ(made[i].text, "");  // there is no tokenizer
      expect_as_without_cache(model, prompts()[i], made[i],
                              fmt::format("{} prompt {} token ", family, i));
    }
  }
}

TEST(LmGenerate, BatchesAndPlacementsChangeNoToken) {
  for (const char* family : {"mistral-window", "qwen3-tied"}) {
    const TemporaryFolder folder;
    write_lm(folder.path(), endless(lm_config(family)));
    std::vector<Generated> alone;
    const Model model = load_apart(folder.path());
    for (const std::vector<int32_t>& prompt : prompts())
      alone.push_back(made_by(model, {prompt}, greedy(8))[0]);
    for (const MemoryKind kind : {MemoryKind::kDevice, MemoryKind::kPinnedHost, MemoryKind::kDisk})
      for (const int64_t rows : {1, 2, 5}) {
        GenerateOptions options = greedy(8);
        options.rows = rows;
        const Model placed = load_apart(folder.path(), {.memory = kind});
        const std::vector<Generated> made = made_by(placed, prompts(), options);
        for (size_t i = 0; i < made.size(); ++i) {
          EXPECT_EQ(made[i].ids, alone[i].ids) << family << memory_kind_name(kind) << rows << i;
          for (size_t j = 0; j < made[i].ids.size(); ++j)
            EXPECT_NEAR(made[i].logprobs[j], alone[i].logprobs[j], 1e-5);
        }
      }
  }
}

TEST(LmGenerate, PredictedIsMeasuredInEveryBudget) {
  const TemporaryFolder folder;
  HfConfig config = endless(small_lm_config());
  config.num_hidden_layers = 6;
  write_lm(folder.path(), config);
  const Prompts three = {prompts()[0], prompts()[1], prompts()[4]};
  const std::vector<int64_t> lengths = {7, 1, 17};
  const auto run = [&](GenerateOptions options) {
    const GeneratePrograms programs = plan_generate(config, lengths, options);
    const DevicePtr device = device_for(programs.weights().memory, options.memory_bytes, 1);
    const Result<Model> model = load(folder.path(), programs.weights(), device);
    STOW_CHECK(model.ok(), "{}", model.error());
    const Result<std::vector<Generated>> made = generate(*model, programs, three, options);
    STOW_CHECK(made.ok(), "{}", made.error());
    EXPECT_EQ(programs.peak_bytes(), measured_peaks(*device));
    EXPECT_LE(programs.peak_bytes()[0], *options.memory_bytes);
    std::vector<std::vector<int32_t>> ids;
    for (const Generated& one : *made) ids.push_back(one.ids);
    return std::pair(ids, programs.peak_bytes()[0]);
  };
  GenerateOptions options = greedy(6);
  options.memory_bytes = 64 * kMiB;
  const auto [ids, most] = run(options);
  options.memory_bytes = 1000;
  int64_t least = 0;
  try {
    plan_generate(config, lengths, options);
  } catch (const CapacityError& error) {
    const std::string message = error.what();
    EXPECT_THAT(message, HasSubstr("generating 6 tokens behind prompts of up to 17 needs "));
    least = std::stoll(message.substr(message.find('(') + 1));
  }
  ASSERT_GT(least, 0);
  for (const int64_t budget :
       {least, least + (most - least) / 4, least + (most - least) / 2, most - 1}) {
    options.memory_bytes = budget;
    EXPECT_EQ(run(options).first, ids) << budget;
  }
  options.memory_bytes = 64 * kMiB;
  for (const MemoryKind kind : {MemoryKind::kDevice, MemoryKind::kPinnedHost, MemoryKind::kDisk}) {
    options.weights = kind;
    EXPECT_EQ(run(options).first, ids) << memory_kind_name(kind);
  }
}

// A head that lies elsewhere comes in blocks of words where memory is short: no number changes, and
// the device need not hold it.
TEST(LmGenerate, AHeadInBlocksOfWordsGivesTheSameTokensInLess) {
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    const TemporaryFolder folder;
    HfConfig config = endless(small_lm_config());
    config.vocab_size = 20000;
    write_lm(folder.path(), config);
    const Prompts one = {formula_tokens(9, config.vocab_size)};
    GenerateOptions options = greedy(4);
    options.weights = MemoryKind::kDisk;
    options.dtype = compute;
    const auto run = [&](int64_t bytes) {
      options.memory_bytes = bytes;
      const GeneratePrograms programs = plan_generate(config, {9}, options);
      const DevicePtr device = device_for(MemoryKind::kDisk, bytes, 1);
      const Result<Model> model = load(folder.path(), programs.weights(), device);
      STOW_CHECK(model.ok(), "{}", model.error());
      const Result<std::vector<Generated>> made = generate(*model, programs, one, options);
      STOW_CHECK(made.ok(), "{}", made.error());
      EXPECT_EQ(programs.peak_bytes(), measured_peaks(*device));
      return std::pair(programs.shape().vocab_block, (*made)[0]);
    };
    const int64_t head_bytes = 20000 * 32 * dtype_bytes(compute);
    const auto [whole, first] = run(64 * kMiB);
    const auto [block, second] = run(head_bytes * 3 / 4);
    EXPECT_EQ(whole, 0);
    EXPECT_GT(block, 0);
    EXPECT_EQ(first.ids, second.ids);
    EXPECT_EQ(first.logprobs, second.logprobs);
  }
}

// A model with a tokenizer, and what it says greedily to one prompt.
class Ends : public ::testing::Test {
 protected:
  Ends() {
    HfConfig config = small_lm_config();
    config.vocab_size = 600;
    config.eos_token_ids = {2};
    write_lm(folder_.path(), config);
    write_lm_tokenizer(folder_.path());
    write_bytes(folder_ / "generation_config.json", "{}");
    free_ = made_by(load_apart(folder_.path()), {prompt_}, greedy(24))[0];
  }
  Model with_eos(int32_t a, int32_t b) const {
    write_bytes(folder_ / "generation_config.json",
                fmt::format(R"({{"eos_token_id": [{}, {}]}})", a, b));
    return load_apart(folder_.path());
  }

  TemporaryFolder folder_;
  std::vector<int32_t> prompt_ = {50, 60, 70};
  Generated free_;  // without an end
};

TEST_F(Ends, AnEndTokenIsKeptAndEndsARow) {
  ASSERT_EQ(free_.ids.size(), 24u);
  ASSERT_EQ(free_.finish, FinishReason::kLength);
  const int32_t end = free_.ids[5];
  const auto n =
      static_cast<size_t>(std::find(free_.ids.begin(), free_.ids.end(), end) - free_.ids.begin()) +
      1;
  const std::vector<int32_t> expected(free_.ids.begin(),
                                      free_.ids.begin() + static_cast<std::ptrdiff_t>(n));
  const Model model = with_eos(599, end);
  const Generated made = made_by(model, {prompt_}, greedy(24))[0];
  EXPECT_EQ(made.ids, expected);
  EXPECT_EQ(made.logprobs.size(), n);
  EXPECT_EQ(made.finish, FinishReason::kStop);
  // Just within max_tokens, and just beyond.
  EXPECT_EQ(made_by(model, {prompt_}, greedy(static_cast<int64_t>(n)))[0].finish,
            FinishReason::kStop);
  if (n > 1) {
    const Generated cut = made_by(model, {prompt_}, greedy(static_cast<int64_t>(n) - 1))[0];
    EXPECT_EQ(cut.finish, FinishReason::kLength);
    EXPECT_EQ(cut.ids.size(), n - 1);
  }
  // A row that ends leaves those beside it alone.
  const std::vector<Generated> pair = made_by(model, {prompt_, {9, 8, 7, 6}}, greedy(24));
  EXPECT_EQ(pair[0].ids, expected);
  EXPECT_EQ(pair[1].ids, made_by(model, {{9, 8, 7, 6}}, greedy(24))[0].ids);
}

TEST_F(Ends, TextsThatStopActAtOnceAndAreNeverShown) {
  const Model model = load_apart(folder_.path());
  ASSERT_GE(free_.text.size(), 12u);
  // Every text of up to three bytes within the answer, characters whole.
  for (size_t at = 0; at + 3 < free_.text.size(); at += 2)
    for (const size_t size : {1, 3}) {
      const std::string stop = free_.text.substr(at, size);
      // U+FFFD may stand for a part of a character.
      if (!is_utf8(stop) || stop == "\xEF\xBF\xBD") continue;
      GenerateOptions options = greedy(24);
      options.stop = {"a text that never comes", stop};
      std::string shown;
      const Generated made =
          made_by(model, {prompt_}, options, [&](size_t prompt, const std::string& piece) {
            EXPECT_EQ(prompt, 0u);
            EXPECT_TRUE(is_utf8(piece));
            shown += piece;
          })[0];
      EXPECT_EQ(made.text, free_.text.substr(0, free_.text.find(stop))) << stop;
      EXPECT_EQ(shown, made.text) << stop;
      EXPECT_EQ(made.finish, FinishReason::kStop) << stop;
      ASSERT_LE(made.ids.size(), free_.ids.size());
      EXPECT_TRUE(std::equal(made.ids.begin(), made.ids.end(), free_.ids.begin())) << stop;
      // At once: without the last token the text is not there yet.
      const auto& tokenizer = model.files().text->tokenizer;
      const std::vector<int32_t> before(made.ids.begin(), made.ids.end() - 1);
      const std::string text = tokenizer.decode(before, {.skip_special_tokens = true});
      EXPECT_EQ(text.find(stop), std::string::npos) << stop;
    }
}

TEST_F(Ends, PiecesMakeTheText) {
  const Model model = load_apart(folder_.path());
  GenerateOptions options = greedy(24);
  options.sampling.temperature = 1.5;
  options.stop = {"never", "\xC3\xA9t"};
  const Prompts three = {prompt_, {5}, {100, 101}};
  std::vector<std::string> shown(3);
  const std::vector<Generated> made = made_by(
      model, three, options, [&](size_t i, const std::string& piece) { shown[i] += piece; });
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(shown[i], made[i].text);
}

TEST_F(Ends, SeedsGiveTheSameTokensAgain) {
  const Model model = load_apart(folder_.path());
  GenerateOptions options = greedy(24);
  options.sampling.temperature = 1;
  const auto ids = [&](uint64_t seed, int64_t rows) {
    options.seed = seed;
    options.rows = rows;
    std::vector<std::vector<int32_t>> all;
    for (const Generated& one : made_by(model, {prompt_, prompt_, {9}}, options))
      all.push_back(one.ids);
    return all;
  };
  const auto first = ids(1, 3);
  EXPECT_EQ(ids(1, 3), first);
  EXPECT_EQ(ids(1, 1), first);
  EXPECT_NE(ids(2, 3), first);
  EXPECT_NE(first[0], first[1]);  // rows of the same prompt draw apart
}

TEST_F(Ends, OneTokenIsTheLeast) {
  const Model model = load_apart(folder_.path());
  const Generated made = made_by(model, {prompt_}, greedy(1))[0];
  EXPECT_EQ(made.ids, (std::vector<int32_t>{free_.ids[0]}));
  EXPECT_EQ(made.finish, FinishReason::kLength);
  EXPECT_TRUE(made_by(model, {}, greedy(1)).empty());
}

TEST(LmGenerate, RefusesPromptsByNumber) {
  const TemporaryFolder folder;
  HfConfig config = small_lm_config();
  config.max_position_embeddings = 20;
  write_lm(folder.path(), config);
  const Model model = load_apart(folder.path());
  const auto error = [&](const Prompts& given, GenerateOptions options) {
    const Result<std::vector<Generated>> made = generate(model, given, options);
    return made.ok() ? "nothing" : made.error();
  };
  EXPECT_EQ(error({{1}, {}}, greedy(4)), "prompt 1: expected at least one token, got none");
  EXPECT_EQ(error({{1}, {2, 80}}, greedy(4)),
            "prompt 1: id 80 is outside of the model's vocabulary of 80");
  EXPECT_EQ(error({{-1}}, greedy(4)), "prompt 0: id -1 is outside of the model's vocabulary of 80");
  EXPECT_EQ(error({{1, 2, 3}}, greedy(18)),
            "prompt 0: 3 tokens and 18 new ones are more than the 20 positions of the model");
  EXPECT_EQ(error({{1, 2, 3}}, greedy(17)), "nothing");
  GenerateOptions stop = greedy(4);
  stop.stop = {"x"};
  EXPECT_EQ(error({{1}}, stop),
            "a stop text needs a tokenizer; " + folder.path() + ": there is no tokenizer.json");
}

TEST(LmGenerate, RefusesLogitsThatAreNotFinite) {
  const TemporaryFolder folder;
  HfConfig config = small_lm_config();
  write_lm(folder.path(), config);
  // The norm before the head, in the file.
  const Result<SafetensorsFile> file = SafetensorsFile::open(folder / "model.safetensors");
  std::string bytes = read_bytes(folder / "model.safetensors");
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(bytes.data() + file->find("model.norm.weight")->offset_bytes, &nan, sizeof nan);
  write_bytes(folder / "model.safetensors", bytes);
  const Result<std::vector<Generated>> made =
      generate(load_apart(folder.path()), {{1, 2, 3}}, greedy(4));
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error(), "prompt 0: the model's logits are not finite at token 3");
}

}  // namespace
}  // namespace stow::lm
