// Scoring: padding, placements, batches, chunks and budgets change no number, and memory is as
// planned.
#include "stowage/lm/score.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "stowage/base/error.h"
#include "tests/support/lm_kit.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

namespace stow::lm {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMiB = 1 << 20;
const char* const kFamilies[] = {"llama", "llama-wide-heads-biases", "mistral-window",
                                 "qwen2-window", "qwen3-tied"};

struct Scored {
  ScoreResult result;
  BytesByKind predicted{}, measured{};
  ScoreShape shape;
};

// Plans, loads to where the plan has the weights, and scores, on a device of its own.
Scored score_apart(const std::string& folder, const TokenRows& rows, ScoreOptions options) {
  Result<ModelFiles> files = ModelFiles::open(folder);
  STOW_CHECK(files.ok(), "{}", files.error());
  if (!options.memory_bytes) options.memory_bytes = 64 * kMiB;
  const ScoreProgram program = plan_score(files->config, rows, options);
  const DevicePtr device = device_for(program.weights().memory, options.memory_bytes, 1);
  const Result<Model> model = load(std::move(*files), program.weights(), device);
  STOW_CHECK(model.ok(), "{}", model.error());
  Scored made{score(*model, program, rows), program.peak_bytes(), {}, program.shape()};
  made.measured = measured_peaks(*device);
  return made;
}

void expect_same(const Scored& a, const Scored& b, const std::string& what) {
  EXPECT_EQ(a.result.logprobs, b.result.logprobs) << what;
  EXPECT_EQ(a.result.logits, b.result.logits) << what;
  EXPECT_EQ(a.result.hidden, b.result.hidden) << what;
  EXPECT_EQ(a.result.n_tokens, b.result.n_tokens) << what;
  EXPECT_EQ(a.predicted, a.measured) << what;
}

std::vector<int32_t> part(const std::vector<int32_t>& all, size_t begin, size_t n) {
  return {all.begin() + static_cast<std::ptrdiff_t>(begin),
          all.begin() + static_cast<std::ptrdiff_t>(begin + n)};
}

// Four rows of different tokens, each of n.
std::vector<std::vector<int32_t>> four_rows(size_t n) {
  const std::vector<int32_t> all = formula_tokens(static_cast<int64_t>(4 * n), 80);
  return {part(all, 0, n), part(all, n, n), part(all, 2 * n, n), part(all, 3 * n, n)};
}

TEST(LmScore, PaddedRowsScoreAsAlone) {
  const std::vector<int32_t> all = formula_tokens(60, 80);
  const std::vector<std::vector<int32_t>> rows = {part(all, 0, 9), part(all, 9, 4),
                                                  part(all, 13, 13), part(all, 26, 1)};
  for (const char* family : kFamilies) {
    const TemporaryFolder folder;
    write_lm(folder.path(), lm_config(family));
    for (const bool left : {false, true}) {
      const TokenRows padded = padded_rows(rows, 13, left);
      const Scored whole = score_apart(folder.path(), padded, {.logits = true});
      EXPECT_EQ(whole.predicted, whole.measured);
      EXPECT_EQ(whole.result.n_tokens, 8 + 3 + 12);
      for (size_t i = 0; i < rows.size(); ++i) {
        const ScoreResult alone =
            score_apart(folder.path(), whole_rows({rows[i]}), {.logits = true}).result;
        const auto start = static_cast<size_t>(padded.start[i]), n = rows[i].size();
        for (size_t t = 0; t < 12; ++t) {
          const bool is_real = t >= start && t + 1 < start + n;
          const float ours = whole.result.logprobs[i * 12 + t];
          if (is_real) {
            EXPECT_NEAR(ours, alone.logprobs[t - start], 1e-5) << family << left << i << t;
          } else {
            EXPECT_EQ(ours, 0) << family << left << i << t;
          }
        }
        for (size_t t = start; t < start + n; ++t)
          for (size_t v = 0; v < 80; ++v)
            EXPECT_NEAR(whole.result.logits[(i * 13 + t) * 80 + v],
                        alone.logits[(t - start) * 80 + v], 1e-4)
                << family << left << i << t;
      }
    }
  }
}

// Positions count from a row's first token: f32 angles of positions near 6000 would show otherwise.
TEST(LmScore, PaddingOnTheLeftShiftsNoPosition) {
  const TemporaryFolder folder;
  write_lm(folder.path(), lm_config("llama"));
  const std::vector<int32_t> row = formula_tokens(9, 80);
  const std::vector<float> padded =
      score_apart(folder.path(), padded_rows({row}, 6000, true), {}).result.logprobs;
  const std::vector<float> alone =
      score_apart(folder.path(), whole_rows({row}), {}).result.logprobs;
  for (size_t t = 0; t < 8; ++t) EXPECT_NEAR(padded[5991 + t], alone[t], 2e-6) << t;
}

// What stands in the padding is read by nobody.
TEST(LmScore, TokensOfThePaddingChangeNoBit) {
  const TemporaryFolder folder;
  write_lm(folder.path(), lm_config("qwen2-window"));
  const std::vector<std::vector<int32_t>> rows = {formula_tokens(9, 80), formula_tokens(4, 80)};
  for (const bool left : {false, true}) {
    TokenRows padded = padded_rows(rows, 11, left);
    const ScoreResult zeros = score_apart(folder.path(), padded, {}).result;
    for (size_t i = 0; i < padded.tokens.size(); ++i) {
      const auto row = i / 11, t = i % 11, start = static_cast<size_t>(padded.start[row]);
      if (t < start || t >= start + static_cast<size_t>(padded.lengths[row])) padded.tokens[i] = 77;
    }
    EXPECT_EQ(score_apart(folder.path(), padded, {}).result.logprobs, zeros.logprobs) << left;
  }
}

TEST(LmScore, EveryPlacementAndBatchGivesTheSameBits) {
  for (const char* family : {"llama-wide-heads-biases", "qwen2-window", "qwen3-tied"}) {
    const TemporaryFolder folder;
    write_lm(folder.path(), lm_config(family));
    const TokenRows rows = whole_rows(four_rows(24));
    const ScoreOptions all{
        .logits = true, .hidden = true, .rows = 4, .weights = MemoryKind::kDevice};
    const Scored reference = score_apart(folder.path(), rows, all);
    expect_same(reference, reference, family);
    for (const MemoryKind kind : {MemoryKind::kDevice, MemoryKind::kPinnedHost, MemoryKind::kDisk})
      for (const int64_t batch : {1, 2, 3, 4}) {
        ScoreOptions options = all;
        options.weights = kind;
        options.rows = batch;
        const Scored made = score_apart(folder.path(), rows, options);
        EXPECT_EQ(made.shape.rows, batch);
        expect_same(made, reference,
                    fmt::format("{} {} {}", family, memory_kind_name(kind), batch));
      }
  }
}

TEST(LmScore, LogprobsAreThoseOfTheLogits) {
  for (const char* family : {"llama", "qwen3-tied", "llama-no-layers"}) {
    const TemporaryFolder folder;
    write_lm(folder.path(), lm_config(family));
    const TokenRows rows = whole_rows(four_rows(24));
    const Scored with = score_apart(folder.path(), rows, {.logits = true});
    const Scored without = score_apart(folder.path(), rows, {});
    EXPECT_EQ(without.predicted, without.measured);
    EXPECT_EQ(with.result.logprobs, without.result.logprobs) << family;
    for (size_t i = 0; i < 4 * 23; ++i) {
      const size_t row = i / 23, t = i % 23;
      const float* logits = &with.result.logits[(row * 24 + t) * 80];
      double sum = 0;
      for (int v = 0; v < 80; ++v) sum += std::exp(double{logits[v]});
      const auto target = static_cast<size_t>(rows.tokens[row * 24 + t + 1]);
      EXPECT_NEAR(with.result.logprobs[i], logits[target] - std::log(sum), 1e-5) << family << i;
    }
  }
}

// Never all logits at once: twice the tokens need far less than twice the logits.
TEST(LmScore, ChunksChangeNoBitAndBoundTheLogits) {
  HfConfig config = small_lm_config();
  config.vocab_size = 3000;
  const TemporaryFolder folder;
  write_lm(folder.path(), config);
  const TokenRows rows = whole_rows({formula_tokens(700, 3000)});
  std::optional<ScoreResult> first;
  for (const int64_t chunk : {128, 256}) {
    const WeightOptions weights{DType::kF32, MemoryKind::kDevice};
    Device::Capacities capacities;
    capacities.fill(Device::unlimited_bytes());
    const ScoreProgram program(config, weights, {.length = 700, .chunk = chunk}, capacities, 1);
    const DevicePtr device = device_for(weights.memory, 64 * kMiB, 1);
    const Result<Model> model = load(folder.path(), weights, device);
    ASSERT_TRUE(model.ok()) << model.error();
    const ScoreResult made = score(*model, program, rows);
    EXPECT_EQ(program.peak_bytes(), measured_peaks(*device)) << chunk;
    const int64_t beside = program.peak_bytes()[0] - weight_bytes(config, weights)[0];
    EXPECT_LT(beside, 2 * chunk * 3000 * 4 + 2 * kMiB) << chunk;
    EXPECT_LT(beside, 700 * 3000 * 4) << chunk;
    if (first) {
      EXPECT_EQ(made.logprobs, first->logprobs);
    }
    first = made;
  }
}

// From ample memory down to the least with which a plan exists.
TEST(LmScore, EveryBudgetIsHeldAndChangesNoNumber) {
  const TemporaryFolder folder;
  HfConfig config = small_lm_config();
  config.num_hidden_layers = 6;
  config.hidden_size = 64;
  config.head_dim = 16;
  write_lm(folder.path(), config);
  const TokenRows rows = whole_rows({formula_tokens(40, 80)});
  const Scored ample = score_apart(folder.path(), rows, {.hidden = false});
  const auto needed = [&](int64_t budget) -> std::string {
    try {
      plan_score(config, rows, {.memory_bytes = budget});
    } catch (const CapacityError& error) {
      return error.what();
    }
    return "";
  };
  const std::string refusal = needed(1000);
  EXPECT_THAT(refusal, HasSubstr("scoring rows of 40 tokens needs "));
  const size_t at = refusal.find('(');
  ASSERT_NE(at, std::string::npos) << refusal;
  const int64_t least = std::stoll(refusal.substr(at + 1));
  const int64_t most = ample.predicted[0];
  EXPECT_LT(least, most);
  EXPECT_THAT(needed(least - 1), HasSubstr("more than the memory of"));
  for (const int64_t budget :
       {least, least + (most - least) / 8, least + (most - least) / 2, most - 1, most}) {
    const Scored made = score_apart(folder.path(), rows, {.memory_bytes = budget});
    expect_same(made, ample, fmt::format("budget {}", budget));
    EXPECT_LE(made.measured[0] + made.measured[1], budget);
  }
}

TEST(LmScore, ARowOfOneTokenHasNoLogprobs) {
  for (const char* family : {"llama", "mistral-window", "llama-no-layers"}) {
    const TemporaryFolder folder;
    write_lm(folder.path(), lm_config(family));
    const Scored made =
        score_apart(folder.path(), whole_rows({{5}, {6}}), {.logits = true, .hidden = true});
    EXPECT_TRUE(made.result.logprobs.empty());
    EXPECT_EQ(made.result.logits.size(), 2u * 80);
    EXPECT_EQ(made.result.n_tokens, 0);
    EXPECT_EQ(made.result.mean_logprob(), 0);
    EXPECT_EQ(made.predicted, made.measured) << family;
    EXPECT_TRUE(score_apart(folder.path(), whole_rows({{5}, {6}}), {}).result.logprobs.empty());
  }
}

TEST(LmScore, Bf16ComputesInBf16) {
  const TemporaryFolder folder;
  write_lm(folder.path(), lm_config("qwen3"));
  const TokenRows rows = whole_rows(four_rows(24));
  const Scored wide = score_apart(folder.path(), rows, {});
  const Scored narrow = score_apart(folder.path(), rows, {.dtype = DType::kBF16});
  EXPECT_EQ(narrow.predicted, narrow.measured);
  EXPECT_NE(narrow.result.logprobs, wide.result.logprobs);
  EXPECT_NEAR(narrow.result.mean_logprob(), wide.result.mean_logprob(), 0.01);
}

TEST(LmScore, RefusesRowsThatAreNone) {
  const auto error = [](const TokenRows& rows) { return rows.check(80).error(); };
  EXPECT_EQ(error({0, 5, {}, {}, {}}),
            "tokens: expected at least one row of one token, got [0, 5]");
  EXPECT_EQ(error({1, 3, {1, 2}, {}, {}}), "tokens: expected 3 for [1, 3], got 2");
  EXPECT_EQ(error({2, 2, {1, 2, 3, 80}, {}, {}}),
            "tokens: 80 at row 1, place 1 is outside of the vocabulary of 80");
  EXPECT_EQ(error({1, 2, {-1, 2}, {}, {}}),
            "tokens: -1 at row 0, place 0 is outside of the vocabulary of 80");
  EXPECT_EQ(error({1, 2, {1, 2}, {0, 0}, {1}}),
            "start, lengths: expected 1 numbers each, got 2 and 1");
  EXPECT_EQ(error({1, 2, {1, 2}, {1}, {2}}),
            "start, lengths: row 0 has its tokens from 1 on, 2 of them, in a row of 2");
  EXPECT_EQ(
      error({1, 2, {1, 2}, {2147483647}, {2147483647}}),
      "start, lengths: row 0 has its tokens from 2147483647 on, 2147483647 of them, in a row of 2");
  const TemporaryFolder folder;
  write_lm(folder.path(), lm_config("llama"));
  const Result<Model> model = load(folder.path());
  EXPECT_EQ(message_of([&] { score(*model, whole_rows({{80}})); }),
            "[score] tokens: 80 at row 0, place 0 is outside of the vocabulary of 80");
}

}  // namespace
}  // namespace stow::lm
