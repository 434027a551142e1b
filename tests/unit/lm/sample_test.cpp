// The choice of a token: filters and their order, ties, and how often each token comes.
#include "stowage/lm/sample.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <vector>

namespace stow::lm {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// The tokens that some number of [0, 1) picks.
std::set<int32_t> reachable(const std::vector<float>& logits, const SamplingOptions& options) {
  std::set<int32_t> ids;
  constexpr int kSteps = 2000;
  for (int i = 0; i < kSteps; ++i)
    ids.insert(sample(logits, options, static_cast<double>(i) / kSteps));
  return ids;
}

// Logits of these probabilities.
std::vector<float> logits_of(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

TEST(Sample, ZeroTemperatureTakesTheFirstOfTheLargest) {
  const std::vector<float> logits = {1, 3, 2, 3, kNever, 3};
  for (const double uniform : {0.0, 0.5, 0.999999})
    EXPECT_EQ(sample(logits, {.temperature = 0, .top_k = 4, .top_p = 0.1}, uniform), 1);
}

TEST(Sample, TopKKeepsExactlyKTheFirstOfTies) {
  const std::vector<float> logits = {0, 2, 1, 1, 1, 3, 1};
  const std::vector<std::set<int32_t>> kept = {
      {5}, {1, 5}, {1, 2, 5}, {1, 2, 3, 5}, {1, 2, 3, 4, 5}};
  for (size_t k = 1; k <= kept.size(); ++k)
    EXPECT_EQ(reachable(logits, {.top_k = static_cast<int64_t>(k)}), kept[k - 1]) << k;
  for (const int64_t k : {-1, 0, 7, 100})
    EXPECT_EQ(reachable(logits, {.top_k = k}).size(), logits.size()) << k;
  EXPECT_EQ(reachable(std::vector<float>(50, 0.5f), {.top_k = 3}), (std::set<int32_t>{0, 1, 2}));
}

TEST(Sample, TopPKeepsWhileTheSumBeforeIsLess) {
  const std::vector<float> logits = logits_of({0.125, 0.5, 0.25, 0.125});
  EXPECT_EQ(reachable(logits, {.top_p = 0.4}), (std::set<int32_t>{1}));
  EXPECT_EQ(reachable(logits, {.top_p = 0.51}), (std::set<int32_t>{1, 2}));
  EXPECT_EQ(reachable(logits, {.top_p = 0.76}), (std::set<int32_t>{0, 1, 2}));
  EXPECT_EQ(reachable(logits, {.top_p = 0.9}), (std::set<int32_t>{0, 1, 2, 3}));
  // The most probable always, the first of equal ones.
  EXPECT_EQ(reachable(logits, {.top_p = 0}), (std::set<int32_t>{1}));
  EXPECT_EQ(reachable({1, 1, 1, 1}, {.top_p = 0}), (std::set<int32_t>{0}));
  // "Less", not "at most": sums of equal weights are exact.
  EXPECT_EQ(reachable({1, 1, 1, 1}, {.top_p = 0.5}), (std::set<int32_t>{0, 1}));
  EXPECT_EQ(reachable({1, 1, 1, 1}, {.top_p = 0.5000001}), (std::set<int32_t>{0, 1, 2}));
}

TEST(Sample, TopPSortsAsFarAsItTakes) {
  std::vector<float> logits(1000);  // beyond the first 64, and beyond 256
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i) * 1e-4f;
  double sum = 0, before = 0;
  for (const float x : logits) sum += std::exp(double{x});
  for (size_t n = 0; n < 500; ++n) before += std::exp(double{logits[999 - n]});
  const double p = before / sum + 1e-9;  // the sum before token 499 is less, the one after is not
  const auto lowest = sample(logits, {.top_p = p}, 0.0);
  EXPECT_EQ(lowest, 499);
}

TEST(Sample, FiltersActInTheirOrder) {
  // top_k first: of the two that are left the first has 5/9, which is enough for p = 0.52. With
  // top_p first 0.5 would not be, and both would stay.
  const std::vector<float> logits = logits_of({0.5, 0.4, 0.1});
  EXPECT_EQ(reachable(logits, {.top_k = 2, .top_p = 0.52}), (std::set<int32_t>{0}));
  EXPECT_EQ(reachable(logits, {.top_p = 0.52}), (std::set<int32_t>{0, 1}));
  // The temperature before top_p: flat, the first has 0.41; sharp, 0.61.
  EXPECT_EQ(reachable(logits, {.temperature = 2, .top_p = 0.45}), (std::set<int32_t>{0, 1}));
  EXPECT_EQ(reachable(logits, {.temperature = 0.5, .top_p = 0.55}), (std::set<int32_t>{0}));
}

TEST(Sample, NeverTakesWhatHasNoProbability) {
  EXPECT_EQ(reachable({kNever, 0, kNever, 0}, {}), (std::set<int32_t>{1, 3}));
  EXPECT_EQ(sample(std::vector<float>{kNever, 0, kNever}, {}, 0.0), 1);
  EXPECT_EQ(sample(std::vector<float>{kNever, 0, kNever}, {}, std::nextafter(1.0, 0.0)), 1);
  EXPECT_EQ(reachable({kNever, 0, kNever, 1}, {.top_k = 3}), (std::set<int32_t>{1, 3}));
}

TEST(Sample, LargeLogitsDoNotOverflow) {
  EXPECT_EQ(reachable({3e38f, -3e38f, 3e38f}, {.temperature = 1e-6}), (std::set<int32_t>{0, 2}));
}

TEST(Sample, TokensComeAsOftenAsTheirProbabilitySays) {
  const std::vector<double> p = {0.4, 0.1, 0.3, 0.15, 0.05};
  const std::vector<float> logits = logits_of(p);
  constexpr int kDraws = 20000;
  const auto frequencies = [&](const SamplingOptions& options) {
    std::vector<double> counts(p.size());
    for (int i = 0; i < kDraws; ++i)
      ++counts[static_cast<size_t>(
          sample(logits, options, uniform_of(7, 3, static_cast<uint64_t>(i))))];
    return counts;
  };
  const auto expect = [&](const SamplingOptions& options, std::vector<double> weights) {
    double sum = 0;
    for (const double w : weights) sum += w;
    const std::vector<double> counts = frequencies(options);
    for (size_t i = 0; i < weights.size(); ++i) {
      const double q = weights[i] / sum;
      EXPECT_NEAR(counts[i], q * kDraws, 4 * std::sqrt(q * (1 - q) * kDraws)) << i;  // deviations
    }
  };
  expect({}, p);
  expect({.temperature = 2},
         {std::sqrt(0.4), std::sqrt(0.1), std::sqrt(0.3), std::sqrt(0.15), std::sqrt(0.05)});
  expect({.top_k = 3}, {0.4, 0, 0.3, 0.15, 0});
  expect({.top_p = 0.6}, {0.4, 0, 0.3, 0, 0});
}

TEST(Sample, NumbersAreUniformAndOfSeedRowAndStep) {
  double sum = 0, squares = 0;
  std::set<double> seen;
  for (uint64_t seed = 0; seed < 20; ++seed)
    for (uint64_t row = 0; row < 20; ++row)
      for (uint64_t step = 0; step < 20; ++step) {
        const double u = uniform_of(seed, row, step);
        EXPECT_EQ(u, uniform_of(seed, row, step));
        EXPECT_GE(u, 0);
        EXPECT_LT(u, 1);
        seen.insert(u);
        sum += u;
        squares += u * u;
      }
  EXPECT_EQ(seen.size(), 8000u);
  EXPECT_NEAR(sum / 8000, 0.5, 4 / std::sqrt(12.0 * 8000));
  EXPECT_NEAR(squares / 8000, 1 / 3.0, 0.014);
}

TEST(Sample, LogProbabilityIsOfTheRawLogits) {
  const std::vector<double> p = {0.4, 0.1, 0.3, 0.15, 0.05};
  const std::vector<float> logits = logits_of(p);
  for (size_t i = 0; i < p.size(); ++i)
    EXPECT_NEAR(log_probability(logits, static_cast<int32_t>(i)), std::log(p[i]), 1e-6);
  EXPECT_EQ(log_probability(std::vector<float>{0, kNever}, 0), 0);
  EXPECT_NEAR(log_probability(std::vector<float>{1000, 999}, 1), -1.3132616875, 1e-9);
}

}  // namespace
}  // namespace stow::lm
