// Stacks that become part of what is moved away leave slice by slice: same bits, nothing whole on
// the device.
#include "stowage/passes/spill_stacks.h"

#include <gtest/gtest.h>

#include "stowage/ir/utilities.h"
#include "stowage/ops/verify.h"
#include "stowage/stowage.h"

namespace stow {
namespace {

constexpr MemoryKind kHost = MemoryKind::kPinnedHost;

// Rows 2 i and 2 i + 1 of a table, made by a scan; the last one behind it; and a gather's gradient.
Array gradient(const Array& x, const Array& places) {
  const auto step = [&](const None&, const Array& i) {
    return std::pair(None{}, sin(x * i.astype(DType::kF32)));
  };
  const Array stack = scan(step, None{}, arange(0, 8191)).second;  // [8191, 2, 64]
  const Array table = concatenate({stack.reshape({16382, 64}), cos(x)});
  return table + zeros({16384, 64}).at({places}).add(x.slice(0, 0, 1));
}

TEST(SpillStacks, ASumOnItsWayToTheHostIsNeverWhole) {
  const DevicePtr device = Device::virtual_device({1 << 26, 1 << 26, 0}, 1);
  const DefaultDevice guard(device);
  const auto f = [](const Array& x, const Array& places) {
    return device_put(gradient(x, places) * 0.5f, kHost);
  };
  const Array x = random::normal(random::key(1), {2, 64});
  const Array places = Array::from<int32_t>({3, 16383, 3}, {3});
  const auto with = [&](int64_t capacity) {
    JitOptions options;
    options.compile.capacities[0] = capacity;
    return jit(f, options);
  };
  const int64_t whole = 16384 * 64 * 4;
  const auto peak = [&](int64_t capacity) {
    return with(capacity).lower(x, places).compile().memory_analysis().device().total_bytes;
  };
  EXPECT_GT(peak(8 * whole), whole);
  EXPECT_LE(peak(whole / 2), whole / 2);
  EXPECT_EQ(with(whole / 2)(x, places).to_vector<float>(),
            with(8 * whole)(x, places).to_vector<float>());
}

TEST(SpillStacks, WhatElseIsReadOrStaysIsLeftAlone) {
  const Array x = Array::abstract(Shape{2, 64}), places = Array::abstract(Shape{3}, DType::kI32);
  const auto stays = [&](auto f) {
    const Graph graph = jit(f).lower(x, places).graph();
    return equal(spill_stacks(graph), graph);
  };
  const auto stack_of = [](const Array& a) {
    const auto step = [&](const None&, const Array& i) {
      return std::pair(None{}, a * i.astype(DType::kF32));
    };
    return scan(step, None{}, arange(0, 8)).second;
  };
  EXPECT_FALSE(
      stays([=](const Array& a, const Array&) { return device_put(stack_of(a) * 2.0f, kHost); }));
  EXPECT_TRUE(stays([=](const Array& a, const Array&) { return stack_of(a) * 2.0f; }));
  EXPECT_TRUE(stays([=](const Array& a, const Array&) {
    const Array s = stack_of(a);
    return std::pair(device_put(s * 2.0f, kHost), sum(s));
  }));
  EXPECT_TRUE(stays([=](const Array& a, const Array&) {
    const Array twice = stack_of(a) * 2.0f;
    return std::pair(device_put(twice, kHost), sum(twice));
  }));
}

}  // namespace
}  // namespace stow
