// Helpers for tests of datasets: files of lines, tokenizers with a template, examples read back.
// Not an oracle of tokenizers; text/tokenizer_test.cpp compares them with the reference.
#pragma once

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "stowage/train/dataset.h"
#include "tests/support/source_path.h"
#include "tests/support/temporary_folder.h"

namespace stow {

inline constexpr int64_t kVocab = 1000;

// ChatML, preceded by bos_token if there is one.
inline const std::string kChatMl =
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// Returns a tokenizer of tests/data/tokenizers with these special tokens and template; empty ones
/// are left out.
inline text::TokenizerFolder tokenizer_of(const std::string& name, const std::string& eos = "",
                                          const std::string& chat_template = "",
                                          const std::string& bos = "") {
  TemporaryFolder folder;
  write_bytes(folder / "tokenizer.json",
              read_bytes(source_path("tests/data/tokenizers/" + name + ".json")));
  Json config = Json::object();
  if (!eos.empty()) config.set("eos_token", eos);
  if (!bos.empty()) config.set("bos_token", bos);
  if (!chat_template.empty()) config.set("chat_template", chat_template);
  write_bytes(folder / "tokenizer_config.json", config.dump());
  Result<text::TokenizerFolder> loaded = text::TokenizerFolder::load(folder.path());
  EXPECT_TRUE(loaded.ok()) << loaded.error();
  return std::move(*loaded);
}

/// An example as a batch contains it: tokens, targets and their weights.
struct SeenExample {
  std::vector<int32_t> tokens, targets;
  std::vector<float> weights;
  auto key() const { return std::tie(tokens, targets, weights); }
  bool operator<(const SeenExample& other) const { return key() < other.key(); }
  bool operator==(const SeenExample& other) const { return key() == other.key(); }
};

/// Returns the examples of each row, found by lo and hi, and checks all other arrays of the batch.
inline std::vector<std::vector<SeenExample>> rows_of(const TokenBatch& batch) {
  std::vector<std::vector<SeenExample>> rows;
  const auto n = static_cast<size_t>(batch.rows * batch.length);
  EXPECT_EQ(batch.tokens.size(), n);
  EXPECT_EQ(batch.targets.size(), n);
  EXPECT_EQ(batch.weights.size(), n);
  EXPECT_EQ(batch.positions.size(), n);
  EXPECT_EQ(batch.lo.size(), n);
  EXPECT_EQ(batch.hi.size(), n);
  int64_t n_targets = 0, n_tokens = 0;
  for (int64_t r = 0; r < batch.rows; ++r) {
    std::vector<SeenExample>& row = rows.emplace_back();
    int64_t t = 0;
    const auto at = [&](int64_t k) { return static_cast<size_t>(r * batch.length + k); };
    while (t < batch.length && batch.hi[at(t)] > 0) {
      const int64_t begin = t, end = batch.hi[at(t)];
      EXPECT_LE(end, batch.length);
      SeenExample& seen = row.emplace_back();
      for (; t < end && t < batch.length; ++t) {
        EXPECT_EQ(batch.lo[at(t)], begin);
        EXPECT_EQ(batch.hi[at(t)], end);
        EXPECT_EQ(batch.positions[at(t)], t - begin);
        EXPECT_TRUE(batch.weights[at(t)] == 0.0f || batch.weights[at(t)] == 1.0f);
        if (t + 1 < end) {
          EXPECT_EQ(batch.targets[at(t)], batch.tokens[at(t + 1)]);
        }
        seen.tokens.push_back(batch.tokens[at(t)]);
        seen.targets.push_back(batch.targets[at(t)]);
        seen.weights.push_back(batch.weights[at(t)]);
        n_targets += batch.weights[at(t)] == 1.0f;
        ++n_tokens;
      }
    }
    for (; t < batch.length; ++t) {
      EXPECT_EQ(batch.lo[at(t)], 0);
      EXPECT_EQ(batch.hi[at(t)], 0);
      EXPECT_EQ(batch.weights[at(t)], 0.0f);
      EXPECT_EQ(batch.tokens[at(t)], 0);
      EXPECT_EQ(batch.targets[at(t)], 0);
      EXPECT_EQ(batch.positions[at(t)], 0);
    }
  }
  EXPECT_EQ(batch.n_targets, n_targets);
  EXPECT_EQ(batch.n_tokens, n_tokens);
  return rows;
}

/// Opens a dataset with a file of these lines; `text` may be null.
inline Result<Dataset> open_lines(const std::string& lines, DatasetOptions options,
                                  const text::TokenizerFolder* text = nullptr,
                                  int64_t vocab = kVocab) {
  TemporaryFolder folder;
  options.path = folder / "data.jsonl";
  write_bytes(options.path, lines);
  return Dataset::open(options, text, vocab);
}

/// Returns the error of open_lines() without the folder's path, or "no error".
inline std::string error_of(const std::string& lines, const text::TokenizerFolder* text = nullptr,
                            DatasetOptions options = {}) {
  const Result<Dataset> data = open_lines(lines, options, text);
  if (data) return "no error";
  const size_t at = data.error().find("data.jsonl");
  return at == std::string::npos ? data.error() : data.error().substr(at);
}

/// Returns the only example of the first update.
inline SeenExample only_example(Result<Dataset> data) {
  EXPECT_TRUE(data.ok()) << data.error();
  const auto rows = rows_of(data->update(0).microbatches.at(0));
  EXPECT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows.at(0).size(), 1u);
  return rows.at(0).at(0);
}

}  // namespace stow
