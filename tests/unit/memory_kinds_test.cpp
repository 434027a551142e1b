// Arrays in other memories than the device: moves, offloaded residuals, plans by kind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/stowage.h"

namespace stow {
namespace {

using ::testing::HasSubstr;

const SingleDeviceSharding kHost("pinned_host"), kDevice("device");

struct Weights {
  Array w1, w2;
};
STOW_TREE(Weights, w1, w2);

constexpr int64_t kMiB = 1 << 20;

class MemoryKinds : public ::testing::Test {
 protected:
  DevicePtr device_ = Device::virtual_device({256 * kMiB, 256 * kMiB, 0}, 1);
  DefaultDevice guard_{device_};

  int64_t used(MemoryKind kind) const { return device_->in_use_bytes(kind); }
};

template <typename F>
std::string message_of(F f) {
  try {
    f();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST_F(MemoryKinds, NamesAndDefaults) {
  EXPECT_EQ(SingleDeviceSharding(), SingleDeviceSharding(""));
  EXPECT_EQ(kDevice.with_memory_kind("pinned_host"), kHost);
  EXPECT_THAT(message_of([] { SingleDeviceSharding("hbm"); }),
              HasSubstr("[sharding] there is no memory kind 'hbm'; the kinds are device, "
                        "pinned_host and disk"));
}

TEST_F(MemoryKinds, ValuesSurviveMovesInsideAndOutsideOfJit) {
  const Array x = random::normal(random::key(1), {3, 5});
  const int64_t before = used(MemoryKind::kPinnedHost);
  const Array h = device_put(x, kHost);
  EXPECT_EQ(sharding_of(h), kHost);
  EXPECT_EQ(used(MemoryKind::kPinnedHost) - before, 60);
  EXPECT_EQ(h.to_vector<float>(), x.to_vector<float>());
  EXPECT_EQ(device_put(h, kDevice).to_vector<float>(), x.to_vector<float>());
  EXPECT_EQ(device_put(h, kHost).impl(), h.impl());  // no copy
  const auto there_and_back = jit([](const Array& a) {
    return std::pair(device_put(device_put(a, kHost), kDevice) + 1.0, device_put(a, kHost));
  });
  const auto [device, host] = there_and_back(x);
  EXPECT_EQ(device.to_vector<float>(), (x + 1.0).to_vector<float>());
  EXPECT_EQ(sharding_of(host), kHost);
  EXPECT_EQ(host.to_vector<float>(), x.to_vector<float>());
  const Array empty = device_put(zeros({0, 4}), kHost);
  EXPECT_EQ(empty.shape(), (Shape{0, 4}));
  EXPECT_EQ(device_put(2.5, kHost).item<float>(), 2.5f);
}

TEST_F(MemoryKinds, ArithmeticElsewhereIsAnErrorThatNamesTheKind) {
  const Array h = device_put(ones({4}), kHost);
  EXPECT_THAT(message_of([&] { h + 1.0; }),
              HasSubstr("is on pinned_host and operand 1 on device: f32<pinned_host>[4] and f32[4]; "
                        "move them to one memory with device_put first"));
  EXPECT_THAT(message_of([&] { exp(h); }),
              HasSubstr("[exp] operand 0 is on pinned_host: f32<pinned_host>[4]; move it with "
                        "device_put first\n  operand 0 is made at memory_kinds_test.cpp:"));
}

TEST_F(MemoryKinds, CompiledProgramsKnowKinds) {
  const auto f = jit([](const Array& a) { return device_put(a, kDevice) * 2.0; });
  const Array x = ones({8});
  f(x);
  f(device_put(x, kHost));
  f(device_put(x + 1.0, kHost));
  EXPECT_EQ(f.n_traces(), 2);
}

TEST_F(MemoryKinds, DonationWorksWithinAKind) {
  const auto f = [](const Array& a) { return device_put(device_put(a, kDevice) + 1.0, kHost); };
  const auto compiled = jit(f, {.donate_argnums = {0}})
                            .lower(device_put(ones({1 << 16}), kHost))
                            .compile();
  EXPECT_EQ(compiled.memory_analysis().host().alias_bytes, 4 << 16);
  EXPECT_EQ(compiled.memory_analysis().host().total_bytes, 4 << 16);
  const auto crossing = jit([](const Array& a) { return device_put(a, kDevice); },
                            {.donate_argnums = {0}})
                            .lower(device_put(ones({1 << 16}), kHost))
                            .compile();
  EXPECT_EQ(crossing.memory_analysis().host().alias_bytes, 0);
}

// The first of the seed's programs: ten layers y = x w1, x = y w2, scanned.
class Offloading : public MemoryKinds {
 protected:
  static constexpr int64_t kLayers = 10, kRows = 64, kWidth = 64, kHidden = 256;
  Array x_ = random::normal(random::key(1), {kRows, kWidth});
  Weights w_{random::normal(random::key(2), {kLayers, kWidth, kHidden}) * 0.1,
             random::normal(random::key(3), {kLayers, kHidden, kWidth}) * 0.1};

  template <typename Body>
  std::pair<Weights, MemoryAnalysis> gradient(Body body, const Weights& w) {
    const auto f = jit(grad([&](const Weights& p, const Array& x) { return sum(scan(body, x, p)); }));
    const auto compiled = f.lower(w, x_).compile();
    const MemoryAnalysis analysis = compiled.memory_analysis();
    std::array<int64_t, 2> before{};
    device_->drop_arenas();
    device_->reset_high_water();
    for (size_t k = 0; k < 2; ++k) before[k] = used(static_cast<MemoryKind>(k));
    const Weights g = compiled(w, x_);
    for (size_t k = 0; k < 2; ++k)
      EXPECT_EQ(device_->high_water_bytes(static_cast<MemoryKind>(k)) - before[k],
                analysis.kinds[k].total_bytes - analysis.kinds[k].argument_bytes);
    return {{device_put(g.w1, kDevice), device_put(g.w2, kDevice)}, analysis};
  }
};

TEST_F(Offloading, SavesMemoryAndChangesNoBit) {
  const auto plain = [](const Array& x, const Weights& w) {
    return matmul(matmul(checkpoint_name(x, "x"), w.w1), w.w2);
  };
  const auto offloaded = checkpoint(plain, save_and_offload_only_these_names({}, {"x"}));
  const auto streamed = checkpoint(
      [&](const Array& x, const Weights& w) { return plain(x, device_put(w, kDevice)); },
      save_and_offload_only_these_names({}, {"x"}));
  const auto [g, on_device] = gradient(plain, w_);
  const auto [g_x, x_on_host] = gradient(offloaded, w_);
  const Weights host = device_put(w_, kHost);
  const auto [g_w, all_on_host] = gradient(streamed, host);
  EXPECT_EQ(g.w1.to_vector<float>(), g_x.w1.to_vector<float>());
  EXPECT_EQ(g.w2.to_vector<float>(), g_x.w2.to_vector<float>());
  EXPECT_EQ(g.w1.to_vector<float>(), g_w.w1.to_vector<float>());
  EXPECT_EQ(g.w2.to_vector<float>(), g_w.w2.to_vector<float>());
  // The stack of x is on the host, and one layer's worth of everything is on the device.
  const int64_t x_bytes = kRows * kWidth * 4, w_bytes = kWidth * kHidden * 4;
  EXPECT_EQ(x_on_host.host().total_bytes, kLayers * x_bytes);
  EXPECT_LT(x_on_host.device().total_bytes, on_device.device().total_bytes);
  // Gradients follow where slots of x were.
  EXPECT_LE(all_on_host.host().total_bytes, kLayers * (4 * w_bytes + x_bytes));
  EXPECT_LT(all_on_host.device().total_bytes, 8 * w_bytes);
}

TEST_F(Offloading, WithoutEffectIsAnError) {
  const auto linear = checkpoint(
      [](const Array& x, const Weights& w) {
        return sum(tanh(matmul(x, slice(w.w1, 0, 0, 1).reshape({kWidth, kHidden})))) +
               sum(checkpoint_name(w.w2, "x"));
      },
      save_and_offload_only_these_names({}, {"x"}));
  const auto f = [&](const Array& x, const Weights& w) {
    auto body = linear;
    return sum(body(x, w));
  };
  EXPECT_THAT(message_of([&] { jit(grad<0, 1>(f)).lower(x_, w_).compile(); }),
              HasSubstr("asks for the name 'x', which no value that is used in its region has"));
}

TEST_F(Offloading, UnrolledLayersOffloadToo) {
  const auto body = checkpoint(
      [](const Array& x, const Weights& w) {
        return matmul(tanh(matmul(checkpoint_name(x, "x"), device_put(w.w1, kDevice))),
                      device_put(w.w2, kDevice));
      },
      save_and_offload_only_these_names({}, {"x"}));
  const auto unrolled = [&](const Weights& w, const Array& x) {
    auto f = body;
    Array h = x;
    for (int64_t i = 0; i < kLayers; ++i)
      h = f(h, Weights{w.w1.slice(0, i, i + 1).reshape({kWidth, kHidden}),
                       w.w2.slice(0, i, i + 1).reshape({kHidden, kWidth})});
    return sum(h);
  };
  const auto scanned = [&](const Weights& w, const Array& x) { return sum(scan(body, x, w)); };
  const Weights host = device_put(w_, kHost);
  const auto a = jit(grad(unrolled)).lower(host, x_).compile();
  const auto b = jit(grad(scanned)).lower(host, x_).compile();
  EXPECT_EQ(a(host, x_).w1.to_vector<float>(), b(host, x_).w1.to_vector<float>());
  const auto total = [](const auto& c) {
    return static_cast<double>(c.memory_analysis().device().total_bytes);
  };
  EXPECT_LE(total(a), 1.02 * total(b));
  EXPECT_LE(total(b), 1.05 * total(a));  // the scan's carry begins as a copy of the argument
}

}  // namespace
}  // namespace stow
