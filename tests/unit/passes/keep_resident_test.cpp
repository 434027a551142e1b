// What would leave last and come back first stays on the device: same bits, fewer moves.
#include "stowage/passes/keep_resident.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "stowage/ir/utilities.h"
#include "stowage/ops/verify.h"
#include "stowage/passes/dead_code.h"
#include "stowage/passes/residuals.h"
#include "stowage/passes/simplify.h"
#include "stowage/passes/sink_moves.h"
#include "stowage/stowage.h"
#include "tests/support/evaluate.h"

namespace stow {
namespace {

constexpr int64_t kLayers = 7, kRows = 3, kWidth = 8, kSlice = kRows * kWidth * 4;

struct Stack {
  Array w, b;
};
STOW_TREE(Stack, w, b);

Array layer(const Array& x, const Stack& s) {
  return x + tanh(checkpoint_name(matmul(checkpoint_name(x, "x"), s.w), "z")) * s.b;
}

enum class Form { kScanned, kReversed, kUnrolled };

// Of the gradient by weights and input, with what the layers save sent to the host.
Graph gradient(Form form, const PolicyPtr& policy) {
  const auto body = checkpoint(layer, policy);
  const auto loss = [=](const Stack& s, const Array& x) {
    if (form != Form::kUnrolled)
      return sum(square(scan(body, x, s, ScanOptions{.reverse = form == Form::kReversed})));
    Array h = x;
    for (int64_t i = 0; i < kLayers; ++i)
      h = body(h, Stack{s.w.slice(0, i, i + 1).reshape({kWidth, kWidth}),
                        s.b.slice(0, i, i + 1).reshape({kWidth})});
    return sum(square(h));
  };
  const Stack s{Array::abstract(Shape{kLayers, kWidth, kWidth}),
                Array::abstract(Shape{kLayers, kWidth})};
  const Graph traced =
      jit(grad<0, 1>(loss)).lower(s, Array::abstract(Shape{kRows, kWidth})).graph();
  return remove_dead_code(sink_moves(realize_residuals(simplify(traced), nullptr)));
}

std::vector<testing::Bytes> inputs_of(const Graph& graph) {
  std::vector<testing::Bytes> inputs;
  uint32_t state = 1;
  for (ValueId v : graph.inputs()) {
    testing::Bytes bytes(static_cast<size_t>(graph.type(v).bytes()));
    for (size_t i = 0; i + 4 <= bytes.size(); i += 4) {
      state = state * 1664525u + 1013904223u;
      const float x = static_cast<float>(state >> 8) / static_cast<float>(1 << 24) - 0.5f;
      std::memcpy(&bytes[i], &x, 4);
    }
    inputs.push_back(std::move(bytes));
  }
  return inputs;
}

// Bytes that leave the device in a run.
int64_t bytes_away(const Graph& graph) {
  int64_t sum = 0;
  for (const Node& node : graph.nodes()) {
    if (node.op == OpKind::kScan)
      sum += node.as<ScanParams>().length * bytes_away(*node.graphs[0]);
    if (node.op == OpKind::kDevicePut && graph.type(node.first_result).kind != MemoryKind::kDevice)
      sum += graph.type(node.first_result).bytes();
  }
  return sum;
}

TEST(KeepLast, AsMuchAsTheBytesHoldStaysAndNoBitChanges) {
  const MemoryKind host = MemoryKind::kPinnedHost;
  for (const Form form : {Form::kScanned, Form::kReversed, Form::kUnrolled})
    for (const PolicyPtr& policy :
         {save_and_offload_only_these_names({}, {"x", "z"}, host),
          save_and_offload_only_these_names({"z"}, {"x"}, host)}) {
      const Graph graph = gradient(form, policy);
      const int64_t away = bytes_away(graph);
      const int64_t layer_bytes = away / kLayers;
      ASSERT_EQ(layer_bytes % kSlice, 0);
      ASSERT_GT(away, 0);
      const std::vector<testing::Bytes> inputs = inputs_of(graph);
      const std::vector<testing::Bytes> plain = testing::evaluate(graph, inputs);
      for (int64_t kept = 0; kept <= kLayers; ++kept) {
        SCOPED_TRACE(kept);
        // A scan keeps whole iterations, what is unrolled each array by itself.
        const auto [less, bytes] = keep_resident(graph, kept * layer_bytes + kSlice - 1);
        verify(less);
        EXPECT_EQ(bytes, kept * layer_bytes);
        EXPECT_EQ(bytes_away(less), away - kept * layer_bytes);
        EXPECT_EQ(testing::evaluate(less, inputs), plain);
        if (form != Form::kUnrolled) {
          EXPECT_EQ(count_ops(less, OpKind::kScan, false), kept % kLayers == 0 ? 2 : 4);
        }
      }
      EXPECT_TRUE(equal(keep_resident(graph, 0).graph, graph));
    }
}

// What the host is to hold, or reads itself, leaves as before.
TEST(KeepLast, WhatIsReturnedLeaves) {
  const auto f = [](const Array& x) {
    const auto step = [](const Array& h, const None&) {
      const Array next = sin(h);
      return std::pair(next, device_put(next, MemoryKind::kPinnedHost));
    };
    return std::pair(scan(step, x, None{}, ScanOptions{.length = 5}).second,
                     device_put(cos(x), MemoryKind::kPinnedHost));
  };
  const Graph graph = simplify(jit(f).lower(Array::abstract(Shape{kWidth})).graph());
  EXPECT_GT(bytes_away(graph), 0);
  EXPECT_TRUE(equal(keep_resident(graph, int64_t{1} << 40).graph, graph));
}

// Room that moves running ahead cannot use saves round trips; the capacity holds, and no bit
// changes.
TEST(KeepLast, RoomSavesRoundTrips) {
  const DevicePtr device = Device::virtual_device({1 << 28, 1 << 28, 0}, 1);
  const DefaultDevice guard(device);
  constexpr int64_t kMany = 12, kTokens = 512, kWide = 128;
  const auto body =
      checkpoint(layer, save_and_offload_only_these_names({}, {"x", "z"}, MemoryKind::kPinnedHost));
  const auto loss = [=](const Stack& s, const Array& x) { return sum(square(scan(body, x, s))); };
  const Stack s{random::normal(random::key(1), {kMany, kWide, kWide}), ones({kMany, kWide})};
  const Array x = random::normal(random::key(2), {kTokens, kWide});
  const auto within = [&](int64_t capacity) {
    CompileOptions options;
    options.capacities = {capacity, 1 << 28, 0};
    return jit(grad(loss)).lower(s, x).compile(options);
  };
  const auto lean = within(Device::unlimited_bytes());
  const int64_t least = lean.memory_analysis().device().total_bytes;
  const int64_t all = 2 * kMany * kTokens * kWide * 4;
  const auto roomy = within(least + all);
  EXPECT_LE(roomy.memory_analysis().device().total_bytes, least + all);
  EXPECT_LT(roomy.memory_analysis().host().total_bytes,
            lean.memory_analysis().host().total_bytes / 2);
  EXPECT_EQ(lean.memory_analysis().kept_resident_bytes, 0);
  EXPECT_GT(roomy.memory_analysis().kept_resident_bytes, all / 2);
  EXPECT_THAT(to_string(roomy.memory_analysis()), ::testing::HasSubstr("kept on the device"));
  const auto a = lean(s, x), b = roomy(s, x);
  EXPECT_EQ(a.w.to_vector<float>(), b.w.to_vector<float>());
  EXPECT_EQ(a.b.to_vector<float>(), b.b.to_vector<float>());
}

}  // namespace
}  // namespace stow
