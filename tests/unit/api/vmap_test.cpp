// vmap, vjp, custom_vjp and their combinations, run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/ir/utilities.h"
#include "stowage/stowage.h"

namespace stow {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::FloatNear;
using testing::Pointwise;

struct Net {
  Array w, b;
};
STOW_TREE(Net, w, b);

Array sequence(Shape shape, float scale = 1) {
  std::vector<float> data(static_cast<size_t>(shape.elems()));
  for (size_t i = 0; i < data.size(); ++i)
    data[i] = scale * static_cast<float>(static_cast<int>(i * 37 % 101) - 50) / 50;
  return Array::from(data, std::move(shape));
}

Array diagonal(const Array& v) {
  return eye(v.dim(0)) * v;
}

void expect_near(const Array& got, const Array& want, float error = 2e-6f) {
  ASSERT_EQ(got.shape(), want.shape());
  EXPECT_THAT(got.to_vector<float>(), Pointwise(FloatNear(error), want.to_vector<float>()));
}

// Example by example, stacked.
template <typename F>
Array looped(F f, const Array& xs) {
  std::vector<Array> results;
  for (int64_t i = 0; i < xs.dim(0); ++i) results.push_back(f(xs[i]));
  return stack(results);
}

TEST(Vmap, AxesOfArgumentsAndResults) {
  const Array m = sequence({3, 4}), v = sequence({4});
  const auto dot = [](const Array& a, const Array& b) { return sum(a * b); };
  expect_near(vmap(dot, {0, std::nullopt})(m, v), matmul(m, v));
  expect_near(vmap(dot, {1, std::nullopt})(transpose(m), v), matmul(m, v));
  expect_near(vmap(dot, {-2, std::nullopt})(m, v), matmul(m, v));
  const auto outer = [](const Array& a, const Array& b) { return a * b; };
  EXPECT_EQ(vmap(outer, {0, std::nullopt}, 1)(m, v).shape(), (Shape{4, 3}));
  EXPECT_EQ(vmap(outer, {0, std::nullopt}, -1)(m, v).shape(), (Shape{4, 3}));
  EXPECT_EQ(vmap([](const Array& a) { return a + 1; }, std::nullopt, 0, 5)(v).shape(),
            (Shape{5, 4}));
  EXPECT_EQ(
      vmap([](const Array&, const Array& b) { return b; }, {0, std::nullopt}, std::nullopt)(m, v)
          .shape(),
      (Shape{4}));
}

TEST(Vmap, TreesWithAxesByPath) {
  const Net net{sequence({5, 4, 3}), sequence({3})};
  const Array x = sequence({4});
  const auto layer = [](const Net& n, const Array& a) {
    return std::pair(tanh(matmul(a, n.w) + n.b), Net{n.w * 2, n.b});
  };
  const auto [y, twice] = vmap(layer, {{{"w", 0}, {"b", std::nullopt}}, std::nullopt},
                               {0, {{"w", 1}, {"b", std::nullopt}}})(net, x);
  EXPECT_EQ(y.shape(), (Shape{5, 3}));
  EXPECT_EQ(twice.w.shape(), (Shape{4, 5, 3}));
  EXPECT_EQ(twice.b.shape(), (Shape{3}));
  for (int64_t i = 0; i < 5; ++i) expect_near(y[i], tanh(matmul(x, net.w[i]) + net.b));
}

TEST(Vmap, Nests) {
  const Array a = sequence({3, 4}), b = sequence({5, 4}, 2);
  const auto dot = [](const Array& x, const Array& y) { return sum(x * y); };
  const auto rows = vmap(vmap(dot, {std::nullopt, 0}), {0, std::nullopt});
  expect_near(rows(a, b), matmul(a, transpose(b)));
}

TEST(Vmap, PerExampleGradients) {
  const Array w = sequence({4, 3}), xs = sequence({6, 4});
  const auto loss = [](const Array& weights, const Array& x) {
    return sum(square(tanh(matmul(x, weights))));
  };
  const Array each = vmap(grad(loss), {std::nullopt, 0})(w, xs);
  ASSERT_EQ(each.shape(), (Shape{6, 4, 3}));
  for (int64_t i = 0; i < 6; ++i) expect_near(each[i], grad(loss)(w, xs[i]));
  // Their sum is the gradient of the batch.
  const auto total = [&](const Array& weights) {
    return sum(vmap(loss, {std::nullopt, 0})(weights, xs));
  };
  expect_near(sum(each, 0), grad(total)(w), 2e-5f);
  expect_near(jit(grad(total))(w), grad(total)(w));
}

TEST(Vmap, OfScanAndInScan) {
  const Array w = sequence({5, 4, 4}), xs = sequence({3, 4});
  const auto run = [&](const Array& x) {
    return scan([](const Array& c, const Array& m) { return tanh(matmul(c, m)); }, x, w);
  };
  expect_near(vmap(run)(xs), looped(run, xs));
  // The weights differ, the carry begins alike: it is batched from the first iteration on.
  const Array ws = sequence({5, 3, 4, 4});
  const auto layers = [](const Array& m) {
    return scan([](const Array& c, const Array& k) { return std::pair(tanh(matmul(c, k)), c); },
                sequence({4}), m);
  };
  const auto [last, carries] = vmap(layers, 1)(ws);
  for (int64_t i = 0; i < 3; ++i) {
    const auto [one, its] = layers(ws.slice(1, i, i + 1).reshape({5, 4, 4}));
    expect_near(last[i], one);
    expect_near(carries[i], its);
  }
  const auto inside = [&](const Array& x) {
    return scan(
        [](const Array& c, const Array& m) {
          return vmap([&](const Array& row) { return tanh(sum(row.reshape({4, 1}) * m, 0)); })(c);
        },
        x, w);
  };
  expect_near(inside(xs), vmap(run)(xs), 1e-5f);
}

TEST(Vmap, GradientsThroughScanOnEitherSide) {
  const Array w = sequence({5, 4, 4}), xs = sequence({3, 4});
  const auto loss = [](const Array& weights, const Array& x) {
    const auto body = checkpoint(
        [](const Array& c, const Array& m) { return sin(checkpoint_name(matmul(c, m), "h")); });
    return sum(scan(body, x, weights));
  };
  const Array each = vmap(grad(loss), {std::nullopt, 0})(w, xs);
  for (int64_t i = 0; i < 3; ++i) expect_near(each[i], grad(loss)(w, xs[i]), 1e-5f);
  const auto total = [&](const Array& weights) {
    return sum(vmap(loss, {std::nullopt, 0})(weights, xs));
  };
  expect_near(grad(total)(w), sum(each, 0), 1e-5f);
}

// Forward and backward scan stay a pair, whose residuals the policy decides.
TEST(Vmap, MemoryOfAGradientIsThatOfItsExamples) {
  for (const PolicyPtr& policy : {nothing_saveable(), dots_saveable()}) {
    const auto loss = [&](const Array& x, const Array& w) {
      const auto body = checkpoint(
          [](const Array& c, const Array& m) { return sin(matmul(sin(matmul(c, m)), m)); }, policy);
      return sum(scan(body, x, w));
    };
    const Array w = Array::abstract({8, 64, 64});
    const auto temp = [&](const auto& f, Shape x) {
      return jit(f)
          .lower(Array::abstract(std::move(x)), w)
          .compile()
          .memory_analysis()
          .device()
          .temp_bytes;
    };
    const int64_t one = temp(grad(loss), {64, 64});
    EXPECT_LE(temp(vmap(grad(loss), {0, std::nullopt}), {4, 64, 64}), 4 * one + one / 2);
  }
}

TEST(Vmap, RandomBitsAreThoseOfEachKey) {
  const Array keys = random::split_array(random::key(7), 4);
  const auto draw = [](const Array& key) { return random::uniform(key, {3, 2}); };
  const Array all_of_them = vmap(draw)(keys);
  for (int64_t i = 0; i < 4; ++i)
    EXPECT_EQ(all_of_them[i].to_vector<float>(), draw(keys[i]).to_vector<float>());
}

TEST(Vmap, CapturesOuterValuesAndOtherTransforms) {
  const Array xs = sequence({3, 4}), shift = sequence({4}, 3);
  const auto f = jit([&](const Array& batch, const Array& scale) {
    const Array outer = exp(scale);
    return vmap(jit([&](const Array& x) { return x * outer + shift; }))(batch);
  });
  expect_near(f(xs, shift), xs * exp(shift) + shift, 1e-5f);
  EXPECT_EQ(vmap([](const Array& x) { return x * 2; })(Array::abstract({3, 4})).shape(),
            (Shape{3, 4}));
  EXPECT_EQ(vmap([](const Array& x) { return sum(x); })(sequence({0, 4})).shape(), (Shape{0}));
}

// Where each example takes its own branch, policies around it see the values in the branches.
TEST(Vmap, PoliciesReachIntoBranchesOfABatch) {
  const auto gradient = [](const PolicyPtr& policy) {
    const auto step = [](const Array& w, const Array& h) {
      return cond(
          h[0] > 0, [&](const Array& u) { return tanh(checkpoint_name(matmul(w, u), "product")); },
          [](const Array& u) { return sin(u); }, h);
    };
    const auto loss = [=](const Array& w, const Array& h) {
      return sum(square(checkpoint(step, policy)(w, h)));
    };
    const Array w = Array::from({.1f, -.2f, .3f, .4f}, Shape{2, 2});
    const Array h = Array::from({1.f, -2.f, -3.f, 4.f, 5.f, -6.f}, Shape{3, 2});
    return jit(vmap(grad(loss), {std::nullopt, 0}))(w, h).to_vector<float>();
  };
  const std::vector<float> want = gradient(everything_saveable());
  EXPECT_EQ(gradient(save_only_these_names({"product"})), want);
  EXPECT_EQ(gradient(save_and_offload_only_these_names({}, {"product"})), want);
  EXPECT_EQ(gradient(nullptr), want);
}

TEST(Vjp, PullsBackAnyNumberOfTimes) {
  const Array x = sequence({3}), w = sequence({3, 2});
  const auto f = [](const Array& a, const Net& n) { return Net{tanh(matmul(a, n.w)), a * n.b}; };
  const Net net{w, sequence({3}, 2)};
  const auto [y, pullback] = vjp(f, x, net);
  expect_near(y.b, x * net.b);
  for (const float scale : {1.0f, -2.0f}) {
    const Net ct{sequence({2}, scale), sequence({3}, scale)};
    const auto inner = [&](const Array& a, const Net& n) {
      const Net out = f(a, n);
      return sum(out.w * ct.w) + sum(out.b * ct.b);
    };
    const auto [dx, dnet] = pullback(ct);
    const auto [ex, enet] = grad<0, 1>(inner)(x, net);
    expect_near(dx, ex);
    expect_near(dnet.w, enet.w);
    expect_near(dnet.b, enet.b);
  }
}

TEST(Vjp, WithinATraceTheForwardWorkStandsOnce) {
  const auto twice = jit([](const Array& x) {
    const auto [y, pullback] = vjp([](const Array& a) { return sin(a); }, x);
    return std::pair(y, std::get<0>(pullback(y)) + std::get<0>(pullback(x)));
  });
  const Array x = sequence({5});
  EXPECT_EQ(count_ops(twice.lower(x).graph(), OpKind::kSin, true), 1);
  const auto [y, dx] = twice(x);
  expect_near(dx, (sin(x) + x) * cos(x));
}

TEST(Grad, ByPathCostsOnlyThePath) {
  const std::vector<Net> layers = {{sequence({4, 4}), sequence({4})},
                                   {sequence({4, 4}, 2), sequence({4})}};
  const auto loss = [](const std::vector<Net>& net, const Array& x) {
    Array h = x;
    for (const Net& n : net) h = sin(matmul(h, n.w) + n.b);
    return sum(h);
  };
  const Array x = sequence({3, 4});
  const std::vector<Net> whole = grad(loss)(layers, x);
  const std::map<std::string, Array> some = grad_by_path({"1/w", "*/b"}, loss)(layers, x);
  ASSERT_EQ(some.size(), 3u);
  expect_near(some.at("1/w"), whole[1].w);
  expect_near(some.at("0/b"), whole[0].b);
  const auto [value, last] = value_and_grad_by_path({"1"}, loss)(layers, x);
  EXPECT_FLOAT_EQ(value.item<float>(), loss(layers, x).item<float>());
  expect_near(last.at("1/b"), whole[1].b);
  // The gradient of the last layer alone goes through no product.
  const Graph g = jit(grad_by_path({"1/b"}, loss)).lower(layers, x).graph();
  EXPECT_EQ(count_ops(g, OpKind::kDotGeneral, true), 2);
  const std::vector<Net> merged = replace_leaves(layers, some);
  expect_near(merged[1].w, whole[1].w);
  expect_near(merged[0].w, layers[0].w);
}

TEST(Grad, AuxIntegersAndHigherOrders) {
  const auto f = [](const Array& x) { return std::pair(sum(x * x * x), x + 1); };
  const Array x = sequence({3});
  const auto [g, aux] = grad_aux(f)(x);
  expect_near(g, x * x * 3);
  expect_near(aux, x + 1);
  const auto cube = [](const Array& a) { return sum(a * a * a); };
  expect_near(hessian(cube)(x), diagonal(x * 6));
  const auto square_of = [](const Array& a) { return stack({a * a, sin(a)}); };
  const Array j = jacrev(square_of)(x);
  ASSERT_EQ(j.shape(), (Shape{2, 3, 3}));
  expect_near(j[0], diagonal(x * 2));
  expect_near(j[1], diagonal(cos(x)));
}

// ---- custom_vjp ----

// A clipped gradient: what JAX's documentation shows.
auto clipped(float bound) {
  return custom_vjp([](const Array& x) { return x * x; },
                    [](const Array& x) { return std::pair(x * x, x); },
                    [bound](const Array& x, const Array& ct) {
                      return std::tuple(clip(ct * 2 * x, -bound, bound));
                    });
}

TEST(CustomVjp, TheRuleStandsInForTheGradient) {
  const Array x = Array::from({0.1f, 3.0f, -4.0f});
  const auto loss = [](const Array& a) { return sum(clipped(1)(a)); };
  EXPECT_THAT(grad(loss)(x).to_vector<float>(), ElementsAre(FloatNear(0.2f, 1e-6f), 1, -1));
  EXPECT_THAT(jit(grad(loss))(x).to_vector<float>(), ElementsAre(FloatNear(0.2f, 1e-6f), 1, -1));
  EXPECT_FLOAT_EQ(loss(x).item<float>(), jit(loss)(x).item<float>());
  // Without differentiation the rules leave nothing behind.
  EXPECT_EQ(jit(loss).lower(x).compile().executable().input_types().size(), 1u);
}

TEST(CustomVjp, UnderVmapScanAndCheckpoint) {
  const Array xs = sequence({3, 4}, 4);
  const auto loss = [](const Array& x) { return sum(clipped(0.5f)(sin(x))); };
  expect_near(vmap(grad(loss))(xs), looped(grad(loss), xs));
  const auto total = [](const Array& batch) { return sum(vmap(clipped(0.5f))(sin(batch))); };
  expect_near(grad(total)(xs), looped(grad(loss), xs));
  const auto scanned = [&](const Array& x) {
    return sum(
        scan(checkpoint([](const Array& c, const Array& y) { return clipped(2)(c * y); }), x, xs));
  };
  const auto unrolled = [&](const Array& x) {
    Array c = x;
    for (int64_t i = 0; i < 3; ++i) c = clipped(2)(c * xs[i]);
    return sum(c);
  };
  const Array x = sequence({4}, 2);
  expect_near(grad(scanned)(x), grad(unrolled)(x), 1e-5f);
}

// The cotangent of what all examples share is the sum of theirs, a constant one too.
TEST(CustomVjp, UnderVmapSharedArgumentsGetTheSum) {
  const auto f = custom_vjp([](const Array& w, const Array& x) { return w * x; },
                            [](const Array& w, const Array& x) { return std::pair(w * x, None{}); },
                            [](None, const Array&) {
                              return std::tuple(Array(1.0f) * ones({}), Array(2.0f) * ones({}));
                            });
  const auto loss = [&](const Array& w, const Array& xs) {
    return sum(vmap(f, {std::nullopt, 0})(w, xs));
  };
  const auto [dw, dx] = grad<0, 1>(loss)(ones({}), sequence({5}));
  EXPECT_FLOAT_EQ(dw.item<float>(), 5);
  EXPECT_THAT(dx.to_vector<float>(), ElementsAre(2, 2, 2, 2, 2));
}

// What stands for the cotangent of an integer lies where the integer does.
TEST(CustomVjp, IntegersOnTheHostHaveNoGradient) {
  const auto scaled = custom_vjp(
      [](const Array& x, const Array& n) { return x * device_put(n, MemoryKind::kDevice); },
      [](const Array& x, const Array& n) {
        const Array factor = device_put(n, MemoryKind::kDevice).astype(DType::kF32);
        return std::pair(x * factor, factor);
      },
      [](const Array& factor, const Array& g) { return std::pair(g * factor, Array()); });
  const Array x = Array::from({1.0f, 2.0f}),
              n = device_put(Array::from({3, 4}), MemoryKind::kPinnedHost);
  const auto f = [&](const Array& a) { return sum(scaled(a, n)); };
  EXPECT_THAT(grad(f)(x).to_vector<float>(), ElementsAre(3, 4));
  EXPECT_THAT(jit(grad(f))(x).to_vector<float>(), ElementsAre(3, 4));
}

// So is that of what lies on the host, which is summed on the device.
TEST(CustomVjp, UnderVmapSharedArgumentsOnTheHostGetTheSum) {
  const auto f = custom_vjp(
      [](const Array& w, const Array& x) { return device_put(w, MemoryKind::kDevice) * x; },
      [](const Array& w, const Array& x) {
        return std::pair(device_put(w, MemoryKind::kDevice) * x, x);
      },
      [](const Array& x, const Array& ct) {
        return std::tuple(device_put(ct * x, MemoryKind::kPinnedHost), ct);
      });
  const auto loss = [&](const Array& w, const Array& xs) {
    return sum(vmap(f, {std::nullopt, 0})(w, xs));
  };
  const Array w = device_put(sequence({3}), MemoryKind::kPinnedHost), xs = sequence({5, 3});
  const auto [dw, dx] = jit(grad<0, 1>(loss))(w, xs);
  EXPECT_EQ(dw.type().kind, MemoryKind::kPinnedHost);
  expect_near(device_put(dw, MemoryKind::kDevice), sum(xs, {0}));
}

TEST(CustomVjp, SecondDerivativesGoThroughTheRules) {
  // The backward rule says the slope of f is x^3, so the second derivative is 3 x^2.
  const auto f = custom_vjp([](const Array& x) { return sin(x); },
                            [](const Array& x) { return std::pair(sin(x), x); },
                            [](const Array& x, const Array& ct) { return ct * x * x * x; });
  const auto first = grad([&](const Array& x) { return f(x); });
  EXPECT_FLOAT_EQ(first(Array(2.0f)).item<float>(), 8);
  EXPECT_FLOAT_EQ(grad(first)(Array(2.0f)).item<float>(), 12);
}

TEST(CustomVjp, TreesIntegersAndZeros) {
  const auto f = custom_vjp(
      [](const Net& n, const Array& index) { return n.w[0] * 2 + index.astype(DType::kF32); },
      [](const Net& n, const Array& index) {
        return std::pair(n.w[0] * 2 + index.astype(DType::kF32), n.b);
      },
      [](const Array&, const Array& ct) {
        return std::tuple(Net{broadcast_to(ct, {3}), {}}, Array());
      });
  const Net net{sequence({3}), sequence({2})};
  const auto loss = [&](const Net& n) { return f(n, Array::scalar(3, DType::kI32)); };
  const Net g = grad(loss)(net);
  EXPECT_THAT(g.w.to_vector<float>(), ElementsAre(1, 1, 1));
  EXPECT_THAT(g.b.to_vector<float>(), ElementsAre(0, 0));
}

}  // namespace
}  // namespace stow
