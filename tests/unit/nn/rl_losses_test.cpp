// Losses of reinforcement fine-tuning: values and gradients against their formulas, masks, and
// mixtures.
#include "stowage/nn/rl_losses.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "stowage/stowage.h"

namespace stow::nn {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Row {
  TokenLoss kind;
  std::vector<float> logprobs, reference, advantages, weights;
  float low = 0.8f, high = 1.2f, beta = 0.1f;
  int32_t rejected = -1;
};

struct Made {
  std::vector<float> tokens, rows, gradient;
};

Made losses_of(const std::vector<Row>& rows) {
  const auto b = static_cast<int64_t>(rows.size()),
             t = static_cast<int64_t>(rows[0].logprobs.size());
  const auto matrix = [&](std::vector<float> Row::*field) {
    std::vector<float> all;
    for (const Row& row : rows) all.insert(all.end(), (row.*field).begin(), (row.*field).end());
    return Array::from(all, {b, t});
  };
  const auto vector = [&](auto value) {
    std::vector<decltype(value(rows[0]))> all;
    for (const Row& row : rows) all.push_back(value(row));
    return Array::from(all, {b});
  };
  const LossBatch batch{matrix(&Row::weights),
                        matrix(&Row::reference),
                        matrix(&Row::advantages),
                        vector([](const Row& r) { return static_cast<int32_t>(r.kind); }),
                        vector([](const Row& r) { return r.low; }),
                        vector([](const Row& r) { return r.high; }),
                        vector([](const Row& r) { return r.beta; }),
                        vector([](const Row& r) { return r.rejected; })};
  const auto [result, gradient] = jit([](const Array& logprobs, const LossBatch& x) {
    return value_and_grad_aux([&](const Array& l) {
      const RowLosses losses = row_losses(l, x);
      return std::pair(sum(losses.rows), losses);
    })(logprobs);
  })(matrix(&Row::logprobs), batch);
  return {result.second.tokens.template to_vector<float>(),
          result.second.rows.template to_vector<float>(), gradient.template to_vector<float>()};
}

TEST(RlLosses, CrossEntropyIsTheWeightedMean) {
  const Made made = losses_of({{TokenLoss::kCrossEntropy,
                                {-1, -2, -4},
                                {kNaN, kNaN, kNaN},
                                {kNaN, kNaN, kNaN},
                                {1, 3, 0}}});
  EXPECT_EQ(made.tokens, (std::vector<float>{1, 6, 0}));
  EXPECT_FLOAT_EQ(made.rows[0], 7.0f / 4);
  EXPECT_FLOAT_EQ(made.gradient[0], -0.25f);
  EXPECT_FLOAT_EQ(made.gradient[1], -0.75f);
  EXPECT_EQ(made.gradient[2], 0);
}

TEST(RlLosses, ImportanceSamplingIsTheRatioTimesTheAdvantage) {
  const Made made =
      losses_of({{TokenLoss::kImportanceSampling, {-1, -2}, {-1.5f, -1}, {2, -3}, {1, 1}}});
  const double first = -2 * std::exp(0.5), second = 3 * std::exp(-1.0);
  EXPECT_NEAR(made.tokens[0], first, 1e-5);
  EXPECT_NEAR(made.tokens[1], second, 1e-5);
  EXPECT_NEAR(made.rows[0], (first + second) / 2, 1e-5);
  EXPECT_NEAR(made.gradient[0], first / 2, 1e-5);
  EXPECT_NEAR(made.gradient[1], second / 2, 1e-5);
}

// At a ratio of e^100, which is no number of f32.
TEST(RlLosses, PpoClipsAnyRatio) {
  for (const auto& [low, high, expected] :
       {std::tuple(0.8f, 1.2f, -1.2f), std::tuple(0.99f, 1.01f, -1.01f)}) {
    const Made made = losses_of({{TokenLoss::kPpo, {0}, {-100}, {1}, {1}, low, high}});
    EXPECT_FLOAT_EQ(made.rows[0], expected);
    EXPECT_EQ(made.gradient[0], 0);
  }
  // Within the bounds, and beyond them on the side that is not clipped.
  const float q = -1;
  for (const auto& [change, advantage] : {std::pair(0.1f, 2.0f), std::pair(0.1f, -2.0f),
                                          std::pair(1.0f, -2.0f), std::pair(-1.0f, 2.0f)}) {
    const Made made = losses_of({{TokenLoss::kPpo, {q + change}, {q}, {advantage}, {1}}});
    EXPECT_NEAR(made.rows[0], -std::exp(change) * advantage, 1e-5);
    EXPECT_NEAR(made.gradient[0], -std::exp(change) * advantage, 1e-5);
  }
  const Made below = losses_of({{TokenLoss::kPpo, {q - 1}, {q}, {-2}, {1}}});
  EXPECT_FLOAT_EQ(below.rows[0], 1.6f);
  EXPECT_EQ(below.gradient[0], 0);
}

TEST(RlLosses, GradientOfCispoIsTheClippedRatioTimesTheAdvantage) {
  for (const auto& [change, ratio] : {std::pair(0.1f, std::exp(0.1f)), std::pair(1.0f, 1.2f),
                                      std::pair(-1.0f, 0.8f), std::pair(100.0f, 1.2f)})
    for (const float advantage : {1.5f, -0.5f}) {
      const float q = -101, logp = q + change;
      const Made made = losses_of({{TokenLoss::kCispo, {logp}, {q}, {advantage}, {1}}});
      EXPECT_NEAR(made.gradient[0], -ratio * advantage, 1e-5);
      EXPECT_NEAR(made.rows[0], -ratio * advantage * logp, 1e-3);
    }
}

TEST(RlLosses, DpoComparesThePairWithItsReference) {
  const float beta = 0.5f;
  const Made made = losses_of({{TokenLoss::kDpo,
                                {-1, -2, -9},
                                {-2, -2, kNaN},
                                {kNaN, kNaN, kNaN},
                                {1, 1, 0},
                                0.8f,
                                1.2f,
                                beta,
                                1},
                               {TokenLoss::kDpo,
                                {-1, -1, -1},
                                {-3, -1, -1},
                                {kNaN, kNaN, kNaN},
                                {1, 1, 1},
                                0.8f,
                                1.2f,
                                beta}});
  const double difference = 1 - 2;
  EXPECT_NEAR(made.rows[0], std::log1p(std::exp(-beta * difference)), 1e-6);
  EXPECT_EQ(made.rows[1], 0);
  const double slope = beta / (1 + std::exp(beta * difference));
  EXPECT_NEAR(made.gradient[0], -slope, 1e-6);
  EXPECT_NEAR(made.gradient[1], -slope, 1e-6);
  EXPECT_EQ(made.gradient[2], 0);
  EXPECT_NEAR(made.gradient[5], slope, 1e-6);
  EXPECT_EQ(made.tokens, std::vector<float>(6, 0));
}

TEST(RlLosses, AWeightOfZeroMasksWhateverIsThere) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const TokenLoss kind : {TokenLoss::kCrossEntropy, TokenLoss::kImportanceSampling,
                               TokenLoss::kPpo, TokenLoss::kCispo}) {
    const Made alone =
        losses_of({{kind, {-1.5f, 0, 0, 0}, {-1.4f, 0, 0, 0}, {2, 0, 0, 0}, {0.5f, 0, 0, 0}}});
    const Made made = losses_of({{kind,
                                  {-1.5f, kNaN, -1, -inf},
                                  {-1.4f, -1, kNaN, -300},
                                  {2, 1, kNaN, inf},
                                  {0.5f, 0, 0, 0}}});
    EXPECT_EQ(made.tokens, alone.tokens);
    EXPECT_EQ(made.rows, alone.rows);
    EXPECT_EQ(made.gradient, alone.gradient);
    EXPECT_NE(made.gradient[0], 0);
    // Nothing counts: a loss of 0.
    const Made none = losses_of({{kind, {kNaN}, {kNaN}, {kNaN}, {0}}});
    EXPECT_EQ(none.rows[0], 0);
    EXPECT_EQ(none.gradient[0], 0);
  }
}

