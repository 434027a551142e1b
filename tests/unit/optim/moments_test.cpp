// Moments in bf16 and in 8 bits: their errors, their bits, and the memory that they take.
#include "stowage/optim/moments.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>

#include "stowage/base/inside.h"
#include "stowage/core/dtype.h"
#include "stowage/stowage.h"

namespace stow {
namespace {

using optim::GradientTransformation;
using optim::Moment;
using optim::Moments;
using optim::OptState;

constexpr int64_t kRows = 32, kRow = 256;
using Named = std::map<std::string, Array>;

Array noise(uint64_t seed, const Shape& shape = {kRows, kRow}) {
  return random::normal(random::key(seed), shape);
}
// Numbers of many magnitudes.
Array wide_noise(uint64_t seed) {
  return noise(seed) * exp(noise(seed + 100) * 3.0);
}

// A moment as a state keeps it at first.
Moment::Parts parts_of(const Moment& moment, const Array& like) {
  OptState state;
  moment.init(state, {"w", like});
  return moment.parts(state, "w");
}
// What is read of `x` after it has been written in the step `count`.
std::vector<float> kept(const Moment& moment, const Array& x, int count) {
  const Array salt = optim::rounding_salt(Array::scalar(count, DType::kI32), "w");
  const Moment::Parts parts =
      moment.write(x, parts_of(moment, x), optim::rounding_bits(salt, x));
  return moment.read(parts).to_vector<float>();
}

const Moment kMean("mu", Moment::Range::kSigned, Moments::k8Bit);
const Moment kSquares("nu", Moment::Range::kPositive, Moments::k8Bit);
const Moment kMean16("mu", Moment::Range::kSigned, Moments::kBF16);

TEST(Moments, AMeanInEightBitsIsOffByLessThanAStep) {
  const Array x = wide_noise(1);
  const std::vector<float> want = x.to_vector<float>(), scale = max(abs(x), -1).to_vector<float>();
  for (int count : {1, 2, 1000}) {
    const std::vector<float> got = kept(kMean, x, count);
    for (size_t i = 0; i < want.size(); ++i) {
      const double s = scale[i / kRow], k = std::floor(127 * std::sqrt(std::fabs(want[i]) / s));
      const double step = s * (2 * k + 1) / (127 * 127);
      EXPECT_LE(std::fabs(got[i] - want[i]), step * (1 + 1e-5)) << want[i] << " of " << s;
      EXPECT_LE(std::fabs(got[i] - want[i]), 0.016 * s);
    }
  }
}

TEST(Moments, ARootOfSquaresInEightBitsIsOffByLessThanAStep) {
  const Array x = square(wide_noise(2));
  const std::vector<float> want = x.to_vector<float>(), scale = max(x, -1).to_vector<float>();
  for (int count : {1, 2, 1000}) {
    const std::vector<float> got = kept(kSquares, x, count);
    for (size_t i = 0; i < want.size(); ++i) {
      const double s = scale[i / kRow];
      EXPECT_GT(got[i], 0);
      EXPECT_LE(std::fabs(std::pow(got[i] / s, 0.25) - std::pow(want[i] / s, 0.25)), 1.0001 / 256);
      EXPECT_LE(std::fabs(got[i] - want[i]), 0.016 * s);
      EXPECT_LE(std::fabs(std::sqrt(got[i]) - std::sqrt(want[i])), 0.008 * std::sqrt(s));
    }
  }
}

TEST(Moments, TheLargestOfARowIsKeptAndZerosAre) {
  std::vector<float> rows(kRows * kRow, 0.0f);
  rows[5] = 3.5f;                // one number beside zeros
  rows[kRow + 7] = 1e-30f;       // a tiny row
  rows[2 * kRow + 1] = 1e30f;    // a huge one
  rows[2 * kRow + 2] = 1e-10f;   // and beside it a number of nothing
  const Array x = Array::from(rows, Shape{kRows, kRow});
  const std::vector<float> mean = kept(kMean, x, 3), squares = kept(kSquares, x, 3);
  for (size_t at : {size_t{5}, size_t{kRow + 7}, size_t{2 * kRow + 1}}) {
    EXPECT_NEAR(mean[at] / rows[at], 1, 1e-6);
    EXPECT_NEAR(squares[at] / rows[at], 1, 1e-6);
  }
  EXPECT_EQ(mean[6], 0);
  EXPECT_GT(squares[6], 0);
  EXPECT_LT(squares[6], 3.5e-9);
  for (size_t i = 3 * kRow; i < rows.size(); ++i) {
    EXPECT_EQ(mean[i], 0);
    EXPECT_EQ(squares[i], 0);
  }
}

TEST(Moments, TheMeanOverManyStepsIsExact) {
  const Array x = noise(3, {16, 256});
  const std::vector<float> signed_want = x.to_vector<float>();
  const std::vector<float> square_want = square(x).to_vector<float>();
  const Moment squares16("nu", Moment::Range::kPositive, Moments::kBF16);
  const struct {
    const Moment& moment;
    bool is_signed;
    double step;  // of a number near the largest of its row
  } cases[] = {{kMean, true, 0.016}, {kSquares, false, 0.016}, {kMean16, true, 0.008},
               {squares16, false, 0.008}};
  for (const auto& c : cases) {
    const std::vector<float>& want = c.is_signed ? signed_want : square_want;
    const Array of = c.is_signed ? x : square(x);
    constexpr int kSteps = 400;
    std::vector<double> total(want.size());
    for (int count = 1; count <= kSteps; ++count) {
      const std::vector<float> got = kept(c.moment, of, count);
      for (size_t i = 0; i < got.size(); ++i) total[i] += got[i];
    }
    double bias = 0, worst = 0;
    const double largest = *std::max_element(want.begin(), want.end());
    for (size_t i = 0; i < want.size(); ++i) {
      const double error = total[i] / kSteps - want[i];
      bias += error / static_cast<double>(want.size());
      worst = std::max(worst, std::fabs(error));
    }
    // A number between two steps has a deviation of at most half a step; 5 of those are rare.
    const double deviation = 0.5 * c.step * largest / std::sqrt(kSteps);
    EXPECT_LT(worst, 5 * deviation);
    EXPECT_LT(std::fabs(bias), 5 * deviation / std::sqrt(want.size()));
  }
}

TEST(Moments, WhatIsNotFiniteStaysSoInBF16) {
  const float inf = std::numeric_limits<float>::infinity();
  const Array x = Array::from({inf, -inf, std::nanf(""), 0.0f, -0.0f});
  const Array bits = full({5}, 0xffff, DType::kU32);
  const std::vector<float> got =
      optim::round_to_bf16(x, bits).astype(DType::kF32).to_vector<float>();
  EXPECT_EQ(got[0], inf);
  EXPECT_EQ(got[1], -inf);
  EXPECT_TRUE(std::isnan(got[2]));
  EXPECT_EQ(got[3], 0);
  EXPECT_TRUE(std::signbit(got[4]));
}

// The mean second moment after many steps of gradients near 1, before which there were larger ones.
double second_moment(const GradientTransformation& opt, const std::string& name, double before,
                     int steps) {
  const Array p = zeros({64, 64});
  const Array g = random::uniform(random::key(7), {64, 64}, DType::kF32, 1, 1.1);
  OptState state = opt.init(p);
  const auto step =
      jit([&](const Array& u, const OptState& s) { return opt.update(u, s, p).second; });
  for (int i = 0; i < 3000 + steps; ++i) state = step(i < 3000 ? g * before : g, state);
  return mean(state.at(name).astype(DType::kF32)).item<float>();
}

TEST(Moments, SmallChangesAddUpWhereTheNearestStays) {
  const auto nearest = [](float x) {
    return Array::scalar(x, DType::kF32).astype(DType::kBF16).astype(DType::kF32).item<float>();
  };
  // 0.999 of it, rounded to the nearest bf16, is it.
  float v = 4;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(v = nearest(0.999f * v + 0.001f), 4);
  const double exact = second_moment(optim::adam(0.1), "adam/nu/", 2, 3000);
  const double rounded =
      second_moment(optim::adam(0.1, {.moments = Moments::kBF16}), "adam/nu/", 2, 3000);
  EXPECT_LT(exact, 1.4);
  EXPECT_NEAR(rounded / exact, 1, 0.01);
}

TEST(Moments, SmallLeavesKeepF32) {
  const Named params = {{"long", Array::abstract({8192})},
                        {"small", Array::abstract({16, 16})},
                        {"narrow", Array::abstract({4096, 8})},
                        {"stack", Array::abstract({2, 16, 128}, DType::kBF16)}};
  const OptState state = optim::adam(0.1, {.moments = Moments::k8Bit}).init(params);
  EXPECT_EQ(to_string(state.at("adam/mu/long").type()), "f32[8192]");
  EXPECT_EQ(to_string(state.at("adam/nu/small").type()), "f32[16,16]");
  EXPECT_EQ(to_string(state.at("adam/nu/narrow").type()), "f32[4096,8]");
  EXPECT_EQ(to_string(state.at("adam/mu/stack").type()), "u8[2,16,128]");
  EXPECT_EQ(to_string(state.at("adam/mu_scale/stack").type()), "f32[2,16]");
  EXPECT_EQ(to_string(state.at("adam/nu/stack").type()), "u8[2,16,128]");
  EXPECT_EQ(to_string(state.at("adam/nu_scale/stack").type()), "f32[2,16]");
  EXPECT_FALSE(state.contains("adam/mu_scale/small"));
  EXPECT_EQ(state.size(), 11u);
  const OptState half = optim::lion(0.1, {.moments = Moments::kBF16}).init(params);
  EXPECT_EQ(to_string(half.at("lion/mu/small").type()), "bf16[16,16]");
}

TEST(Moments, ADtypeBesideThemIsRefused) {
  try {
    optim::adam(0.1, {.mu_dtype = DType::kBF16, .moments = Moments::k8Bit});
    FAIL();
  } catch (const TraceError& error) {
    EXPECT_NE(std::string(error.what()).find("[mu] a dtype of the moment (bf16) and a format"),
              std::string::npos)
        << error.what();
  }
}

const std::map<std::string, std::function<GradientTransformation(Moments)>>& optimizers() {
  static const std::map<std::string, std::function<GradientTransformation(Moments)>> table = {
      {"adamw", [](Moments m) { return optim::adamw(0.02, {.b2 = 0.99, .moments = m}); }},
      {"adam_nesterov",
       [](Moments m) { return optim::adam(0.02, {.b2 = 0.99, .nesterov = true, .moments = m}); }},
      {"lion", [](Moments m) { return optim::lion(0.01, {.moments = m}); }},
      {"sgd", [](Moments m) { return optim::sgd(20, {.momentum = 0.9, .moments = m}); }},
      {"muon", [](Moments m) { return optim::muon(0.02, {.moments = m}); }}};
  return table;
}

// The loss of matrices that are to become others.
double loss_after(const GradientTransformation& opt, int steps) {
  const Named goal = {{"w", noise(5, {64, 64})}, {"v", noise(6, {48, 128})}};
  Named params = {{"w", zeros({64, 64})}, {"v", zeros({48, 128})}};
  OptState state = opt.init(params);
  const auto loss = [&](const Named& p) {
    return mean(square(p.at("w") - goal.at("w"))) + mean(square(p.at("v") - goal.at("v")));
  };
  const auto step = jit([&](const Named& p, const OptState& s) {
    const auto [updates, next] = opt.update(grad(loss)(p), s, p);
    return std::pair(optim::apply_updates(p, updates), next);
  });
  for (int i = 0; i < steps; ++i) std::tie(params, state) = step(params, state);
  return loss(params).item<float>();
}

TEST(Moments, OptimizersLearnAsWithWholeMoments) {
  for (const auto& [name, make] : optimizers()) {
    const double whole = loss_after(make(Moments::kFull), 60);
    EXPECT_LT(whole, 1.9) << name;  // of 2
    EXPECT_NEAR(loss_after(make(Moments::kBF16), 60) / whole, 1, 0.02) << name;
    EXPECT_NEAR(loss_after(make(Moments::k8Bit), 60) / whole, 1, 0.05) << name;
  }
}

// ---- memory ----

class CompactMoments : public ::testing::Test {
 protected:
  static constexpr int64_t kMiB = 1 << 20;
  DevicePtr device_ = Device::virtual_device({256 * kMiB, 512 * kMiB, 256 * kMiB}, 2);
  DefaultDevice guard_{device_};

