// cond, switch_, while_loop, fori_loop and scan's options: values, gradients, what is traced.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "stowage/autodiff/flatten.h"
#include "stowage/ir/utilities.h"
#include "stowage/ops/verify.h"
#include "stowage/passes/dead_code.h"
#include "stowage/passes/residuals.h"
#include "stowage/passes/simplify.h"
#include "stowage/stowage.h"
#include "tests/support/message_of.h"

namespace stow {
namespace {

using ::testing::ElementsAre;
using ::testing::Pointwise;

MATCHER(NearDouble, "") {
  return std::fabs(std::get<0>(arg) - std::get<1>(arg)) <= 1e-6 * (1 + std::fabs(std::get<1>(arg)));
}

struct Layer {
  Array w, b;
};
STOW_TREE(Layer, w, b);

Array f64(std::initializer_list<double> values, Shape shape) {
  return Array::from<double>(values, std::move(shape), DType::kF64);
}
std::vector<double> numbers(const Array& x) {
  return x.to_vector<double>();
}
std::vector<double> bits_of(const Array& x) {
  return x.to_vector<double>();
}

// The slope of f along each element of x, by differences.
template <typename F>
std::vector<double> slopes(F f, const Array& x) {
  std::vector<double> at = numbers(x), result;
  for (double& element : at) {
    const double before = element, step = 1e-6;
    double side[2];
    for (int s = 0; s < 2; ++s) {
      element = before + (s ? -step : step);
      side[s] = f(Array::from<double>(std::span<const double>(at), x.shape(), DType::kF64))
                    .template item<double>();
    }
    element = before;
    result.push_back((side[0] - side[1]) / (2 * step));
  }
  return result;
}

template <typename F>
void expect_gradient(F f, const Array& x) {
  EXPECT_THAT(numbers(jit(grad(f))(x)), Pointwise(NearDouble(), slopes(f, x)));
}

TEST(Cond, TakesOneBranch) {
  const auto f = [](Array p, Array x) {
    return cond(
        p, [](Array x) { return x * 2; }, [](Array x) { return x - 1; }, x);
  };
  const Array x = f64({1, 2}, {2});
  for (const bool jitted : {false, true}) {
    const auto run = [&](Array p) { return numbers(jitted ? jit(f)(p, x) : f(p, x)); };
    EXPECT_THAT(run(Array(true)), ElementsAre(2, 4));
    EXPECT_THAT(run(Array(false)), ElementsAre(0, 1));
    EXPECT_THAT(run(Array(3)), ElementsAre(2, 4));
    EXPECT_THAT(run(Array(0.0f)), ElementsAre(0, 1));
  }
  EXPECT_EQ(cond(
                true, [] { return Array(1); }, [] { return Array(2); })
                .item<int>(),
            1);
}

TEST(Cond, ClosuresBecomeOperandsOnce) {
  const auto f = [](Array p, Array x, Array y) {
    const Array z = x * y;
    return cond(
        p > 0, [&] { return z + x; }, [&] { return x - z; });
  };
  const Graph g = jit(f).lower(Array(1.0f), f64({1}, {1}), f64({2}, {1})).graph();
  verify(g);
  const Node& node = g.nodes().back();
  ASSERT_EQ(node.op, OpKind::kCond);
  EXPECT_EQ(node.operands.size(), 3u);
  EXPECT_THAT(numbers(jit(f)(Array(1.0f), f64({3}, {1}), f64({2}, {1}))), ElementsAre(9));
  EXPECT_THAT(numbers(jit(f)(Array(-1.0f), f64({3}, {1}), f64({2}, {1}))), ElementsAre(-3));
}

TEST(Cond, WeakLeavesTakeTheOtherBranchesType) {
  const Array x = Array::from({1.5f}, Shape{}, DType::kF16);
  const auto f = [](Array x) {
    return cond(
        true, [](Array) { return Array(1); }, [](Array x) { return x; }, x);
  };
  EXPECT_EQ(jit(f)(x).dtype(), DType::kF16);
  EXPECT_EQ(f(x).dtype(), DType::kF16);
  EXPECT_FALSE(jit(f).lower(x).result().type().weak);
  const Array weak = cond(
      true, [] { return Array(1); }, [] { return Array(2.5); });
  EXPECT_EQ(weak.dtype(), DType::kF32);
  EXPECT_TRUE(weak.type().weak);
}

TEST(Cond, TreesInAndOut) {
  const auto f = [](Array p, Layer l) {
    return cond(
        p,
        [](Layer l) {
          return Layer{l.b, l.w};
        },
        [](Layer l) { return l; }, l);
  };
  const Layer swapped = jit(f)(Array(true), Layer{f64({1}, {1}), f64({2}, {1})});
  EXPECT_THAT(numbers(swapped.w), ElementsAre(2));
  EXPECT_THAT(numbers(swapped.b), ElementsAre(1));
}

TEST(Switch, ClampsAndTakesTuplesAndVectors) {
  const auto f = [](Array i, Array x) {
    return switch_(i,
                   std::tuple([](Array x) { return x; }, [](Array x) { return x * 10; },
                              [](Array x) { return x * 100; }),
                   x);
  };
  const auto g = [](Array i, Array x) {
    std::vector<std::function<Array(Array)>> branches;
    for (const int k : {1, 10, 100}) branches.push_back([k](Array x) { return x * k; });
    return switch_(i, branches, x);
  };
  const Array x = f64({2}, {1});
  const auto check = [&](const Array& index, double want) {
    EXPECT_THAT(numbers(f(index, x)), ElementsAre(want));
    EXPECT_THAT(numbers(jit(g)(index, x)), ElementsAre(want));
  };
  check(Array(1), 20);
  check(Array(-5), 2);
  check(Array(9), 200);
  check(Array::scalar(int64_t{1} << 40, DType::kI64), 200);
  check(Array::scalar(-(int64_t{1} << 40), DType::kI64), 2);
  check(Array::scalar(int64_t{3'000'000'000}, DType::kU32), 200);
  check(Array::scalar(-1, DType::kI8), 2);
  EXPECT_EQ(switch_(7, std::tuple([] { return Array(5); })).item<int>(), 5);
}

TEST(Cond, GradientsOfEachBranch) {
  for (const double sign : {1.0, -1.0}) {
    const auto f = [sign](Array x) {
      const Array y = sin(x);
      return sum(cond(
          Array(sign) > 0, [&](Array z) { return tanh(z * y) * z; },
          [&](Array z) { return z * z * exp(x * 0.1); }, x * 2));
    };
    expect_gradient(f, f64({0.3, -0.7, 1.1}, {3}));
    // Of the gradient, along a direction.
    expect_gradient([f](Array x) { return sum(grad(f)(x) * cos(x)); }, f64({0.3, -0.7, 1.1}, {3}));
  }
}

TEST(Cond, InScanInCheckpointInCondAndPolicies) {
  const Array xs = f64({0.3, -0.7, 1.1, 0.2, -0.4, 0.9}, {3, 2});
  for (const bool big : {true, false})
    for (const PolicyPtr& policy :
         {PolicyPtr(), everything_saveable(), dots_saveable(), save_only_these_names({"y"}),
          save_anything_except_these_names({"y"})}) {
      const auto f = [&](Array x) {
        const auto layer = [&](Array h, Array w) {
          const Array next = cond(
              sum(h) > 0,
              [](Array h, Array w) {
                const Array y = checkpoint_name(tanh(h * w), "y");
                return y * sin(y) + h;
              },
              [](Array h, Array w) { return checkpoint_name(h - w * w, "y"); }, h, w);
          return next;
        };
        const auto all = [&](Array x) { return sum(scan(checkpoint(layer, policy), x, xs)); };
        auto block = checkpoint(all, policy ? everything_saveable() : nullptr);
        return cond(
            Array(big), [&](Array x) { return block(x); }, [](Array x) { return sum(x * x); }, x);
      };
      SCOPED_TRACE(policy ? policy->name : "nothing");
      expect_gradient(f, f64({0.25, 0.5}, {2}));
      expect_gradient(f, f64({-0.25, -0.5}, {2}));
    }
}

TEST(Cond, PoliciesActInsideBranches) {
  const auto step = [](PolicyPtr policy) {
    const auto f = [policy](Array p, Array x) {
      auto block = checkpoint(
          [p](Array x) {
            return cond(
                p,
                [](Array x) {
                  const Array y = checkpoint_name(matmul(x, x), "y");
                  return sum(sin(matmul(y, x)));
                },
                [](Array x) { return sum(x); }, x);
          },
          policy);
      return block(x * 2);
    };
    return jit(grad<1>(f))
        .lower(Array::abstract({}, DType::kBool), Array::abstract({64, 64}))
        .compile()
        .memory_analysis()
        .device()
        .total_bytes;
  };
  // Names in a branch count as names of the region; a wrong one is told.
  EXPECT_LE(step(nullptr), step(everything_saveable()));
  EXPECT_NO_THROW(step(save_only_these_names({"y"})));
  EXPECT_THROW(step(save_only_these_names({"z"})), TraceError);
}

// The forward and the backward cond of a step whose residuals are settled.
struct Pair {
  int n_residuals = 0, forward_dots = 0, backward_dots = 0;
};
template <typename F>
Pair pair_of(F f, PolicyPtr policy) {
  const auto step = [&](Array p, Array x) {
    return grad([&](Array x) { return sum(checkpoint(f, policy)(p, x * 2)); })(x);
  };
  const Graph traced =
      jit(step).lower(Array::abstract({}, DType::kBool), Array::abstract({8, 8})).graph();
  const Graph g =
      remove_dead_code(realize_residuals(simplify(flatten_checkpoints(traced)), nullptr));
  verify(g);
  Pair pair;
  for (const Node& node : g.nodes()) {
    if (node.op != OpKind::kCond) continue;
    if (!node.backward) pair.n_residuals = node.as<CondParams>().n_residuals;
    for (const GraphPtr& branch : node.graphs)
      (node.backward ? pair.backward_dots : pair.forward_dots) +=
          static_cast<int>(count_ops(*branch, OpKind::kDotGeneral, true));
  }
  return pair;
}

TEST(Cond, BranchesShareResiduals) {
  const auto f = [](Array p, Array x) {
    return cond(
        p,
        [](Array x) {
          const Array b = matmul(sin(matmul(x, x)), x);
          return matmul(sin(b), b);
        },
        [](Array x) { return matmul(sin(matmul(x, x)), x); }, x);
  };
  // Of the products the gradients read two in one branch and one in the other.
  const Pair all = pair_of(f, everything_saveable());
  EXPECT_EQ(all.n_residuals, 2);
  EXPECT_EQ(all.backward_dots, 2 * 5);
  // Nothing is saved: the backward cond makes the products again.
  const Pair nothing = pair_of(f, nullptr);
  EXPECT_EQ(nothing.n_residuals, 0);
  EXPECT_EQ(nothing.backward_dots, 2 * 5 + 3);
}

// What a policy around a cond names in a branch is saved where that is less than its operands.
TEST(Cond, NamesInBranchesAreSaved) {
  const auto f = [](Array p, Array x) {
    const Array w = Array::from<float>(std::vector<float>(16, 0.5f), Shape{8, 2});
    return cond(
        p, [w](Array x) { return sum(sin(checkpoint_name(matmul(x, w), "a"))); },
        [](Array x) { return sum(x); }, x);
  };
  EXPECT_EQ(pair_of(f, save_only_these_names({"a"})).n_residuals, 1);
  EXPECT_EQ(pair_of(f, save_only_these_names({"a"})).backward_dots, 1);
  EXPECT_EQ(pair_of(f, nullptr).n_residuals, 0);
  EXPECT_EQ(pair_of(f, nullptr).backward_dots, 2);
}

TEST(Cond, OffloadsInsideBranches) {
  const DevicePtr device = Device::virtual_device({1 << 20, 1 << 20, 0}, 1);
  const DefaultDevice guard(device);
  const Array w = Array::from<float>(std::vector<float>(16, 0.5f), Shape{8, 2});
  const auto step = [&](PolicyPtr policy) {
    const auto f = [w](Array p, Array x) {
      return cond(
          p, [w](Array x) { return sum(sin(checkpoint_name(matmul(x, w), "a"))); },
          [](Array x) { return sum(x * x); }, x);
    };
    return jit([=](Array p, Array x) {
      return grad([&](Array x) { return sum(checkpoint(f, policy)(p, x * 2)); })(x);
    });
  };
  const Array x = Array::from<float>(std::vector<float>(64, 0.25f), Shape{8, 8});
  const auto offloaded = step(save_and_offload_only_these_names({}, {"a"}));
  EXPECT_EQ(offloaded.lower(Array(true), x).compile().memory_analysis().host().total_bytes, 64);
  for (const bool p : {true, false})
    EXPECT_EQ(bits_of(offloaded(Array(p), x)), bits_of(step(nullptr)(Array(p), x)));
}

TEST(Cond, DonatedStateIsUpdatedInPlace) {
  const auto f = [](Array p, Array state, Array g) {
    return cond(
        p, [](Array s, Array g) { return s - g * 0.5; }, [](Array s, Array) { return s; }, state,
        g);
  };
  const auto lowered = jit(f, {.donate_argnums = {1}})
                           .lower(Array::abstract({}, DType::kBool), Array::abstract({1000}),
                                  Array::abstract({1000}));
  const KindAnalysis k = lowered.compile().memory_analysis().device();
  EXPECT_EQ(k.alias_bytes, 4000);
  EXPECT_LT(k.total_bytes, 8001 + 1000);  // the arguments and a kernel's scratch
}

TEST(Cond, BranchesShareMemory) {
  const auto one = [](Array x) { return sum(matmul(sin(x), cos(x))); };
  const auto two = [](Array x) { return sum(matmul(tanh(x), exp(x))); };
  const Array p = Array::abstract({}, DType::kBool), x = Array::abstract({128, 128});
  const int64_t both = jit([&](Array p, Array x) { return cond(p, one, two, x); })
                           .lower(p, x)
                           .compile()
                           .memory_analysis()
                           .device()
                           .total_bytes;
  const int64_t alone = jit([&](Array, Array x) { return one(x); })
                            .lower(p, x)
                            .compile()
                            .memory_analysis()
                            .device()
                            .total_bytes;
  EXPECT_LE(both, alone + 256);
}

TEST(Cond, OperandsAndResultsWithoutElements) {
  const auto f = [](Array p, Array x) {
    return cond(
        p, [](Array x) { return x * 2; }, [](Array x) { return x; }, x);
  };
  EXPECT_EQ(jit(f)(Array(true), f64({}, {0, 3})).shape(), (Shape{0, 3}));
  const Array g =
      jit(grad<1>([&](Array p, Array x) { return sum(f(p, x)); }))(Array(true), f64({}, {0, 3}));
  EXPECT_EQ(g.shape(), (Shape{0, 3}));
}

TEST(While, RunsAsLongAsItHolds) {
  const auto collatz = [](Array n) {
    return while_loop([](std::pair<Array, Array> c) { return c.first != 1; },
                      [](std::pair<Array, Array> c) {
                        const Array n = c.first;
                        return std::pair(where(n % 2 == 0, floor_divide(n, 2), n * 3 + 1),
                                         c.second + 1);
                      },
                      std::pair(n, Array::scalar(0, DType::kI32)))
        .second;
  };
  EXPECT_EQ(collatz(Array::scalar(27, DType::kI32)).item<int>(), 111);
  EXPECT_EQ(jit(collatz)(Array::scalar(1, DType::kI32)).item<int>(), 0);
}

TEST(While, InCondInScanAndScanInWhile) {
  // Rows are doubled until their sum passes 10, except where the flag says no.
  const auto f = [](Array flags, Array rows) {
    return scan(
               [](None, std::pair<Array, Array> x) {
                 const auto& [flag, row] = x;
                 const Array y = cond(
                     flag,
                     [](Array row) {
                       return while_loop([](Array r) { return sum(r) < 10; },
                                         [](Array r) {
                                           return scan([](Array c, Array t) { return c + t; },
                                                       r * 1.0, stack({r, r * 0.0}));
                                         },
                                         row);
                     },
                     [](Array row) { return row; }, row);
                 return std::pair(None{}, y);
               },
               None{}, std::pair(flags, rows))
        .second;
  };
  const Array flags = Array::from<int>({1, 0, 1}) > 0;
  const Array rows = f64({1, 2, 3, 4, 20, 1}, {3, 2});
  EXPECT_THAT(numbers(jit(f)(flags, rows)), ElementsAre(4, 8, 3, 4, 20, 1));
}

TEST(While, CarriesThatChangePlaces) {
  const auto f = [](Array n, Array x, Array y, Array z) {
    using Carry = std::tuple<Array, Array, Array, Array>;
    const auto [i, a, b, c] = while_loop([](Carry s) { return std::get<0>(s) > 0; },
                                         [](Carry s) {
                                           const auto& [i, a, b, c] = s;
                                           return Carry(i - 1, b, c, a);
                                         },
                                         Carry(n, x, y, z));
    return a * 100 + b * 10 + c;
  };
  const auto run = [&](int n) {
    return jit(f)(Array::scalar(n, DType::kI32), f64({1}, {1}), f64({2}, {1}), f64({3}, {1}))
        .item<double>();
  };
  EXPECT_EQ(run(0), 123);
  EXPECT_EQ(run(1), 231);
  EXPECT_EQ(run(2), 312);
  EXPECT_EQ(run(4), 231);
}

// What a loop never changes is no carry of the program: no copy of it is made.
TEST(While, WhatNeverChangesIsNotCopied) {
  const auto f = [](Array w, Array x) {
    return while_loop([](std::pair<Array, Array> c) { return sum(c.second) < 100; },
                      [](std::pair<Array, Array> c) {
                        return std::pair(c.first, tanh(matmul(c.second, c.first)) + 1);
                      },
                      std::pair(w, x))
        .second;
  };
  const KindAnalysis k = jit(f)
                             .lower(Array::abstract({256, 256}), Array::abstract({1, 256}))
                             .compile()
                             .memory_analysis()
                             .device();
  EXPECT_LT(k.total_bytes - k.argument_bytes, 256 * 256 * 4);
}

TEST(While, HasNoReverseMode) {
  const auto f = [](Array x) {
    return while_loop([](Array c) { return c < 10; }, [](Array c) { return c * 2; }, x);
  };
  try {
    grad(f)(Array(1.0f));
    FAIL();
  } catch (const TraceError& error) {
    EXPECT_THAT(error.what(),
                ::testing::StartsWith("[while_loop] has no reverse-mode derivative, for how often "
                                      "it runs is not known; use fori_loop with C++ integers as "
                                      "bounds, or scan\n  at control_test.cpp:"));
  }
  // Nothing is differentiated through it here.
  const auto g = [&](Array x) { return x * x * f(stop_gradient(x)); };
  EXPECT_EQ(grad(g)(Array(3.0f)).item<float>(), 6 * 12);
}

TEST(Fori, StaticBoundsAreAScan) {
  const auto power = [](Array x) {
    return fori_loop(
        2, 6, [x](Array i, Array c) { return c * x + i; }, x);
  };
  const Array x = f64({1.5}, {});
  double want = 1.5;
  for (int i = 2; i < 6; ++i) want = want * 1.5 + i;
  EXPECT_DOUBLE_EQ(power(x).item<double>(), want);
  EXPECT_EQ(count_ops(jit(power).lower(x).graph(), OpKind::kScan, true), 1);
  expect_gradient(power, x);
  EXPECT_EQ(fori_loop(
                5, 2, [](Array i, Array c) { return c + i; }, Array::scalar(7, DType::kI32))
                .item<int>(),
            7);
}

TEST(Fori, TracedBoundsAreAWhile) {
  const auto sums = [](Array n) {
    return fori_loop(
        0, n, [](Array i, Array c) { return c + i; }, Array::scalar(0, DType::kI32));
  };
  EXPECT_EQ(count_ops(jit(sums).lower(Array::scalar(5, DType::kI32)).graph(), OpKind::kWhile, true),
            1);
  for (const int n : {0, 1, 5, -3})
    EXPECT_EQ(jit(sums)(Array::scalar(n, DType::kI32)).item<int>(), n > 0 ? n * (n - 1) / 2 : 0);
}

// As jax.lax.fori_loop does: a counter that begins at a C++ integer yields to the carry's dtype.
TEST(Fori, CounterIsWeakWhereItBeginsAtANumber) {
  const auto add = [](Array i, Array c) { return c * 3 + i; };
  const Array bytes = Array::from({1, 2}, DType::kI8);
  const Array u32 = Array::from({1, 2}, DType::kU32), three = Array::scalar(3, DType::kI32);
  EXPECT_EQ(to_string(fori_loop(0, 3, add, bytes).type()), "i8[2]");
  EXPECT_EQ(fori_loop(0, 3, add, bytes).to_vector<int>(), (std::vector<int>{32, 59}));
  EXPECT_EQ(to_string(fori_loop(0, three, add, bytes).type()), "i8[2]");
  EXPECT_EQ(to_string(jit([&](Array c) { return fori_loop(0, 3, add, c); })(u32).type()), "u32[2]");
  EXPECT_THROW(fori_loop(Array::scalar(0, DType::kI32), 3, add, bytes), TraceError);
}

// As in JAX, what a scan stacks is weak where the slices are, and a gradient where its leaf is.
TEST(Scan, KeepsTypesWeak) {
  const Array x = Array::from({1, 2, 3}, DType::kBF16);
  const auto halves = [](const Array& x) {
    return scan([](Array c, Array) { return std::pair(c * 0.5, c); }, Array(1.0), x);
  };
  const auto [last, stacked] = jit(halves)(x);
  EXPECT_TRUE(last.type().weak);
  EXPECT_TRUE(stacked.type().weak);
  EXPECT_EQ(to_string((stacked * x).type()), "bf16[3]");
  const auto slope = grad([](const Array& w) { return w * w; });
  EXPECT_TRUE(slope(Array(2.0)).type().weak);
  EXPECT_FALSE(slope(Array::scalar(2.0, DType::kF32)).type().weak);
  const auto [y, pullback] = vjp([](const Array& w) { return w * w; }, 2.0);
  EXPECT_TRUE(std::get<0>(pullback(y)).type().weak);
}

TEST(Scan, OverAnyAxis) {
  const auto body = [](Array c, Layer x) {
    const Array next = tanh(c + x.w * x.b);
    return std::pair(next, Layer{next * 2, x.w});
  };
  const Array c = f64({0.1, 0.2}, {2});
  const Array w = f64({1, 2, 3, 4, 5, 6}, {3, 2}), b = f64({0.1, 0.2, 0.3}, {3});
  const auto [want, ys] = scan(body, c, Layer{w, b});
  const auto [got, zs] =
      scan(body, c, Layer{transpose(w), b}, {.axes = {-1, 0}, .out_axes = {1, -2}});
  EXPECT_EQ(bits_of(got), bits_of(want));
  EXPECT_EQ(zs.w.shape(), (Shape{2, 3}));
  EXPECT_EQ(bits_of(transpose(zs.w)), bits_of(ys.w));
  EXPECT_EQ(bits_of(zs.b), bits_of(ys.b));
  EXPECT_EQ(bits_of(scan([](Array c, Array x) { return c + x; }, c, transpose(w), {.axes = {1}})),
            bits_of(scan([](Array c, Array x) { return c + x; }, c, w)));
}

// Another form of the program, the same bits: values and gradients.
TEST(Scan, UnrolledHasTheSameBits) {
  const Array xs = f64({0.31, -0.72, 1.13, 0.24, -0.45, 0.96, 0.17, 0.88, -0.29, 0.5}, {5, 2});
  const Array w = f64({0.37, -0.21}, {2});
  for (const bool reverse : {false, true}) {
    std::vector<std::vector<double>> first;
    for (const int64_t unroll :
         {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{5}, int64_t{9}, kUnrollFully}) {
      const auto f = [&](Array w, Array xs) {
        const auto [h, ys] = scan(
            [&](Array h, Array x) {
              const Array next = tanh(h * w + x);
              return std::pair(next, next * x);
            },
            w * 0.5, xs, {.reverse = reverse, .unroll = unroll});
        return sum(h) + sum(ys * sin(ys));
      };
      const auto [value, gradients] = jit(value_and_grad<0, 1>(f))(w, xs);
      const std::vector<std::vector<double>> all = {bits_of(value), bits_of(std::get<0>(gradients)),
                                                    bits_of(std::get<1>(gradients))};
      if (first.empty())
        first = all;
      else
        EXPECT_EQ(all, first) << "unroll " << unroll;
    }
    EXPECT_FALSE(first.empty());
  }
}

}  // namespace
}  // namespace stow

namespace stow {
namespace {

TEST(Control, ACarryOfAnotherStructureIsRefused) {
  using Named = std::map<std::string, Array>;
  const Named carry{{"a", Array(1.0f)}};
  const auto renamed = [](const Named& c) { return Named{{"b", c.at("a") + 1.0f}}; };
  EXPECT_THAT(message_of([&] {
                fori_loop(
                    0, 3, [&](Array, Named c) { return renamed(c); }, carry);
              }),
              ::testing::HasSubstr("[fori_loop] the carry and what the body returns for it:"));
  EXPECT_THAT(message_of([&] {
                while_loop([](const Named& c) { return c.at("a") < 3.0f; }, renamed, carry);
              }),
              ::testing::HasSubstr("[while_loop] the carry and what the body returns for it:"));
}

}  // namespace
}  // namespace stow
