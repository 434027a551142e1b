// Rows of a table elsewhere are found block by block: same bits, no whole table on the device.
#include "stowage/passes/gather_blocks.h"

#include <gtest/gtest.h>

#include "stowage/ir/utilities.h"
#include "stowage/ops/verify.h"
#include "stowage/stowage.h"
#include "tests/support/evaluate.h"

namespace stow {
namespace {

constexpr MemoryKind kHost = MemoryKind::kPinnedHost, kDevice = MemoryKind::kDevice;

testing::Bytes bytes_of(const Array& a) {
  testing::Bytes bytes;
  const auto add = [&](const auto& values) {
    const auto raw = std::as_bytes(std::span(values));
    bytes.assign(raw.begin(), raw.end());
  };
  if (a.dtype() == DType::kF32)
    add(device_put(a, kDevice).to_vector<float>());
  else if (a.dtype() == DType::kI32)
    add(a.to_vector<int32_t>());
  else
    add(a.to_vector<uint8_t>());
  return bytes;
}

// The graph with blocks, which gives what the graph as written gives.
template <typename F>
Graph in_blocks(const F& f, const Array& table, const Array& indices, int64_t block_bytes) {
  const Graph graph = jit(f).lower(table, indices).graph();
  Graph changed = gather_by_blocks(graph, block_bytes);
  verify(changed);
  const std::vector<testing::Bytes> inputs = {bytes_of(table), bytes_of(indices)};
  EXPECT_EQ(testing::evaluate(changed, inputs), testing::evaluate(graph, inputs));
  return changed;
}

class GatherBlocks : public ::testing::Test {
 protected:
  static Array table(const Shape& shape) {
    return device_put(random::normal(random::key(1), shape), kHost);
  }
  DevicePtr device_ = Device::virtual_device({1 << 26, 1 << 26, 0}, 1);
  DefaultDevice guard_{device_};
};

TEST_F(GatherBlocks, RowsAreThoseOfTheWholeTable) {
  const Array rows = table({101, 3, 2});  // 24 bytes a row
  // Out of range, too: the first and the last row, as gather has it.
  const Array indices = Array::from<int32_t>({0, 100, 7, 7, -5, 300, 24, 25, 26, 99}, {2, 5});
  const auto f = [](const Array& t, const Array& i) {
    return take(device_put(t, kDevice), i, 0, IndexMode::kClip) * 2.0f;
  };
  for (const int64_t block_bytes : {1, 250, 500, 600})
    EXPECT_EQ(count_ops(in_blocks(f, rows, indices, block_bytes), OpKind::kScan, false), 1);
  const auto bytes = Array::from<uint8_t>({0, 100, 200, 255}, {4});
  EXPECT_EQ(count_ops(in_blocks(f, rows, bytes, 250), OpKind::kScan, false), 1);
  const auto other = [](const Array& t, const Array& i) {
    return take(device_put(t, kDevice), i, 0, IndexMode::kFill);
  };
  EXPECT_EQ(count_ops(in_blocks(other, rows, indices, 250), OpKind::kScan, false), 1);
}

TEST_F(GatherBlocks, WhatIsSmallOrNeededWholeStays) {
  const Array rows = table({101, 6}), indices = Array::from<int32_t>({3, 4}, {2});
  const auto stays = [&](auto f, int64_t block_bytes) {
    const Graph graph = jit(f).lower(rows, indices).graph();
    return equal(gather_by_blocks(graph, block_bytes), graph);
  };
  const auto rows_of = [](const Array& t, const Array& i) {
    return take(t, i, 0, IndexMode::kClip);
  };
  EXPECT_FALSE(stays(
      [=](const Array& t, const Array& i) { return rows_of(device_put(t, kDevice), i); }, 600));
  EXPECT_TRUE(stays(
      [=](const Array& t, const Array& i) { return rows_of(device_put(t, kDevice), i); }, 700));
  EXPECT_TRUE(stays(
      [=](const Array& t, const Array& i) {
        const Array here = device_put(t, kDevice);
        return std::pair(rows_of(here, i), matmul(transpose(here), here));
      },
      100));
  EXPECT_TRUE(
      stays([=](const Array& t,
                const Array& i) { return take(device_put(t, kDevice), i, 1, IndexMode::kClip); },
            100));
  EXPECT_TRUE(stays(
      [=](const Array& t, const Array& i) {
        const Array here = device_put(t, kDevice);
        return std::pair(rows_of(here, i), here);
      },
      100));
}

// Where the table does not fit, its blocks do; its gradient is made tile by tile anyway.
TEST_F(GatherBlocks, ATableLargerThanTheDeviceIsTrained) {
  const Array rows = table({32768, 64}), indices = random::randint(random::key(2), {50}, 0, 32768);
  const auto step = [](const Array& t, const Array& i) {
    const auto loss_of = [&](const Array& w) {
      return sum(square(take(device_put(w, kDevice), i, 0, IndexMode::kClip)));
    };
    const auto [loss, gradient] = value_and_grad(loss_of, {.on_device = true})(t);
    return std::pair(loss, device_put(device_put(t, kDevice) - 0.1f * gradient, kHost));
  };
  const auto with = [&](int64_t capacity) {
    JitOptions options;
    options.compile.capacities[0] = capacity;
    return jit(step, options);
  };
  const int64_t whole = rows.type().bytes();
  const auto peak = [&](int64_t capacity) {
    return with(capacity).lower(rows, indices).compile().memory_analysis().device().total_bytes;
  };
  EXPECT_GT(peak(Device::unlimited_bytes()), whole);
  EXPECT_LE(peak(whole / 4), whole / 4);
  const auto [loss, updated] = with(whole / 4)(rows, indices);
  const auto [expected, expected_updated] = with(Device::unlimited_bytes())(rows, indices);
  EXPECT_EQ(loss.item<float>(), expected.item<float>());
  EXPECT_EQ(updated.to_vector<float>(), expected_updated.to_vector<float>());
}

}  // namespace
}  // namespace stow