TEST(RlLosses, AMixtureIsItsRowsAlone) {
  const std::vector<Row> rows = {
      {TokenLoss::kCrossEntropy, {-1, -2}, {kNaN, kNaN}, {kNaN, kNaN}, {1, 1}},
      {TokenLoss::kImportanceSampling, {-1, -2}, {-3, -1}, {1, -1}, {1, 2}},
      {TokenLoss::kPpo, {-1, -2}, {-101, -1}, {1, -1}, {1, 1}},
      {TokenLoss::kCispo, {-1, -2}, {-3, -1}, {1, -1}, {0, 1}},
      {TokenLoss::kDpo, {-1, -2}, {-3, -1}, {0, 0}, {1, 1}, 0.8f, 1.2f, 0.3f},
      {TokenLoss::kDpo, {-2, -1}, {-1, -1}, {0, 0}, {1, 1}, 0.8f, 1.2f, 0.3f, 4}};
  const Made all = losses_of(rows);
  for (size_t i = 0; i < 4; ++i) {
    const Made one = losses_of({rows[i]});
    EXPECT_EQ(all.rows[i], one.rows[0]) << i;
    for (size_t t = 0; t < 2; ++t) {
      EXPECT_EQ(all.tokens[2 * i + t], one.tokens[t]) << i;
      EXPECT_EQ(all.gradient[2 * i + t], one.gradient[t]) << i;
    }
  }
  std::vector<Row> pair = {rows[4], rows[5]};
  pair[1].rejected = 0;
  const Made two = losses_of(pair);
  EXPECT_EQ(all.rows[5], two.rows[1]);
  EXPECT_GT(all.rows[5], 0.0f);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(all.gradient[8 + i], two.gradient[i]);
}

}  // namespace
}  // namespace stow::nn
