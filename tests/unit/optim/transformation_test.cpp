// What gradient transformations promise beyond optax's numbers: masks, frozen parts that cost
// nothing, states that are trees, updates in place.
#include <gtest/gtest.h>

#include <cmath>

#include "stowage/base/inside.h"
#include "stowage/stowage.h"

namespace stow {
namespace {

using optim::GradientTransformation;
using optim::OptState;

struct Net {
  Array big, small;
};
STOW_TREE(Net, big, small);

constexpr int64_t kN = 256;

Net abstract_net() {
  return {Array::abstract({kN, kN}), Array::abstract({kN, kN})};
}
Array loss(const Net& net, const Array& x) {
  return sum(square(matmul(tanh(matmul(x, net.big)), net.small)));
}

std::vector<std::string> names(const OptState& state) {
  std::vector<std::string> result;
  for (const auto& [name, array] : state) result.push_back(name);
  return result;
}

TEST(Mask, PatternsFitLeavesAndFolders) {
  using optim::path_matches;
  EXPECT_TRUE(path_matches("embed", "embed"));
  EXPECT_TRUE(path_matches("layers", "layers/3/w1"));
  EXPECT_TRUE(path_matches("layers/*/w?", "layers/3/w1"));
  EXPECT_TRUE(path_matches("**/w1", "layers/3/w1"));
  EXPECT_TRUE(path_matches("*", "a"));
  EXPECT_TRUE(path_matches("*", "a/b"));
  EXPECT_FALSE(path_matches("layer", "layers/3/w1"));
  EXPECT_FALSE(path_matches("layers/w1", "layers/3/w1"));
  EXPECT_FALSE(path_matches("layers/?/w", "layers/3/w1"));
  EXPECT_FALSE(path_matches("*/w1", "layers/3/w1"));
  EXPECT_FALSE(path_matches("", "a"));
  EXPECT_FALSE(path_matches("embed/x", "embed"));
}

TEST(Mask, NoneMeansAllAndItsOppositeNothing) {
  const optim::Leaf leaf = {"a", Array::abstract(Shape{})};
  EXPECT_TRUE(optim::Mask()(leaf));
  EXPECT_FALSE((!optim::Mask())(leaf));
  EXPECT_FALSE(optim::Mask(std::vector<std::string>())(leaf));
  EXPECT_TRUE((!!optim::Mask({"a"}))(leaf));
}

TEST(Optim, StatesAreNamedAndNumbered) {
  const Net params = abstract_net();
  EXPECT_EQ(names(optim::chain(optim::trace(0.9), optim::sgd(0.1, {.momentum = 0.5})).init(params)),
            (std::vector<std::string>{"trace/trace/big", "trace/trace/small", "trace_2/trace/big",
                                      "trace_2/trace/small"}));
  EXPECT_EQ(names(optim::sgd(0.1).init(params)), std::vector<std::string>());
  EXPECT_EQ(names(optim::masked(optim::adam(0.1), {"small"}).init(params)),
            (std::vector<std::string>{"adam/count", "adam/mu/small", "adam/nu/small"}));
}

TEST(Optim, AbstractParametersGiveAnAbstractState) {
  const OptState state = optim::adafactor(0.1).init(abstract_net());
  EXPECT_EQ(to_string(state.at("factored_rms/v_row/big").type()), "f32[256]");
  EXPECT_TRUE(state.at("factored_rms/v_row/big").is_abstract());
}

TEST(Optim, UpdatesAreInPlaceOfWhatWasDonated) {
  const GradientTransformation opt =
      optim::chain(optim::clip_by_global_norm(1.0), optim::adamw(1e-3, {.weight_decay = 0.1}));
  const Net net = abstract_net();
  auto step = jit(
      [&](const Net& params, const OptState& state, const Net& grads) {
        const auto [updates, next] = opt.update(grads, state, params);
        return std::pair(optim::apply_updates(params, updates), next);
      },
      {.donate_argnums = {0, 1}});
  const MemoryAnalysis analysis = step.lower(net, opt.init(net), net).compile().memory_analysis();
  const int64_t leaf = kN * kN * 4;
  EXPECT_EQ(analysis.device().argument_bytes / leaf, 8);  // parameters, gradients, two moments
  EXPECT_LT(analysis.device().total_bytes - analysis.device().argument_bytes, leaf / 4);
}

// The step of `opt` on the whole net.
template <typename Params, typename Loss>
MemoryAnalysis step_analysis(const GradientTransformation& opt, const Params& params, Loss of) {
  auto step = jit(
      [&](const Params& p, const OptState& state, const Array& x) {
        const auto g = grad([&](const Params& q) { return of(q, x); })(p);
        const auto [updates, next] = opt.update(g, state, p);
        return std::pair(optim::apply_updates(p, updates), next);
      },
      {.donate_argnums = {0, 1}});
  return step.lower(params, opt.init(params), Array::abstract({8, kN})).compile().memory_analysis();
}

TEST(Optim, WhatIsFrozenCostsNeitherGradientNorMoment) {
  const GradientTransformation opt =
      optim::chain(optim::clip_by_global_norm(1.0), optim::adam(1e-3));
  const int64_t leaf = kN * kN * 4;
  const auto all = step_analysis(opt, abstract_net(), loss);
  const auto frozen = step_analysis(optim::selective_transform(opt, {"big"}), abstract_net(), loss);
  // What a program needs that was written for the small part alone, the big one a constant.
  const Array big = Array::abstract({kN, kN});
  auto small_step = jit(
      [&](const Array& small, const OptState& state, const Array& b, const Array& x) {
        const auto g = grad([&](const Array& s) { return loss({b, s}, x); })(small);
        const auto [updates, next] = opt.update(g, state, small);
        return std::pair(optim::apply_updates(small, updates), next);
      },
      {.donate_argnums = {0, 1}});
  const auto alone = small_step.lower(big, opt.init(big), big, Array::abstract({8, kN}))
                         .compile()
                         .memory_analysis();
  EXPECT_EQ(frozen.device().argument_bytes, alone.device().argument_bytes);
  EXPECT_LE(frozen.device().temp_bytes, alone.device().temp_bytes);
  EXPECT_LT(frozen.n_instants, all.n_instants);
  EXPECT_EQ(all.device().argument_bytes - frozen.device().argument_bytes, 2 * leaf);
  EXPECT_GT(all.device().temp_bytes, frozen.device().temp_bytes);
}

TEST(Optim, WhatIsFrozenKeepsItsBits) {
  const Net net = {Array::from({-0.0f, 1.0f}), Array::from({2.0f, 3.0f})};
  const GradientTransformation opt = optim::selective_transform(optim::sgd(0.5), {"big"});
  const auto [updates, state] = opt.update(net, opt.init(net), net);
  const Net next = optim::apply_updates(net, updates);
  EXPECT_TRUE(std::signbit(next.big.to_vector<float>()[0]));
  EXPECT_EQ(next.big.to_vector<float>()[1], 1);
  EXPECT_EQ(next.small.to_vector<float>(), (std::vector<float>{1, 1.5}));
}

TEST(Optim, BadGradientsAreTakenAtLastAfterTooManyInARow) {
  const GradientTransformation opt = optim::apply_if_finite(optim::sgd(1.0), 2);
  Array p = Array::from({1.0f});
  OptState state = opt.init(p);
  const Array bad = Array::from({std::numeric_limits<float>::infinity()});
  for (int i = 0; i < 3; ++i) {
    auto [updates, next] = opt.update(bad, state, p);
    p = optim::apply_updates(p, updates);
    state = next;
    EXPECT_EQ(std::isfinite(p.item<float>()), i < 2) << i;
    EXPECT_EQ(state.at("apply_if_finite/notfinite_count").item<int>(), i + 1);
  }
}

TEST(Optim, MomentsOfF64AreCorrectedInF64) {
  const auto adam = optim::adam(1e-2);
  Array x = Array::from({0.4, -0.3});
  OptState state = adam.init(x);
  double want = 0.4, m = 0, v = 0;
  for (int t = 1; t <= 3; ++t) {
    const Array gradient = sinh(x);
    const auto [update, next] = adam.update(gradient, state, x);
    x = optim::apply_updates(x, update);
    state = next;
    const double g = std::sinh(want);
    m = 0.9 * m + (1 - 0.9) * g;
    v = 0.999 * v + (1 - 0.999) * g * g;
    want -= 1e-2 * (m / (1 - std::pow(0.9, t))) /
            (std::sqrt(v / (1 - std::pow(0.999, t))) + 1e-8);
  }
  EXPECT_NEAR(x[0].item<double>(), want, 1e-14);
}

TEST(Optim, SkippedUpdatesAreNotComputed) {
  const auto text_of = [](const GradientTransformation& opt) {
    const Array p = Array::abstract({4}, DType::kF32);
    const auto step = [&](const Array& g, const OptState& state) {
      return opt.update(g, state, p);
    };
    return jit(step).lower(p, opt.init(p)).text();
  };
  // The inner work, of which the root is a part, stands in a branch, and so further in.
  for (const GradientTransformation& opt :
       {optim::apply_if_finite(optim::adam(0.1), 2), optim::multi_steps(optim::adam(0.1), 3)}) {
    const std::string text = text_of(opt);
    const size_t root = text.find(" = sqrt(");
    ASSERT_NE(root, std::string::npos);
    const size_t line = text.rfind('\n', root) + 1;
    EXPECT_GT(text.find('%', line) - line, 2u);
    EXPECT_NE(text.find(" = cond("), std::string::npos);
  }
}

// optax multiplies the sum by zero there, which leaves NaN in it.
TEST(Optim, ABadMeanIsOverWithItsUpdate) {
  const GradientTransformation opt = optim::multi_steps(optim::sgd(1.0), 2);
  const Array p = Array::from({1.0f});
  OptState state = opt.init(p);
  std::vector<float> updates;
  for (const float g : {1.0f, std::nanf(""), 2.0f, 4.0f}) {
    Array update;
    std::tie(update, state) = opt.update(Array::from({g}), state, p);
    updates.push_back(update.item<float>());
  }
  EXPECT_TRUE(std::isnan(updates[1]));
  EXPECT_EQ(updates[3], -3.0f);
}

TEST(Optim, ATransformationOfOnesOwn) {
  const GradientTransformation halve(
      "halve", [](const optim::Leaves&) { return OptState{{"n", Array::scalar(0, DType::kI32)}}; },
      [](optim::Leaves& updates, OptState& state, const optim::Leaves&) {
        for (optim::Leaf& leaf : updates) leaf.value = leaf.value * 0.5;
        state["n"] = state["n"] + 1;
      });
  const GradientTransformation opt = optim::chain(halve, halve, optim::sgd(1.0));
  const Array p = Array::from({1.0f});
  const auto [updates, state] = opt.update(p, opt.init(p), p);
  EXPECT_EQ(updates.item<float>(), -0.25f);
  EXPECT_EQ(names(state), (std::vector<std::string>{"halve/n", "halve_2/n"}));
  EXPECT_EQ(state.at("halve_2/n").item<int>(), 1);
}

// Of boundaries that fall on one count the last counts; values of optax.
TEST(Optim, OnecycleSchedulesWhoseBoundariesMeet) {
  const std::pair<optim::Schedule, std::vector<float>> cases[] = {
      {optim::linear_onecycle_schedule(1, 1.0), {.0016f, 1.6e-7f, 1.6e-7f, 1.6e-7f}},
      {optim::linear_onecycle_schedule(
           10, 2.0, {.pct_start = .5, .pct_final = .5, .div_factor = 5, .final_div_factor = 10}),
       {.4f, .336f, .272f, .208f}},
      {optim::linear_onecycle_schedule(3, 1.0, {.pct_final = 1}), {1.f, .6667f, .3334f, 1e-4f}},
      {optim::cosine_onecycle_schedule(4, 1.0, {.pct_start = 1}),
       {.04f, .03414216f, .02f, .005858f}},
  };
  for (const auto& [schedule, want] : cases)
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(schedule(Array(static_cast<int>(i))).item<float>() / want[i], 1, 1e-5f) << i;
}

TEST(Optim, WithoutLeavesThereIsNothingToDo) {
  const std::vector<Array> none;
  const GradientTransformation opt =
      optim::chain(optim::clip_by_global_norm(1.0), optim::adam(0.1));
  const auto [updates, state] = opt.update(none, opt.init(none), none);
  EXPECT_TRUE(updates.empty());
  EXPECT_EQ(state.at("adam/count").item<int>(), 1);
  EXPECT_EQ(optim::global_norm(none).item<float>(), 0);
}

}  // namespace
}  // namespace stow
