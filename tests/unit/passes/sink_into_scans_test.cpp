// What a scan alone reads comes, and is worked on, slice by slice: same bits, no whole array on the
// device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/ir/utilities.h"
#include "stowage/ops/verify.h"
#include "stowage/passes/move_parts.h"
#include "stowage/passes/sink_into_scans.h"
#include "stowage/stowage.h"
#include "tests/support/evaluate.h"

namespace stow {
namespace {

constexpr MemoryKind kHost = MemoryKind::kPinnedHost, kDevice = MemoryKind::kDevice;
constexpr int64_t kMiB = 1 << 20;

class SinkWork : public ::testing::Test {
 protected:
  DevicePtr device_ = Device::virtual_device({64 * kMiB, 64 * kMiB, 0}, 1);
  DefaultDevice guard_{device_};

  static Array noise(uint64_t seed, const Shape& shape, MemoryKind kind = kHost) {
    return device_put(random::normal(random::key(seed), shape), kind);
  }
  static Array sums_of(const Array& xs, ScanOptions options = {}) {
    const auto add = [](const Array& total, const Array& x) { return total + sum(sin(x)); };
    return scan(add, Array(0.0f), xs, std::move(options));
  }
  // The peak on the device beside arguments there; checks the bits against the graph as written.
  template <typename F, typename... Args>
  static int64_t peak(const F& f, const Args&... args) {
    const auto lowered = jit(f).lower(args...);
    const Graph graph = sink_into_scans(lowered.graph());
    verify(graph);
    std::vector<testing::Bytes> inputs;
    for (const Array& a : {args...}) {
      const std::vector<float> values = device_put(a, kDevice).template to_vector<float>();
      const auto bytes = std::as_bytes(std::span(values));
      inputs.emplace_back(bytes.begin(), bytes.end());
    }
    EXPECT_EQ(testing::evaluate(graph, inputs), testing::evaluate(lowered.graph(), inputs));
    return lowered.compile().memory_analysis().device().total_bytes;
  }
};

TEST_F(SinkWork, AStackMovedForAScanComesSliceBySlice) {
  const auto f = [](const Array& xs) { return sums_of(device_put(xs, kDevice)); };
  const Array xs = noise(1, {32, 64, 64});
  EXPECT_LT(peak(f, xs), 4 * xs.type().bytes() / 32);
  const auto across = [](const Array& xs) {
    return sums_of(device_put(xs, kDevice), {.axes = {1}});
  };
  EXPECT_LT(peak(across, noise(1, {64, 32, 64})), 4 * xs.type().bytes() / 32);
}

TEST_F(SinkWork, ElementwiseWorkIsDoneOnSlices) {
  const auto f = [](const Array& xs, const Array& ys, const Array& factor) {
    const Array scale = exp(device_put(factor, kDevice));
    const Array x = device_put(xs, kDevice), y = device_put(ys, kDevice);
    return sums_of(where(x < 0, 0.1f, x) * scale + 2.0f * y.astype(DType::kF32));
  };
  const Array xs = noise(1, {32, 64, 64}), ys = noise(2, {32, 64, 64}), factor = noise(3, {});
  EXPECT_LT(peak(f, xs, ys, factor), 6 * xs.type().bytes() / 32);
}

TEST_F(SinkWork, WhatIsNeededWholeStaysWhole) {
  const auto unchanged = [](const auto& f, const auto&... args) {
    const Graph graph = jit(f).lower(args...).graph();
    return equal(sink_into_scans(graph), graph);
  };
  const Array xs = noise(1, {8, 6}), on_device = noise(2, {8, 6}, kDevice);
  EXPECT_TRUE(unchanged(
      [](const Array& x) {
        const Array here = device_put(x, kDevice);
        return sums_of(here) + sum(matmul(transpose(here), here));
      },
      xs));
  EXPECT_TRUE(unchanged(
      [](const Array& x) {
        const Array here = device_put(x, kDevice);
        return std::pair(sums_of(here), here);
      },
      xs));
  EXPECT_TRUE(unchanged(
      [](const Array& x) {  // by two scans
        const Array here = device_put(x, kDevice);
        return sums_of(here) * sums_of(here, {.reverse = true});
      },
      xs));
  EXPECT_TRUE(unchanged(
      [](const Array& x) {
        const Array twice = device_put(x, kDevice) * 2;
        return sums_of(twice) + sum(twice);
      },
      xs));
  EXPECT_TRUE(unchanged([](const Array& x) { return sums_of(x * 2); }, on_device));
  EXPECT_TRUE(unchanged(
      [](const Array& x, const Array& y) { return sums_of(device_put(x, kDevice) + y); }, xs,
      on_device));
  EXPECT_TRUE(unchanged(
      [](const Array& x) {  // as a constant of the loop
        const Array here = device_put(x, kDevice);
        const auto add = [&](const Array& total, const Array& i) { return total + sum(here * i); };
        return scan(add, Array(0.0f), arange(3).astype(DType::kF32));
      },
      xs));
}

// Weights that a person brings to the device once for all: layer by layer for the forward and the
// backward pass, and whole for two passes where there is room.
TEST_F(SinkWork, WeightsMovedForAGradientComeSliceBySlice) {
  const auto run = [](const Array& ws, const Array& x, bool reverse) {
    const auto layer = [](const Array& h, const Array& w) { return tanh(matmul(h, w)); };
    return sum(scan(layer, x, ws, {.reverse = reverse}));
  };
  const auto gradient = [&](const Array& there, const Array& x) {
    const auto loss = [&](const Array& ws) { return run(ws, x, false); };
    return device_put(grad(loss)(device_put(there, kDevice)), kHost);
  };
  const auto both_ways = [&](const Array& there, const Array& x) {
    const Array ws = device_put(there, kDevice);
    return run(ws, x, false) * run(ws, x, true);
  };
  const Array ws = noise(1, {24, 64, 64}), x = noise(2, {4, 64}, kDevice);
  const int64_t whole = ws.type().bytes();
  const auto with = [&](const auto& f, int64_t capacity) {
    JitOptions options;
    options.compile.capacities[0] = capacity;
    return jit(f, options);
  };
  const auto peak = [&](const auto& f, int64_t capacity) {
    return with(f, capacity).lower(ws, x).compile().memory_analysis().device().total_bytes;
  };
  JitOptions one_by_one;  // no slice comes ahead, and none stays
  one_by_one.compile.capacities[0] = whole;
  one_by_one.compile.transfers_ahead = 0;
  EXPECT_LT(jit(gradient, one_by_one)
                .lower(ws, x)
                .compile()
                .memory_analysis()
                .device()
                .total_bytes,
            whole / 2);
  EXPECT_GT(peak(both_ways, 2 * whole), whole);
  EXPECT_LE(peak(both_ways, whole / 3), whole / 3);
  EXPECT_EQ(with(both_ways, whole / 3)(ws, x).to_vector<float>(),
            with(both_ways, 2 * whole)(ws, x).to_vector<float>());
}

// Layers in a C++ loop, their weights moved before it.
TEST_F(SinkWork, SlicesOfWhatIsMovedAreMovedOneByOne) {
  const int64_t n = 16;
  const auto layers = [&](const Array& x, const auto& weights_of) {
    Array h = x;
    for (int64_t i = 0; i < n; ++i) h = tanh(matmul(h, weights_of(i)));
    return sum(h);
  };
  const auto before = [&](const Array& there, const Array& x) {
    const Array ws = device_put(there, kDevice);
    return layers(x, [&](int64_t i) { return ws.index({i}); });
  };
  const auto inside = [&](const Array& there, const Array& x) {
    return layers(x, [&](int64_t i) { return device_put(there.index({i}), kDevice); });
  };
  const Array ws = noise(1, {n, 64, 64}), x = noise(2, {4, 64}, kDevice);
  const auto gradient = [&](const auto& f) {
    JitOptions options;
    options.compile.transfers_ahead = 0;
    return jit([=](const Array& a, const Array& b) { return device_put(grad(f)(a, b), kHost); },
               options);
  };
  const auto peak = [&](const auto& f) {
    return gradient(f).lower(ws, x).compile().memory_analysis().device().total_bytes;
  };
  EXPECT_EQ(peak(before), peak(inside));
  EXPECT_LT(peak(before), 4 * 64 * 64 * 4);
  EXPECT_EQ(gradient(before)(ws, x).to_vector<float>(), gradient(inside)(ws, x).to_vector<float>());
  // What is needed whole as well, or read twice over, is moved once.
  const auto whole = [&](const Array& there, const Array& x) {
    const Array w = device_put(there, kDevice);
    return sum(w) + layers(x, [&](int64_t i) { return w.index({i}); });
  };
  const auto twice = [&](const Array& there) {
    const Array w = device_put(there, kDevice);
    return sum(w.slice(0, 0, n - 1) * w.slice(0, 1, n));
  };
  for (const Graph& graph : {jit(whole).lower(ws, x).graph(), jit(twice).lower(ws).graph()})
    EXPECT_TRUE(equal(move_parts(graph), graph));
}

// Muon goes matrix by matrix: what it takes is that of one matrix, wherever the stacks are.
TEST_F(SinkWork, MuonOverLayersOnTheHostTakesOneMatrix) {
  const optim::GradientTransformation muon = optim::muon(0.02, {.matrices = {"w"}});
  const auto at = [](const auto& tree, MemoryKind kind) {
    return tree_map([&](const Array& a) { return a.rank() == 0 ? a : device_put(a, kind); }, tree);
  };
  using Tree = std::map<std::string, Array>;
  const auto peak_of = [&](int64_t layers) {
    const Tree params = {{"w", noise(1, {layers, 96, 64})}},
               grads = {{"w", noise(2, {layers, 96, 64})}};
    const auto state = at(muon.init(params), kHost);
    const auto step = [&](const Tree& p, const Tree& g, const decltype(muon.init(params))& s) {
      const Tree here = at(p, kDevice);
      const auto [updates, next] = muon.update(at(g, kDevice), at(s, kDevice), here);
      return std::pair(at(optim::apply_updates(here, updates), kHost), at(next, kHost));
    };
    JitOptions options;
    options.donate_argnums = {0, 2};
    options.compile.transfers_ahead = 0;
    const auto lowered = jit(step, options).lower(params, grads, state);
    return lowered.compile().memory_analysis().device().total_bytes;
  };
  const int64_t matrix = 96 * 64 * 4;
  EXPECT_LT(peak_of(8), 7 * matrix);
  EXPECT_LT(peak_of(64), 7 * matrix);
}

}  // namespace
}  // namespace stow
