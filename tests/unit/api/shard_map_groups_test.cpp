// Groups within an axis (axis_index_groups), and bodies that are manual over some axes
// (axis_names).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "stowage/stowage.h"
#include "tests/support/message_of.h"
#include "tests/support/shard_map_kit.h"

namespace stow {
namespace {

using sharding::Mesh;
using sharding::P;
using ::testing::HasSubstr;

// The gradient of a loss of f(x) against finite differences of it.
void expect_gradient(const std::function<Array(const Array&)>& f, const Array& x) {
  const auto loss = [&](const Array& a) {
    const Array y = f(a);
    const Array weights = cos(reshape(arange(0, static_cast<int64_t>(y.size()), 1, DType::kF64),
                                      Dims(y.shape().begin(), y.shape().end())));
    return sum(y * y * weights);
  };
  const auto value = jit(loss);
  const std::vector<double> g = values(jit(grad(loss))(x));
  std::vector<double> at = values(x);
  for (size_t i = 0; i < at.size(); i += 5) {
    const double before = at[i], h = 1e-5;
    at[i] = before + h;
    const double up = value(Array::from(at, x.shape(), DType::kF64)).item<double>();
    at[i] = before - h;
    const double down = value(Array::from(at, x.shape(), DType::kF64)).item<double>();
    at[i] = before;
    ASSERT_NEAR(g[i], (up - down) / (2 * h), 1e-6 * (1 + std::abs(g[i]))) << "element " << i;
  }
}

// ---- axis_index_groups ----

const AxisIndexGroups kHalves = {{0, 1}, {2, 3}}, kCrossed = {{3, 0}, {1, 2}};

TEST(AxisIndexGroups, DivideTheGroupOfEachCollective) {
  const Mesh mesh = mesh_of({4}, {"x"});
  const auto run = [&](const std::function<Array(const Array&)>& body, const Array& x) {
    return shard_map(body, mesh, P("x"), P("x"))(x);
  };
  const Array x = ramp({4, 3});  // a row a position
  const std::vector<double> v = values(x);
  const auto rows = [&](const std::vector<std::vector<double>>& list) {
    std::vector<double> all;
    for (const std::vector<double>& row : list) all.insert(all.end(), row.begin(), row.end());
    return Array::from(all,
                       {static_cast<int64_t>(list.size()), static_cast<int64_t>(list[0].size())},
                       DType::kF32);
  };
  const auto row = [&](size_t i) {
    return std::vector<double>(v.begin() + 3 * i, v.begin() + 3 * i + 3);
  };
  const auto both = [&](size_t i, size_t k, auto f) {
    std::vector<double> a = row(i);
    for (size_t c = 0; c < 3; ++c) a[c] = f(a[c], row(k)[c]);
    return a;
  };
  const auto plus = [](double a, double b) { return a + b; };
  const auto most = [](double a, double b) { return std::max(a, b); };
  expect_near(run([](const Array& a) { return psum(a, "x", kHalves); }, x),
              rows({both(0, 1, plus), both(0, 1, plus), both(2, 3, plus), both(2, 3, plus)}));
  expect_near(run([](const Array& a) { return pmax(a, "x", kCrossed); }, x),
              rows({both(0, 3, most), both(1, 2, most), both(1, 2, most), both(0, 3, most)}));
  expect_near(run([](const Array& a) { return pmean(a, "x", kHalves); }, x) * 2.0f,
              rows({both(0, 1, plus), both(0, 1, plus), both(2, 3, plus), both(2, 3, plus)}));
  // By place in the group's list: position 3 comes first.
  const Array gathered = run(
      [](const Array& a) {
        return all_gather(a, "x", {.tiled = true, .axis_index_groups = kCrossed});
      },
      x);
  expect_near(gathered, rows({row(3), row(0), row(1), row(2), row(1), row(2), row(3), row(0)}), 0);
  // Rows in pairs: the first to place 0 of the group, the second to place 1.
  const Array pairs = ramp({8, 3});
  const std::vector<double> w = values(pairs);
  const Array scattered = run(
      [](const Array& a) {
        return psum_scatter(a, "x", {.tiled = true, .axis_index_groups = kCrossed});
      },
      pairs);
  const auto pair_sum = [&](size_t i, size_t k) {
    std::vector<double> a;
    for (size_t c = 0; c < 3; ++c) a.push_back(w[3 * i + c] + w[3 * k + c]);
    return a;
  };
  // Position p holds rows 2 p and 2 p + 1. Of {3, 0}: 3 gets the first, 0 the second rows' sum.
  expect_near(scattered, rows({pair_sum(7, 1), pair_sum(2, 4), pair_sum(3, 5), pair_sum(6, 0)}));
  const Array sent = run(
      [](const Array& a) {
        return all_to_all(a, "x", 0, 0, {.tiled = true, .axis_index_groups = kHalves});
      },
      pairs);
  const auto of = [&](size_t i) {
    return std::vector<double>(w.begin() + 3 * i, w.begin() + 3 * i + 3);
  };
  expect_near(sent, rows({of(0), of(2), of(1), of(3), of(4), of(6), of(5), of(7)}), 0);
}

TEST(AxisIndexGroups, OfOnePositionChangeNothingAndOfAllAreNone) {
  const Mesh mesh = mesh_of({4}, {"x"});
  const Array x = ramp({8, 3});
  const auto run = [&](const AxisIndexGroups& groups) {
    return shard_map([&](const Array& a) { return psum(a, "x", groups); }, mesh, P("x"), P("x"))(x);
  };
  expect_near(run({{0}, {1}, {2}, {3}}), x, 0);
  expect_near(run({{0, 1, 2, 3}}), run({}), 0);
  // One group in another order is gathered in that.
  const Array turned = shard_map(
      [](const Array& a) {
        return all_gather(a, "x", {.tiled = true, .axis_index_groups = {{3, 2, 1, 0}}});
      },
      mesh, P("x"), P())(ramp({4, 3}));
  expect_near(turned, flip(ramp({4, 3}), 0), 0);
}

TEST(AxisIndexGroups, GoOverSeveralAxesMajorFirst) {
  const Mesh mesh = mesh_of({2, 2}, {"x", "y"});
  const Array x = ramp({4, 3});
  const AxisNames both = {"x", "y"};
  const auto f = shard_map([&](const Array& a) { return psum(a, both, {{0, 2}, {1, 3}}); }, mesh,
                           P(P::Axes{"x", "y"}), P(P::Axes{"x", "y"}));
  const auto g = shard_map([&](const Array& a) { return psum(a, "x"); }, mesh, P(P::Axes{"x", "y"}),
                           P(P::Axes{"x", "y"}));
  expect_near(f(x), g(x), 0);
}

TEST(AxisIndexGroups, HaveGradients) {
  const Mesh mesh = mesh_of({4}, {"x"});
  const auto weighted = [](const Array& y) {  // differs between positions
    return y * (astype(axis_index("x"), DType::kF64) + 1.0);
  };
  for (const AxisIndexGroups& groups : {kHalves, kCrossed}) {
    const std::vector<std::pair<const char*, std::function<Array(const Array&)>>> cases = {
        {"psum", [&](const Array& a) { return weighted(psum(weighted(sin(a)), "x", groups)); }},
        {"pmax", [&](const Array& a) { return weighted(pmax(sin(a), "x", groups)); }},
        {"all_gather",
         [&](const Array& a) {
           return weighted(
               all_gather(weighted(sin(a)), "x", {.tiled = true, .axis_index_groups = groups}));
         }},
        {"psum_scatter",
         [&](const Array& a) {
           return weighted(
               psum_scatter(weighted(sin(a)), "x", {.tiled = true, .axis_index_groups = groups}));
         }},
        {"all_to_all",
         [&](const Array& a) {
           return weighted(all_to_all(weighted(sin(a)), "x", 1, 0,
                                      {.tiled = true, .axis_index_groups = groups}));
         }},
    };
    for (const auto& [name, body] : cases) {
      SCOPED_TRACE(name);
      expect_gradient(shard_map(body, mesh, P("x"), P("x")), ramp({8, 4}, DType::kF64, 0.013));
    }
  }
}

TEST(AxisIndexGroups, AreRefusedAsJaxDoes) {
  const Mesh mesh = mesh_of({4}, {"x"});
  const auto error = [&](const AxisIndexGroups& groups, const P& out = P("x")) {
    return message_of([&] {
      shard_map([&](const Array& a) { return psum(a, "x", groups); }, mesh, P("x"),
                out)(ramp({4, 2}));
    });
  };
  EXPECT_THAT(error({{0, 1}, {2}}),
              HasSubstr("[psum] expected axis_index_groups of one size, got groups of 2 and 1"));
  EXPECT_THAT(
      error({{0, 1}, {1, 3}}),
      HasSubstr(
          "[psum] expected axis_index_groups that hold each index over 'x', 0 to 3, once, got "
          "[[0, 1], [1, 3]]"));
  EXPECT_THAT(error({{0, 1}}), HasSubstr("hold each index over 'x', 0 to 3, once"));
  EXPECT_THAT(error({{0, 1}, {2, 4}}), HasSubstr("hold each index over 'x', 0 to 3, once"));
  EXPECT_THAT(error({{}}), HasSubstr("hold each index over 'x', 0 to 3, once"));
  // Each group has a sum of its own.
  EXPECT_THAT(error(kHalves, P()),
              HasSubstr("expected a result that is the same along mesh axis 'x'"));
}

// ---- axis_names ----

TEST(AxisNames, LeaveTheOtherAxesToThePartitioner) {
  const Mesh mesh = mesh_of({2, 2}, {"x", "y"});
  const Array a = ramp({8, 16}), b = ramp({16, 12});
  Shape seen;
  const auto f = shard_map(
      [&](const Array& p, const Array& q) {
        seen = p.shape();
        return psum(matmul(p, q), "x");
      },
      mesh, {P(nullptr, "x"), P("x")}, P(), {.axis_names = {"x"}});
  expect_near(f(a, b), matmul(a, b));
  EXPECT_EQ(seen, (Shape{8, 8})) << "whole along y";
  // Rows lie over y: they stay there, and nothing is gathered.
  const auto program = jit([&](const Array& p, const Array& q) { return f(sin(p), q) * 2.0f; });
  const Array over_y = device_put(a, NamedSharding(mesh, P("y", "x")));
  const Array over_x = device_put(b, NamedSharding(mesh, P("x")));
  const Array c = program(over_y, over_x);
  expect_near(c, matmul(sin(a), b) * 2.0f);
  EXPECT_EQ(addressable_shards(c)[0].data.shape(), (Shape{4, 12}));
  for (const auto& count : program.lower(over_y, over_x).compile().sharding_report().collectives)
    EXPECT_NE(count.op, ir::OpKind::kAllGather);
}

TEST(AxisNames, AreHeldThroughLoopsAndCollectives) {
  const Mesh mesh = mesh_of({2, 2}, {"x", "y"});
  const Array x = ramp({8, 4}), w = ramp({3, 4, 4}, DType::kF32, 0.003);
  const auto body = [](const Array& part, const Array& weights) {
    const auto [last, none] = scan(
        [](const Array& carry, const Array& v) {
          const Array next = tanh(matmul(carry, v));
          return std::pair(next + pmean(next, "x") * 0.5f, sum(next));
        },
        part, weights);
    return last + astype(axis_index("x"), DType::kF32);
  };
  const auto partly = shard_map(body, mesh, {P("x"), P()}, P("x"), {.axis_names = {"x"}});
  const auto fully = shard_map(body, mesh_of({2}, {"x"}), {P("x"), P()}, P("x"));
  for (const P& lies : {P("x"), P(P::Axes{"x", "y"}), P("y", "x"), P(nullptr, "y")})
    expect_near(jit(partly)(device_put(x, NamedSharding(mesh, lies)), w), fully(x, w));
}

TEST(AxisNames, HaveGradients) {
  const Mesh mesh = mesh_of({2, 2}, {"x", "y"});
  const Array scale = ramp({4}, DType::kF64, 0.02);
  const auto body = [&](const Array& a) {
    const Array own = sin(a) * (astype(axis_index("x"), DType::kF64) + 1.0) * scale;
    return psum(own * own, "x") + all_gather(own, "x", {.axis = 1, .tiled = true}).slice(1, 0, 4);
  };
  const auto f = shard_map(body, mesh, P("x"), P(), {.axis_names = {"x"}});
  const auto fully = shard_map(body, mesh_of({2}, {"x"}), P("x"), P());
  const Array x = ramp({8, 4}, DType::kF64, 0.013);
  expect_gradient(f, x);
  for (const P& lies : {P(P::Axes{"x", "y"}), P("x", "y"), P("y")}) {
    const auto g = [&](const Array& a) {
      return f(with_sharding_constraint(a, NamedSharding(mesh, lies)));
    };
    expect_near(jit(g)(x), fully(x), 1e-12);
    expect_gradient(g, x);
  }
  // A captured array is one along y: its cotangent is summed over x alone.
  const Array v = ramp({4}, DType::kF64, 0.05);
  expect_gradient(
      [&](const Array& captured) {
        return shard_map([&](const Array& a) { return psum(sin(a) * captured, "x"); }, mesh, P("x"),
                         P(), {.axis_names = {"x"}})(x);
      },
      v);
}

TEST(AxisNames, AreRefusedWhereTheyDoNotFit) {
  const Mesh mesh = mesh_of({2, 2}, {"x", "y"});
  const auto error = [&](std::vector<std::string> names, const P& in,
                         const std::function<Array(const Array&)>& body) {
    return message_of([&] {
      shard_map(body, mesh, in, P(), {.axis_names = std::move(names)})(ramp({4, 4}));
    });
  };
  const auto sum_over = [](const char* name) {
    return [name](const Array& a) { return psum(a, name); };
  };
  EXPECT_THAT(error({"z"}, P(), sum_over("x")),
              HasSubstr("[shard_map] expected axis_names of the mesh, 'x' or 'y', got 'z'"));
  EXPECT_THAT(error({"x", "x"}, P(), sum_over("x")),
              HasSubstr("[shard_map] axis_names name 'x' twice"));
  EXPECT_THAT(
      error({"x"}, P("x", "y"), sum_over("x")),
      HasSubstr(
          "expected in_specs to name axes of axis_names, 'x', got P('x', 'y'); 'y' is automatic"));
  EXPECT_THAT(
      error({"x"}, P("x"), sum_over("y")),
      HasSubstr("[psum] expected a mesh axis that axis_names of the shard_map has, got 'y'"));
  EXPECT_THAT(error({"x"}, P("x"), [](const Array& a) { return a; }),
              HasSubstr("expected a result that is the same along mesh axis 'x'"));
}

}  // namespace
}  // namespace stow
