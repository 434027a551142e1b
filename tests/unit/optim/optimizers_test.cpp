// Ten steps of every optimizer, and schedules, against optax's, from tests/data/optax_values.json.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "stowage/base/inside.h"
#include "stowage/stowage.h"
#include "tests/support/source_path.h"

namespace stow {
namespace {

using nlohmann::json;
using optim::GradientTransformation;
using optim::Mask;
using Rows = std::vector<std::vector<float>>;

struct Dense {
  Array b, w;
};
STOW_TREE(Dense, b, w);
struct Params {
  Dense a;
  Array s;
};
STOW_TREE(Params, a, s);

const json& golden() {
  static const json data = json::parse(std::ifstream(source_path("tests/data/optax_values.json")));
  return data;
}

Params load(const Rows& rows) {
  const auto array = [&](size_t i) {
    return Array::from(rows[i], Shape(golden()["shapes"][i].get<Dims>()));
  };
  return {{array(0), array(1)}, array(2)};
}

void expect_near(const Params& got, const Rows& want, double tolerance, const std::string& what) {
  const std::vector<Array> leaves = tree_leaves(got);
  const std::vector<std::string> paths = tree_paths(got);
  for (size_t i = 0; i < leaves.size(); ++i) {
    const std::vector<float> values = leaves[i].to_vector<float>();
    ASSERT_EQ(values.size(), want[i].size());
    for (size_t j = 0; j < values.size(); ++j)
      EXPECT_NEAR(values[j], want[i][j], tolerance * std::max(1.0f, std::fabs(want[i][j])))
          << what << " " << paths[i] << "[" << j << "]";
  }
}

const Mask kWOnly = {"a/w"};

const std::map<std::string, GradientTransformation>& optimizers() {
  const optim::Schedule ramp = optim::linear_schedule(0.1, 0.01, 6);
  const std::vector<optim::NsCoeffs> three = {
      {4.0848, -6.8946, 2.9270}, {3.9505, -6.3029, 2.6377}, {3.7418, -5.5913, 2.3037}};
  static const std::map<std::string, GradientTransformation> table = {
      {"sgd", optim::sgd(0.1)},
      {"sgd_momentum", optim::sgd(0.1, {.momentum = 0.9})},
      {"sgd_nesterov", optim::sgd(ramp, {.momentum = 0.9, .nesterov = true})},
      {"adam", optim::adam(0.05)},
      {"adam_options", optim::adam(0.05, {.b1 = 0.8, .b2 = 0.99, .eps = 1e-5, .eps_root = 1e-4})},
      {"adam_nesterov", optim::adam(0.05, {.nesterov = true})},
      {"adam_mu_bf16", optim::adam(0.05, {.mu_dtype = DType::kBF16})},
      {"adamw", optim::adamw(0.05, {.weight_decay = 0.1})},
      {"adamw_mask", optim::adamw(ramp, {.weight_decay = 0.1, .mask = kWOnly})},
      {"adamw_decay_schedule", optim::adamw(0.05, {.weight_decay = ramp})},
      {"lion", optim::lion(0.01)},
      {"lion_options",
       optim::lion(ramp, {.b1 = 0.8, .b2 = 0.95, .weight_decay = 0.2, .mask = kWOnly})},
      {"rmsprop", optim::rmsprop(0.02)},
      {"rmsprop_centered", optim::rmsprop(0.02, {.decay = 0.8, .eps = 1e-4, .centered = true})},
      {"rmsprop_momentum", optim::rmsprop(0.02, {.initial_scale = 0.5,
                                                 .eps_in_sqrt = false,
                                                 .momentum = 0.9,
                                                 .nesterov = true,
                                                 .bias_correction = true})},
      {"adafactor", optim::adafactor(0.1)},
      {"adafactor_factored", optim::adafactor(ramp, {.min_dim_size_to_factor = 3})},
      {"adafactor_options", optim::adafactor(0.1, {.min_dim_size_to_factor = 3,
                                                   .decay_rate = 0.7,
                                                   .multiply_by_parameter_scale = false,
                                                   .clipping_threshold = 0.5,
                                                   .momentum = 0.9,
                                                   .weight_decay_rate = 0.01,
                                                   .weight_decay_mask = kWOnly})},
      {"adafactor_bare",
       optim::adafactor({}, {.clipping_threshold = std::nullopt, .factored = false})},
      {"muon", optim::muon(0.05)},
      {"muon_options", optim::muon(0.05, {.ns_coeffs = three,
                                          .ns_steps = 3,
                                          .beta = 0.9,
                                          .weight_decay = 0.1,
                                          .nesterov = false,
                                          .adam_b1 = 0.8,
                                          .adam_b2 = 0.99,
                                          .adam_weight_decay = 0.2,
                                          .adam_learning_rate = 0.01,
                                          .consistent_rms = 0.2})},
      {"muon_mask",
       optim::muon(0.05, {.weight_decay = 0.1, .weight_decay_mask = {"a/b", "a/w"}})},
      {"muon_stacked", optim::muon(0.05, {.adaptive = true, .matrices = {"a/w", "s"}})},
      {"clip", optim::chain(optim::clip(0.5), optim::sgd(0.1))},
      {"clip_by_global_norm", optim::chain(optim::clip_by_global_norm(1.0), optim::sgd(0.1))},
      {"clip_by_global_norm_wide", optim::chain(optim::clip_by_global_norm(1e3), optim::sgd(0.1))},
      {"ema", optim::chain(optim::ema(0.9), optim::scale(-0.1))},
      {"masked", optim::chain(optim::masked(optim::trace(0.9), kWOnly), optim::scale(-0.1))},
      {"selective", optim::selective_transform(optim::adamw(0.05), kWOnly)},
      {"partition",
       optim::partition({{"x", optim::sgd(0.1, {.momentum = 0.9})}, {"y", optim::adam(0.05)}},
                        [](const std::string& path, const Array&) {
                          return path == "a/w" ? "y" : "x";
                        })},
      {"multi_steps", optim::multi_steps(optim::adam(0.05), 3)},
      {"multi_steps_sum", optim::multi_steps(optim::sgd(ramp, {.momentum = 0.9}), 4, false)},
      {"apply_if_finite", optim::apply_if_finite(optim::adam(0.05), 5)},
  };
  return table;
}

class OptaxOptimizers : public testing::TestWithParam<std::string> {};

TEST_P(OptaxOptimizers, AgreeOverTenSteps) {
  const std::string name = GetParam();
  const json& want = golden()["cases"][name];
  const auto found = optimizers().find(name);
  ASSERT_NE(found, optimizers().end()) << name << " is not in the table";
  const GradientTransformation& opt = found->second;
  const double tolerance = name.starts_with("muon") ? 1e-4 : 1e-5;
  auto step = jit(
      [&](const Params& params, const optim::OptState& state, const Params& grads) {
        auto [updates, next] = opt.update(grads, state, params);
        return std::pair(optim::apply_updates(params, updates), next);
      },
      {.donate_argnums = {0, 1}});
  Params params = load(golden()["params"].get<Rows>());
  optim::OptState state = opt.init(params);
  for (int i = 0; i < 10; ++i) {
    Rows rows = golden()["grads"][static_cast<size_t>(i)].get<Rows>();
    if (name == "apply_if_finite")
      for (const json& hurt : golden()["hurt"])
        if (hurt[0] == i) rows[1][1 * 4 + 2] = std::stof(hurt[1].get<std::string>());
    std::tie(params, state) = step(params, state, load(rows));
    const std::string seen = std::to_string(i + 1);
    if (want.contains(seen))
      expect_near(params, want[seen].get<Rows>(), tolerance, name + " after " + seen);
  }
  EXPECT_EQ(step.n_traces(), 1);
}

std::vector<std::string> names(const json& object) {
  std::vector<std::string> result;
  for (const auto& [name, value] : object.items()) result.push_back(name);
  return result;
}
INSTANTIATE_TEST_SUITE_P(Table, OptaxOptimizers, testing::ValuesIn(names(golden()["cases"])),
                         [](const auto& info) { return info.param; });

TEST(OptaxSchedules, AgreeAtManyCounts) {
  const std::map<std::string, optim::Schedule> schedules = {
      {"constant", optim::constant_schedule(0.3)},
      {"linear", optim::linear_schedule(0.1, 1.0, 10, 5)},
      {"linear_down", optim::linear_schedule(1.0, 0.1, 7)},
      {"polynomial", optim::polynomial_schedule(1.0, 0.1, 2.5, 20, 3)},
      {"piecewise_constant", optim::piecewise_constant_schedule(1.0, {{5, 0.5}, {20, 0.1}})},
      {"exponential", optim::exponential_decay(1.0, 10, 0.5, {.transition_begin = 4})},
      {"exponential_stairs",
       optim::exponential_decay(1.0, 10, 0.5, {.staircase = true, .end_value = 0.2})},
      {"exponential_growth", optim::exponential_decay(0.1, 10, 2.0, {.end_value = 0.5})},
      {"cosine", optim::cosine_decay_schedule(1.0, 30)},
      {"cosine_options", optim::cosine_decay_schedule(2.0, 30, 0.1, 1.5)},
      {"warmup_cosine", optim::warmup_cosine_decay_schedule(0.0, 1.0, 10, 40, 0.1)},
      {"warmup_cosine_options", optim::warmup_cosine_decay_schedule(0.2, 1.0, 5, 30, 0.05, 2.0)},
      {"linear_onecycle", optim::linear_onecycle_schedule(40, 1.0)},
      {"linear_onecycle_options", optim::linear_onecycle_schedule(33, 2.0, {0.2, 0.7, 10, 100})},
      {"cosine_onecycle", optim::cosine_onecycle_schedule(40, 1.0)},
      {"cosine_onecycle_options",
       optim::cosine_onecycle_schedule(
           37, 2.0, {.pct_start = 0.4, .div_factor = 10, .final_div_factor = 50})},
      {"join",
       optim::join_schedules({optim::constant_schedule(1.0), optim::linear_schedule(0.5, 0, 10),
                              optim::constant_schedule(0.25)},
                             {7, 25})},
  };
  const auto counts = golden()["counts"].get<std::vector<int>>();
  ASSERT_EQ(schedules.size(), golden()["schedules"].size());
  for (const auto& [name, values] : golden()["schedules"].items()) {
    const optim::Schedule& schedule = schedules.at(name);
    auto jitted = jit([&](const Array& count) { return schedule(count); });
    for (size_t i = 0; i < counts.size(); ++i) {
      const double want = values[i],
                   got = jitted(Array::scalar(counts[i], DType::kI32)).item<float>();
      EXPECT_NEAR(got, want, 1e-6 + 1e-5 * std::fabs(want)) << name << " at " << counts[i];
    }
  }
}

TEST(OptaxFunctions, Agree) {
  const Rows first = golden()["grads"][0].get<Rows>();
  EXPECT_NEAR(optim::global_norm(load(first)).item<float>(), golden()["global_norm"].get<double>(),
              1e-5);
  Params average = load(golden()["params"].get<Rows>());
  for (const json& grads : golden()["grads"])
    average = optim::incremental_update(load(grads.get<Rows>()), average, 0.1);
  expect_near(average, golden()["incremental_update"].get<Rows>(), 1e-5, "incremental_update");
}

}  // namespace
}  // namespace stow
