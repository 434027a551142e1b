// custom_jvp under every transform, and linear functions of tangents and their transposes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/base/inside.h"
#include "stowage/ir/schedule.h"
#include "stowage/stowage.h"
#include "tests/support/derivative_kit.h"

namespace stow {
namespace {

using ::testing::ElementsAre;

// sin(a) b with a derivative that is three times the real one, to be told from it.
auto tripled() {
  return custom_jvp([](const Array& a, const Array& b) { return sin(a) * b; },
                    [](const auto& primals, const auto& tangents) {
                      const auto& [a, b] = primals;
                      const auto& [da, db] = tangents;
                      return std::pair(sin(a) * b, 3 * (cos(a) * b * da + sin(a) * db));
                    });
}
Array plain(const Array& a, const Array& b) {
  return sin(a) * b;
}

TEST(CustomJvp, CountsInEveryDerivative) {
  const auto f = tripled();
  const Array a = uniform(1, {4}), b = uniform(2, {4}), da = uniform(3, {4}), db = uniform(4, {4});
  expect_near(f(a, b), plain(a, b));
  const auto [y, dy] = jvp(f, std::tuple(a, b), std::tuple(da, db));
  expect_near(y, plain(a, b));
  expect_near(dy, 3 * jvp(plain, std::tuple(a, b), std::tuple(da, db)).second);
  const auto loss = [](auto g) {
    return [g](const Array& x, const Array& w) { return sum(g(x, w) * arange(4)); };
  };
  const auto [ga, gb] = grad<0, 1>(loss(f))(a, b);
  const auto [wa, wb] = grad<0, 1>(loss(plain))(a, b);
  expect_near(ga, 3 * wa);
  expect_near(gb, 3 * wb);
  expect_near(jit(grad(loss(f)))(a, b), 3 * wa);
  expect_near(jacfwd(f)(a, b), 3 * jacfwd(plain)(a, b));
  expect_near(jacrev(f)(a, b), jacfwd(f)(a, b));
}

TEST(CustomJvp, IsDifferentiatedAgainByItsRule) {
  const auto f = tripled();
  const Array a = uniform(1, {3}), b = uniform(2, {3});
  const auto of_f = [&](const Array& x) { return sum(f(x, b)); };
  const auto of_plain = [&](const Array& x) { return sum(plain(x, b)); };
  expect_near(hessian(of_f)(a), 3 * hessian(of_plain)(a));
  expect_near(jacfwd(grad(of_f))(a), hessian(of_f)(a));
  expect_near(jacfwd(jacfwd(of_f))(a), hessian(of_f)(a));
  const auto third = [](auto g) {
    return grad([g](const Array& x) { return sum(grad([&](const Array& z) {
                                               return sum(grad(g)(z));
                                             })(x)); });
  };
  expect_near(third(of_f)(a), 3 * third(of_plain)(a));
}

TEST(CustomJvp, InLoopsBatchesAndRegions) {
  const auto f = tripled();
  const Array a = uniform(1, {5, 3}), b = uniform(2, {3});
  const auto by_scan = [&](const Array& xs, const Array& w) {
    const auto step = [&](const Array& c, const Array& x) {
      return std::pair(f(c + x, w), None{});
    };
    return sum(scan(step, zeros_like(w), xs).first);
  };
  const auto unrolled = [&](const Array& xs, const Array& w) {
    Array c = zeros_like(w);
    for (int i = 0; i < 5; ++i) c = f(c + xs[i], w);
    return sum(c);
  };
  expect_near(grad(by_scan)(a, b), grad(unrolled)(a, b), 2e-3f);
  expect_near(jit(grad<1>(by_scan))(a, b), grad<1>(unrolled)(a, b), 2e-3f);
  expect_near(jvp(by_scan, std::tuple(a, b), std::tuple(a, b)).second,
              jvp(unrolled, std::tuple(a, b), std::tuple(a, b)).second, 2e-3f);

  const auto loss = [](auto g) {
    return [g](const Array& x, const Array& w) { return sum(square(g(x, w))); };
  };
  const VmapAxes rows = {0, std::nullopt};
  expect_near(vmap(f, rows)(a, b), vmap(plain, rows)(a, b));
  expect_near(vmap(grad<1>(loss(f)), rows)(a, b), 3 * vmap(grad<1>(loss(plain)), rows)(a, b),
              1e-4f);
  expect_near(grad<1>(loss(vmap(f, rows)))(a, b), 3 * grad<1>(loss(vmap(plain, rows)))(a, b),
              1e-4f);
  const auto twice = [f](const Array& x, const Array& w) { return f(f(x, w), w); };
  expect_near(jit(grad(loss(checkpoint(twice))))(a[0], b), grad(loss(twice))(a[0], b));
}

// A rule whose tangent goes through a scan and a cond beside primal values that these save.
TEST(CustomJvp, RuleMayHoldLoopsBranchesAndJvp) {
  const auto powers = [](const Array& x) {
    const auto step = [&](const Array& c, const Array& i) { return std::pair(c * x + i, None{}); };
    return scan(step, x, arange(3)).first;
  };
  const auto by_scan = [](const auto& primals, const auto& tangents) {
    const Array x = std::get<0>(primals), dx = std::get<0>(tangents);
    const auto step = [&](const std::pair<Array, Array>& c, const Array& i) {
      return std::pair(std::pair(c.first * x + i, c.second * x + c.first * dx), None{});
    };
    return scan(step, std::pair(x, dx), arange(3)).first;
  };
  const auto by_cond = [&](const auto& primals, const auto& tangents) {
    return cond(
        sum(std::get<0>(primals)) > 0, [&] { return by_scan(primals, tangents); },
        [&] { return jvp(powers, primals, tangents); });
  };
  const Array x = uniform(7, {4}), v = uniform(8, {4});
  for (const Array& at : {x, -x}) {
    const Array want = grad([&](const Array& a) { return sum(powers(a) * v); })(at);
    const auto loss = [&](auto f) { return [&, f](const Array& a) { return sum(f(a) * v); }; };
    expect_near(grad(loss(custom_jvp(powers, by_scan)))(at), want, 1e-4f);
    expect_near(jit(grad(loss(custom_jvp(powers, by_cond))))(at), want, 1e-4f);
    expect_near(jvp(custom_jvp(powers, by_cond), std::tuple(at), std::tuple(v)).second,
                jvp(powers, std::tuple(at), std::tuple(v)).second, 1e-4f);
  }
}

TEST(CustomJvp, RulesByArgument) {
  const auto f =
      defjvps([](const Array& a, const Array& b, const Array&) { return sin(a) * b; },
              std::tuple([](const Array& da, const Array&, const Array& a, const Array& b,
                            const Array&) { return 3 * cos(a) * b * da; },
                         [](const Array& db, const Array& y, const Array&, const Array& b,
                            const Array&) { return 3 * (y / b) * db; },
                         None{}));
  const auto whole = tripled();
  const Array a = uniform(1, {4}), b = uniform(2, {4}) + 1, da = uniform(3, {4}), n = arange(4);
  const auto given = std::tuple(a, b, n);
  expect_near(jvp(f, given, std::tuple(da, a, n)).second,
              jvp(whole, std::tuple(a, b), std::tuple(da, a)).second);
  const auto loss = [&](auto g) { return [g](const auto&... x) { return sum(g(x...)); }; };
  const auto [ga, gb] = jit(grad<0, 1>(loss(f)))(a, b, n);
  const auto [wa, wb] = grad<0, 1>(loss(whole))(a, b);
  expect_near(ga, wa);
  expect_near(gb, wb);
}

TEST(CustomJvp, RulesByArgumentOfTrees) {
  using Two = std::pair<Array, Array>;
  const auto f = defjvps(
      [](const Two& p, const Array& s) { return Two(p.first * s, p.second); },
      std::tuple(None{}, [](const Array& ds, const Two&, const Two& p, const Array&) {
        return Two(p.first * ds, Array());
      }));
  const Array x = Array::from({1.0f, 2.0f});
  const auto [y, dy] = jvp(f, std::tuple(Two(x, x), x), std::tuple(Two(x, x), x));
  EXPECT_THAT(y.first.to_vector<float>(), ElementsAre(1, 4));
  EXPECT_THAT(dy.first.to_vector<float>(), ElementsAre(1, 4));
  EXPECT_THAT(dy.second.to_vector<float>(), ElementsAre(0, 0));
}

TEST(CustomJvp, TreesIntegersAndEmptyTangents) {
  using Two = std::pair<Array, Array>;
  const auto f = custom_jvp([](const Two& p, const Array& n) { return Two(p.first * n, p.second); },
                            [](const auto& primals, const auto& tangents) {
                              const auto& [p, n] = primals;
                              const auto& [dp, dn] = tangents;
                              EXPECT_EQ(dn.dtype(), DType::kI32);
                              return std::pair(Two(p.first * n, p.second),
                                               Two(dp.first * n, Array()));
                            });
  const Array x = Array::from({1.0f, 2.0f}), n = Array::from({3, 4});
  const auto [y, dy] = jvp(f, std::tuple(Two(x, x), n), std::tuple(Two(x, x), n));
  EXPECT_THAT(dy.first.to_vector<float>(), ElementsAre(3, 8));
  EXPECT_THAT(dy.second.to_vector<float>(), ElementsAre(0, 0));
  const auto g = grad([&](const Two& p) {
    const Two r = f(p, n);
    return sum(r.first) + sum(r.second);
  })(Two(x, x));
  EXPECT_THAT(g.first.to_vector<float>(), ElementsAre(3, 4));
  EXPECT_THAT(g.second.to_vector<float>(), ElementsAre(0, 0));
}

// What the transpose reads is a residual of the rule: the product is not repeated.
TEST(CustomJvp, ForwardWorkOfTheRuleIsDoneOnce) {
  const Array x = uniform(1, {4, 4});
  const auto f = custom_jvp([](const Array& m) { return matmul(m, m); },
                            [](const auto& primals, const auto& tangents) {
                              const Array m = std::get<0>(primals), y = matmul(m, m);
                              return std::pair(y, y * std::get<0>(tangents));
                            });
  const auto loss = [f](const Array& m) { return sum(square(f(m))); };
  const auto compiled = jit(grad(loss)).lower(x).compile();
  expect_near(compiled(x), 2 * square(matmul(x, x)));
  int n = 0;
  for (const Instruction& i : compiled.executable().schedule().instructions)
    if (const Kernel* kernel = i.kernel()) n += kernel->op == OpKind::kDotGeneral;
  EXPECT_EQ(n, 1);
}

TEST(Linearize, IsJvpForManyTangents) {
  const auto f = [](const Array& a, const Array& b) {
    return std::pair(tanh(matmul(a, b)), sum(a, 0));
  };
  const Array a = uniform(1, {3, 4}), b = uniform(2, {4}), da = uniform(3, {3, 4}),
              db = uniform(4, {4});
  const auto check = [&] {
    const auto [y, along] = linearize(f, a, b);
    expect_near(y.first, f(a, b).first);
    for (const double s : {1.0, -2.0}) {
      const auto dy = along(s * da, s * db);
      const auto want = jvp(f, std::tuple(a, b), std::tuple(da, db)).second;
      expect_near(dy.first, s * want.first);
      expect_near(dy.second, s * want.second);
    }
    return y.first;
  };
  check();
  const auto jitted = jit([&](const Array& x, const Array& dx) {
    const auto [y, along] = linearize([&](const Array& v) { return sin(v) * b; }, x);
    return vmap(along)(stack({dx, 2 * dx}));
  });
  expect_near(jitted(b, db)[1], 2 * cos(b) * b * db);
}

TEST(LinearTranspose, OfProductsLoopsAndAbstractArguments) {
  const Array w = uniform(1, {3, 4}), ct = uniform(2, {3}), x = uniform(3, {4});
  const auto times = [&](const Array& v) { return matmul(w, v); };
  const auto [back] = linear_transpose(times, Array::abstract({4}))(ct);
  expect_near(back, matmul(ct, w));
  const auto decay = [&](const Array& v, const std::vector<Array>& more) {
    return scan(
               [&](const Array& c, const Array& row) { return std::pair(c * row[0] + more[0], c); },
               v, w)
        .second;
  };
  const auto transpose = linear_transpose(decay, x, std::vector{x});
  const Array y = uniform(4, {3, 4});
  const auto [dv, dmore] = transpose(y);
  EXPECT_NEAR(sum(decay(x, {ct[0] + x}) * y).item<float>(),
              (sum(dv * x) + sum(dmore[0] * (ct[0] + x))).item<float>(), 1e-4);
  // A transpose of a transpose is the function.
  const auto again = [&](const Array& c) { return std::get<0>(linear_transpose(times, x)(c)); };
  expect_near(std::get<0>(linear_transpose(again, ct)(x)), times(x));
}

TEST(Jacobians, OfScalarsAndMatrices) {
  const Array x = uniform(5, {3});
  const auto f = [](const Array& v) { return outer(v * v, sin(v)); };
  expect_near(jacobian(f)(x), jacfwd(f)(x));
  ASSERT_EQ(hessian(f)(x).shape(), (Shape{3, 3, 3, 3}));
  expect_near(hessian(f)(x), jacfwd(jacfwd(f))(x));
  const auto g = [](const Array& v) { return prod(v) + sum(exp(v)); };
  expect_near(jacrev(g)(x), grad(g)(x));
  expect_near(hessian(g)(x), jacrev(grad(g))(x));
}

}  // namespace
}  // namespace stow
