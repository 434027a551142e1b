// The default job on its own text, beside the same step run node by node with the naive kernels;
// and under several plans, with one thread and with two: the same bits. STOW_NAIVE_TOKENS tokens
// (256). Ten thousand, the default job's own batches, take the naive kernels half an hour.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "stowage/io/json.h"
#include "stowage/nn/decoder.h"
#include "stowage/train/data.h"
#include "stowage/train/decoder_model.h"
#include "stowage/train/job.h"
#include "stowage/train/optimizer.h"
#include "stowage/train/step.h"
#include "tests/support/evaluate.h"

namespace stow {
namespace {

using testing::Bytes;

Bytes bytes_of(const DeviceBufferPtr& buffer) {
  Bytes bytes(static_cast<size_t>(buffer->bytes()));
  buffer->read(0, bytes);
  return bytes;
}

float float_in(const Bytes& bytes) {
  float value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

class NaiveTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* text = std::getenv("STOW_NAIVE_TOKENS");
    const int64_t tokens = text ? std::strtoll(text, nullptr, 10) : 256;
    config_ = load_train_config({}).value();
    if (tokens < 10000) config_.data.batch = 1;
    const int64_t a_step = config_.data.batch * config_.data.seq;
    steps_ = (tokens + a_step - 1) / a_step;
    Result<ByteData> data =
        ByteData::open(config_.data.path, config_.model.vocab, config_.data.seq);
    ASSERT_TRUE(data.ok()) << data.error();
    for (int64_t step = 0; step < steps_; ++step)
      tokens_.push_back(data->train_batch(0, step, config_.data.batch));
  }

  static std::vector<DeviceBufferPtr> first_state(const JobPlan& plan, Device& device) {
    DeviceBufferPtr key = device.allocate(8);  // zeros: seed 0
    return plan.programs.init->run(device, std::array{key});
  }

  std::vector<float> train(const Placement& placement, int threads) const {
    const JobPlan plan = Job(config_, threads, decoder_model).plan(placement);
    const DevicePtr device = Device::cpu_with_capacity(Device::unlimited_bytes(), threads);
    std::vector<DeviceBufferPtr> state = first_state(plan, *device);
    const size_t n = state.size();
    std::vector<float> losses;
    for (const std::vector<int32_t>& tokens : tokens_) {
      std::vector<DeviceBufferPtr> arguments = std::move(state);
      arguments.push_back(device->allocate(static_cast<int64_t>(tokens.size() * 4)));
      arguments.back()->write(0, std::as_bytes(std::span(tokens)));
      state = plan.programs.step->run(*device, arguments);
      losses.push_back(float_in(bytes_of(state[n])));
      state.resize(n);
    }
    return losses;
  }

  std::vector<float> train_naively() const {
    const TrainModelPtr model = decoder_model(config_);
    const TrainState types = abstract_state(config_, *model);
    const Graph graph = trace_step(config_, *model, types, {}, {});
    const DevicePtr device = Device::cpu_with_capacity(Device::unlimited_bytes(), 1);
    std::vector<Bytes> state;
    const JobPlan plan = Job(config_, 1, decoder_model).plan({});
    for (const DeviceBufferPtr& leaf : first_state(plan, *device))
      state.push_back(bytes_of(leaf));
    const size_t n = state.size();
    std::vector<float> losses;
    for (const std::vector<int32_t>& tokens : tokens_) {
      const auto bytes = std::as_bytes(std::span(tokens));
      state.emplace_back(bytes.begin(), bytes.end());
      state = testing::evaluate(graph, state);
      losses.push_back(float_in(state[n]));
      state.resize(n);
    }
    return losses;
  }

  TrainConfig config_;
  int64_t steps_ = 0;
  std::vector<std::vector<int32_t>> tokens_;
};

TEST_F(NaiveTest, LossesAreThoseOfTheNaiveKernelsUnderEveryPlan) {
  const std::vector<float> naive = train_naively();
  const std::vector<float> ours = train({}, 1);
  double apart = 0;
  for (size_t i = 0; i < naive.size(); ++i) {
    ASSERT_TRUE(std::isfinite(naive[i]) && std::isfinite(ours[i])) << i;
    apart = std::max(apart, std::abs(double{ours[i]} - naive[i]) / naive[i]);
  }
  fmt::print("{} tokens in {} steps: losses {} to {}, {:.1e} relative apart\n",
             steps_ * config_.data.batch * config_.data.seq, steps_, naive.front(), naive.back(),
             apart);
  EXPECT_LT(apart, 1e-4);
  EXPECT_NE(naive.front(), naive.back());
  for (const StepPolicy policy : policies_on_device())
    for (const int threads : {1, 2}) {
      const std::vector<float> losses = train({.policy = policy}, threads);
      for (size_t i = 0; i < ours.size(); ++i)
        EXPECT_EQ(hex_float(losses[i]), hex_float(ours[i]))
            << policy_name(policy) << ", " << threads << " threads";
    }
}

}  // namespace
}  // namespace stow
