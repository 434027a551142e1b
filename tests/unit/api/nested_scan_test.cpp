// nested_scan: the bits of scan, in the memory of blocks; and loops written out as lean as scans.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/base/inside.h"
#include "stowage/stowage.h"

namespace stow {
namespace {

using ::testing::ElementsAre;

struct Weights {
  Array w, b;
};
STOW_TREE(Weights, w, b);

Weights weights(int64_t n, int64_t width) {
  const Array key = random::key(7);
  return {random::normal(random::fold_in(key, 1), {n, width, width}) * 0.3,
          random::normal(random::fold_in(key, 2), {n, width})};
}

// Carry, and one stacked result an iteration.
std::pair<Array, Array> layer(const Array& x, const Weights& w) {
  const Array y = tanh(matmul(x, w.w) + w.b);
  return {x + y, sum(y)};
}

std::vector<float> floats(const std::vector<Array>& arrays) {
  std::vector<float> all;
  for (const Array& a : arrays)
    for (float f : a.to_vector<float>()) all.push_back(f);
  return all;
}

TEST(NestedScan, BlockSizesAreAsEqualAsCanBe) {
  EXPECT_THAT(nested_block_sizes(10, std::vector<int64_t>{3}), ElementsAre(4, 3, 3));
  EXPECT_THAT(nested_block_sizes(16, std::vector<int64_t>{0}), ElementsAre(4, 4, 4, 4));
  EXPECT_THAT(nested_block_sizes(7, std::vector<int64_t>{0}), ElementsAre(3, 2, 2));
  EXPECT_THAT(nested_block_sizes(2, std::vector<int64_t>{5}), ElementsAre(1, 1));
  EXPECT_THAT(nested_block_sizes(27, std::vector<int64_t>{0, 0}), ElementsAre(9, 9, 9));
}

TEST(NestedScan, ValuesAndGradientsAreThoseOfScan) {
  const Array x = random::normal(random::key(3), {2, 4});
  for (int64_t n : {0, 1, 2, 5, 7, 12})
    for (bool reverse : {false, true})
      for (const std::vector<int64_t>& blocks :
           std::vector<std::vector<int64_t>>{{0}, {1}, {0, 0}, {2}, {2, 2, 2}}) {
        if (n < blocks[0]) continue;
        const Weights w = weights(n, 4);
        const auto value = [](const std::pair<Array, Array>& out) {
          return sum(out.first * out.first) + sum(out.second * 0.5);
        };
        const auto plain = value_and_grad<0, 1>([&](const Weights& p, const Array& h) {
          return value(scan(layer, h, p, {.reverse = reverse}));
        });
        const auto nested = value_and_grad<0, 1>([&](const Weights& p, const Array& h) {
          return value(nested_scan(layer, h, p, {.blocks = blocks, .reverse = reverse}));
        });
        const auto a = jit(plain)(w, x);
        const auto b = jit(nested)(w, x);
        EXPECT_EQ(floats(tree_leaves(a)), floats(tree_leaves(b)))
            << n << " iterations, " << blocks.size() << " levels, first " << blocks[0];
      }
}

// Weights that all iterations read: their gradients are sums over iterations. They are read outside
// the loop as well, and twice in an iteration, once by a loop of its own.
TEST(NestedScan, GradientsOfCapturedWeightsAreThoseOfScan) {
  const Array x = random::normal(random::key(3), {3, 4}),
              w = random::normal(random::key(4), {4, 4});
  const auto run = [&](int64_t n, const auto& loop) {
    return jit(value_and_grad<0, 1>([&](const Array& w, const Array& x) {
      const auto step = [&w](const Array& h, const Array& i) {
        const Array inner = fori_loop(
            0, 2, [&w](const Array&, const Array& h) { return h + 0.1 * tanh(matmul(h, w)); }, h);
        return std::pair(tanh(matmul(inner, w)) * 0.9 + i, sum(h));
      };
      const auto [last, all] = loop(step, matmul(x, w), arange(n).astype(DType::kF32) * 0.01);
      return sum(matmul(last, w)) + sum(all) + sum(square(w));
    }))(w, x);
  };
  for (int64_t n : {2, 7})
    for (bool reverse : {false, true}) {
      const auto plain = run(n, [&](const auto& step, const Array& h, const Array& xs) {
        return scan(step, h, xs, {.reverse = reverse});
      });
      const auto expect_same = [&](const auto& other, const std::string& what) {
        EXPECT_EQ(floats(tree_leaves(plain)), floats(tree_leaves(other)))
            << n << " iterations, " << what << (reverse ? ", reverse" : "");
      };
      expect_same(run(n,
                      [&](const auto& step, const Array& h, const Array& xs) {
                        return scan(checkpoint(step), h, xs, {.reverse = reverse});
                      }),
                  "checkpointed");
      for (int64_t unroll : {0, 3})
        expect_same(run(n,
                        [&](const auto& step, const Array& h, const Array& xs) {
                          return scan(step, h, xs, {.reverse = reverse, .unroll = unroll});
                        }),
                    fmt::format("unroll {}", unroll));
      for (const std::vector<int64_t>& blocks :
           std::vector<std::vector<int64_t>>{{0}, {3}, {2, 2, 2}})
        if (n >= blocks[0])
          expect_same(run(n,
                          [&](const auto& step, const Array& h, const Array& xs) {
                            return nested_scan(step, h, xs, {.blocks = blocks, .reverse = reverse});
                          }),
                      fmt::format("{} levels, first {}", blocks.size(), blocks[0]));
    }
}

int64_t temp_bytes(int64_t n, const std::vector<int64_t>& blocks) {
  const auto f = [&](const Array& w, const Array& x) {
    const auto body = [](const Array& h, const Array& p) { return h + tanh(h * p); };
    return sum(blocks.empty() ? scan(checkpoint(body), x, w)
                              : nested_scan(body, x, w, {.blocks = blocks}));
  };
  return jit(grad(f))
      .lower(Array::abstract(Shape{n}), Array::abstract(Shape{1 << 16}))
      .compile()
      .memory_analysis()
      .device()
      .temp_bytes;
}

TEST(NestedScan, CarriesGrowAsTheRootOfTheDepth) {
  const int64_t carry = (1 << 16) * 4;
  EXPECT_GT(temp_bytes(256, {}), 255 * carry);
  EXPECT_LT(temp_bytes(256, {0}), 36 * carry);         // 2 * 16 and a few
  EXPECT_LT(temp_bytes(251, {0}), 36 * carry);         // a prime
  EXPECT_LT(temp_bytes(256, {0, 0}), 25 * carry);      // 6 + 7 + 7 and a few
  EXPECT_LT(temp_bytes(256, {2, 2, 2, 2, 2, 2, 2}), 22 * carry);
}

// Inner iterations that all had their temporaries at the same places would leave the residual slots
// that die between them unused: 2 to 20 % of the arena.
TEST(NestedScan, IterationsOfInnerScansLieApart) {
  const auto body = [](const Array& h, const Weights& p) {
    const Array y = tanh(matmul(h, p.w) + p.b);
    return h + tanh(matmul(y, p.w) * y);
  };
  for (const int64_t n : {6, 9}) {
    const Weights w = weights(n, 48);
    const Array x = random::normal(random::key(3), {512, 48});
    const auto f = [&](bool nested) {
      return jit(grad([&, nested](const Weights& p, const Array& h) {
        return sum(nested ? nested_scan(body, h, p, {.blocks = {0}}) : scan(body, h, p));
      }));
    };
    const auto nested = f(true);
    EXPECT_EQ(floats(tree_leaves(nested(w, x))), floats(tree_leaves(f(false)(w, x))));
    const KindAnalysis k = nested.lower(w, x).compile().memory_analysis().device();
    EXPECT_LE(k.total_bytes * 200, k.lower_bound_bytes * 201) << n << " layers";
  }
}

// What enters each block waits elsewhere; what enters an iteration of the block at work does not.
TEST(NestedScan, WhatEntersBlocksCanBeOffloaded) {
  constexpr int64_t kRows = 32, kWide = 16, kCarry = kRows * kWide * 4, kMiB = 1 << 20;
  const DevicePtr device = Device::virtual_device({64 * kMiB, 64 * kMiB, 64 * kMiB}, 1);
  const DefaultDevice guard(device);
  const Array x = random::normal(random::key(3), {kRows, kWide});
  const auto body = [](const Array& h, const Weights& p) { return h + tanh(matmul(h, p.w) + p.b); };
  for (const MemoryKind away : {MemoryKind::kPinnedHost, MemoryKind::kDisk})
    for (const int64_t n : {16, 7, 2}) {
      const Weights w = weights(n, kWide);
      const auto f = [&](const PolicyPtr& policy) {
        return jit(grad([&, policy](const Weights& p, const Array& h) {
          return sum(square(nested_scan(body, h, p, {.blocks = {0}, .block_policy = policy})));
        }));
      };
      const auto moved = f(save_and_offload_only_these_names({}, {"block_in"}, away));
      EXPECT_EQ(floats(tree_leaves(moved(w, x))), floats(tree_leaves(f(nullptr)(w, x)))) << n;
      const MemoryAnalysis a = moved.lower(w, x).compile().memory_analysis();
      const auto n_blocks =
          static_cast<int64_t>(nested_block_sizes(n, std::vector<int64_t>{0}).size());
      EXPECT_EQ(a.kinds[static_cast<size_t>(away)].total_bytes, n_blocks * kCarry) << n;
      // The first block begins with the argument, and of the others one is at work.
      if (n_blocks > 3) {
        EXPECT_LT(a.device().temp_bytes,
                  f(nullptr).lower(w, x).compile().memory_analysis().device().temp_bytes)
            << n;
      }
    }
}

TEST(NestedScan, RefusesWhatCannotBeCut) {
  const Array x = zeros({2, 2});
  const auto body = [](const Array& h, const Array& p) { return h * p; };
  try {
    nested_scan(body, x, zeros({4}), {.blocks = {5}});
    FAIL();
  } catch (const TraceError& error) {
    EXPECT_THAT(error.what(),
                ::testing::HasSubstr(
                    "[nested_scan] expected 0 to 4 blocks, the number of iterations, got 5"));
  }
  try {
    nested_scan([](const Array& h, const std::pair<Array, Array>& p) { return h * p.first; }, x,
                std::pair(zeros({4}), zeros({3})));
    FAIL();
  } catch (const TraceError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("[nested_scan] '1' has 3 slices, not 4"));
  }
}

// ---- loops written out ----

struct Stack {
  Array w1, w2, g;
};
STOW_TREE(Stack, w1, w2, g);

constexpr int64_t kLayers = 32, kWidth = 64, kHidden = 256;

Array block(const Array& input, const Stack& weights) {
  const Array x = checkpoint_name(input, "x");
  const Stack w = device_put(weights, MemoryKind::kDevice);
  return x + matmul(silu(checkpoint_name(matmul(rms_norm(x, w.g), w.w1), "up")), w.w2);
}

// With the weights in a memory of choice.
int64_t peak(bool scanned, const PolicyPtr& policy, int64_t rows, bool with_gradient,
             MemoryKind kind = MemoryKind::kDevice) {
  const auto body = checkpoint(block, policy);
  const auto forward = [&](const Stack& w, const Array& x) {
    auto f = body;
    // A loss whose cotangent is an array of its own, in both.
    if (scanned) return sum(square(scan(f, x, w)));
    Array h = x;
    for (int64_t i = 0; i < kLayers; ++i)
      h = f(h, Stack{w.w1.slice(0, i, i + 1).reshape({kWidth, kHidden}),
                     w.w2.slice(0, i, i + 1).reshape({kHidden, kWidth}),
                     w.g.slice(0, i, i + 1).reshape({kWidth})});
    return sum(square(h));
  };
  const auto weight = [&](Dims dims) {
    return Array::abstract({DType::kF32, Shape(std::move(dims)), kind});
  };
  const Stack w{weight({kLayers, kWidth, kHidden}), weight({kLayers, kHidden, kWidth}),
                weight({kLayers, kWidth})};
  const Array x = Array::abstract(Shape{rows, kWidth});
  const auto total = [](const auto& compiled) {
    return compiled.memory_analysis().device().total_bytes;
  };
  return with_gradient ? total(jit(grad(forward)).lower(w, x).compile())
                       : total(jit(forward).lower(w, x).compile());
}

TEST(Unrolled, IsAsLeanAsScannedWhereWeightsAndResidualsAreElsewhere) {
  const MemoryKind host = MemoryKind::kPinnedHost;
  for (const PolicyPtr& policy :
       {nothing_saveable(), save_and_offload_only_these_names({}, {"x"}, host),
        save_and_offload_only_these_names({"x"}, {"up"}, host),
        save_and_offload_only_these_names({}, {"x", "up"}, host)})
    for (int64_t rows : {64, 256, 512}) {
      const auto scanned = static_cast<double>(peak(true, policy, rows, true, host));
      const auto unrolled = static_cast<double>(peak(false, policy, rows, true, host));
      const std::string what = fmt::format("{}, {} rows", policy->name, rows);
      EXPECT_LE(unrolled, 1.02 * scanned) << what;
      EXPECT_LE(scanned, 1.01 * unrolled) << what;
    }
}

// The first slot of what a scan saves is the argument only where the scan begins with that, not
// with what one kernel makes of it.
TEST(FirstSlots, AreArgumentsOnlyWhereTheseAreTheInitialValues) {
  const Array x = random::normal(random::key(5), {24, 8}) * 0.3;
  const Array w = random::normal(random::key(6), {6, 8, 8});
  const auto loss = [&](const auto& start) {
    return [&, start](const Array& a, const Array& b) {
      const auto body =
          checkpoint([](const Array& h, const Array& m) { return tanh(matmul(h, m)) + h; });
      return sum(square(scan(body, start(a), b)));
    };
  };
  const auto check = [&](const auto& start) {
    JitOptions apart;
    apart.compile.reuse = apart.compile.fuse = false;
    const auto f = grad<0, 1>(loss(start));
    const auto [gx, gw] = jit(f)(x, w);
    const auto [want_x, want_w] = jit(f, apart)(x, w);
    EXPECT_EQ(gx.template to_vector<float>(), want_x.template to_vector<float>());
    EXPECT_EQ(gw.template to_vector<float>(), want_w.template to_vector<float>());
    return jit(f).lower(x, w).compile().memory_analysis().device().temp_bytes;
  };
  const int64_t shared = check([](const Array& a) { return a; });
  EXPECT_GT(check([](const Array& a) { return a.astype(DType::kI32).astype(DType::kF32); }),
            shared);
  EXPECT_GT(check([](const Array& a) { return a.astype(DType::kBF16).astype(DType::kF32); }),
            shared);
  EXPECT_GT(check([](const Array& a) { return (a > 0.0).astype(DType::kF32); }), shared);
}

// A concatenation that a scan begins with is the first of what it stacks: who reads the
// concatenation last must not write over it.
TEST(FirstSlots, OfConcatenationsAreKept) {
  const Array a = random::normal(random::key(5), {2, 4}),
              b = random::normal(random::key(6), {2, 4});
  const Array w = random::normal(random::key(7), {4, 4});
  const auto f = [](const Array& x, const Array& y, const Array& m) {
    const Array start = concatenate({matmul(x, m), matmul(y, m)}, 0);
    const auto body = [](const Array& c, const Array& z) {
      return std::pair(sin(matmul(c, z)), c);
    };
    const auto [last, kept] = scan(body, start, stack({m, m, m}));
    return std::pair(kept, matmul(start + 1.0, m));
  };
  JitOptions apart;
  apart.compile.reuse = apart.compile.fuse = false;
  const auto [kept, product] = jit(f)(a, b, w);
  const auto [want_kept, want_product] = jit(f, apart)(a, b, w);
  EXPECT_EQ(kept.to_vector<float>(), want_kept.to_vector<float>());
  EXPECT_EQ(product.to_vector<float>(), want_product.to_vector<float>());
}

TEST(Unrolled, IsAsLeanAsScanned) {
  for (const PolicyPtr& policy : {everything_saveable(), nothing_saveable(), dots_saveable()})
    for (int64_t rows : {64, 256, 512})
      for (bool with_gradient : {false, true}) {
        const auto scanned = static_cast<double>(peak(true, policy, rows, with_gradient));
        const auto unrolled = static_cast<double>(peak(false, policy, rows, with_gradient));
        const std::string what =
            fmt::format("{}, {} rows, gradient {}", policy->name, rows, with_gradient);
        EXPECT_LE(unrolled, 1.02 * scanned) << what;
        // Written out, what is recomputed may be dropped between layers; a scan's body is one
        // layer.
        EXPECT_LE(scanned, 1.02 * unrolled) << what;
      }
}

}  // namespace
}  // namespace stow