  // A clipped update of what lies where `params` and `state` do.
  static auto step_of(const GradientTransformation& opt) {
    return [opt](const Named& params, const OptState& state, const Named& grads) {
      const auto kind = [](const Array& a) { return a.type().kind; };
      const Named p = device_put(params, MemoryKind::kDevice);
      auto [updates, next] = opt.update(device_put(grads, MemoryKind::kDevice),
                                        device_put(state, MemoryKind::kDevice), p);
      Named moved = optim::apply_updates(p, updates);
      for (auto& [name, a] : moved) a = device_put(a, kind(params.at(name)));
      for (auto& [name, a] : next) a = device_put(a, kind(state.at(name)));
      return std::pair(moved, next);
    };
  }
  static GradientTransformation clipped(Moments moments) {
    return optim::chain(optim::clip_by_global_norm(1.0),
                        optim::adamw(1e-3, {.weight_decay = 0.1, .moments = moments}));
  }
  static Named net(const Shape& shape, uint64_t seed, MemoryKind kind) {
    return device_put(Named{{"w", noise(seed, shape)}}, kind);
  }
  template <typename T>
  static std::vector<std::vector<float>> bits(const T& tree) {
    std::vector<std::vector<float>> all;
    for (const Array& a : tree_leaves(tree))
      all.push_back(
          device_put(a, MemoryKind::kDevice).astype(DType::kF32).template to_vector<float>());
    return all;
  }
};

TEST_F(CompactMoments, HaveTheSameBitsWhereverTheyLieAndHoweverTheyAreCut) {
  for (const Moments moments : {Moments::kBF16, Moments::k8Bit})
    for (const Shape& shape : {Shape{300, 64}, Shape{3, 50, 96}, Shape{1021, 17}}) {
      SCOPED_TRACE(to_string(shape));
      const GradientTransformation opt = clipped(moments);
      std::vector<std::vector<float>> want;
      for (const MemoryKind kind :
           {MemoryKind::kDevice, MemoryKind::kPinnedHost, MemoryKind::kDisk})
        for (const int64_t tile : {0, 1000, 4096, 1 << 14}) {
          JitOptions options;
          options.compile.tile_bytes = tile;
          const auto step = jit(step_of(opt), options);
          Named params = net(shape, 1, kind);
          OptState state = device_put(opt.init(net(shape, 1, MemoryKind::kDevice)), kind);
          for (uint64_t i = 0; i < 3; ++i)
            std::tie(params, state) = step(params, state, net(shape, 2 + i, kind));
          const auto got = bits(std::pair(params, state));
          if (want.empty()) want = got;
          EXPECT_EQ(got, want) << memory_kind_name(kind) << " in tiles of " << tile;
        }
    }
}

TEST_F(CompactMoments, TakeAHalfAndAQuarterAndAreUpdatedInPlace) {
  constexpr int64_t kN = 1024, kLeaf = kN * kN * 4;
  std::map<Moments, int64_t> arguments;
  for (const Moments moments : {Moments::kFull, Moments::kBF16, Moments::k8Bit}) {
    const GradientTransformation opt = clipped(moments);
    const Named abstract = {{"w", Array::abstract({kN, kN})}};
    const MemoryAnalysis a = jit(step_of(opt), {.donate_argnums = {0, 1}})
                                 .lower(abstract, opt.init(abstract), abstract)
                                 .compile()
                                 .memory_analysis();
    arguments[moments] = a.device().argument_bytes - 2 * kLeaf;
    EXPECT_LT(a.device().total_bytes - a.device().argument_bytes, kLeaf / 8);
  }
  EXPECT_NEAR(static_cast<double>(arguments[Moments::kBF16]) / arguments[Moments::kFull], 0.5,
              0.001);
  EXPECT_NEAR(static_cast<double>(arguments[Moments::k8Bit]) / arguments[Moments::kFull], 0.25,
              0.002);
}

TEST_F(CompactMoments, ElsewhereComeTileByTile) {
  for (const Moments moments : {Moments::kFull, Moments::kBF16, Moments::k8Bit}) {
    const GradientTransformation opt = clipped(moments);
    Named abstract = {{"w", Array::abstract(ArrayType{DType::kF32, {4, 1024, 1024}})}};
    OptState state = opt.init(abstract);
    const auto elsewhere = [](auto tree) {
      for (auto& [name, a] : tree) {
        ArrayType type = a.type();
        if (type.shape.rank() > 0) type.kind = MemoryKind::kPinnedHost;
        a = Array::abstract(type);
      }
      return tree;
    };
    abstract = elsewhere(abstract);
    JitOptions options;
    options.donate_argnums = {0, 1};
    options.compile.tile_bytes = kTileBytes;
    const MemoryAnalysis a = jit(step_of(opt), options)
                                 .lower(abstract, elsewhere(state), abstract)
                                 .compile()
                                 .memory_analysis();
    EXPECT_LE(a.device().temp_bytes, 8 * kTileBytes) << static_cast<int>(moments);
    EXPECT_EQ(a.host().temp_bytes, 0);
    EXPECT_EQ(a.host().output_bytes, a.host().alias_bytes);
  }
}

}  // namespace
}  // namespace stow
