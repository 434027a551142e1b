// Forward-mode derivatives beside what reverse mode and hand calculation give.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/stowage.h"
#include "tests/support/derivative_kit.h"

namespace stow {
namespace {

using ::testing::ElementsAre;

Array product_sum(const Array& a, const Array& b) {
  return sum(a * b);
}

using Function = std::function<Array(const Array&)>;

// One of each kind of derivative: products, order, places, loops, branches, regions, attention.
std::vector<std::pair<const char*, Function>> functions() {
  return {
      {"softmax", [](const Array& m) { return softmax(matmul(m, m)); }},
      {"sort", [](const Array& m) { return sort(m, 0) * cummax(m, 1) + cumprod(m, 0); }},
      {"places",
       [](const Array& m) {
         const Array i = Array::from({0, 0, 3}), j = Array::from({1, 1});
         return m.index({i}) * m.at({j}).add(square(m.slice(0, 0, 2))).index({i + 1});
       }},
      {"scan",
       [](const Array& m) {
         return scan(
                    [&](const Array& c, const Array& row) {
                      return std::pair(tanh(c * row + m[0]), c * row[0]);
                    },
                    m[1], m)
             .second;
       }},
      {"fori",
       [](const Array& m) {
         return fori_loop(
             0, 4,
             [](const Array& i, const Array& c) {
               return c.at({i}).set(sin(c.index({i}) * c.index({i + 1})));
             },
             m);
       }},
      {"cond",
       [](const Array& m) {
         return cond(
             m.index({0, 0}) > 0, [](const Array& x) { return x * x * x; },
             [](const Array& x) { return exp(x); }, m);
       }},
      {"checkpoint",
       [](const Array& m) {
         return checkpoint([](const Array& x) { return matmul(sin(x), x); })(m);
       }},
      {"attention",
       [](const Array& m) {
         const Array q = m.reshape({1, 5, 1, 5});
         return attention(q, q * 2, q + 1, {.causal = true});
       }},
      {"windows", [](const Array& m) { return reduce_window_max(m * m, {2, 2}); }},
      {"conv",
       [](const Array& m) {
         const Array image = m.reshape({1, 1, 5, 5});
         return conv(image, image.slice(2, 0, 2).slice(3, 0, 3), {2, 1}, "SAME");
       }},
      {"where", [](const Array& m) { return where(m > 0, sqrt(abs(m)), 0.0); }},
  };
}

TEST(Jvp, IsTheTransposeOfTheGradient) {
  const Array m = uniform(1, {5, 5}), t = uniform(2, {5, 5});
  for (const auto& [name, f] : functions()) {
    SCOPED_TRACE(name);
    const auto [y, dy] = jvp(f, std::tuple(m), std::tuple(t));
    expect_near(y, f(m));
    ASSERT_EQ(dy.type(), y.type());
    // <ct, J t> = <J' ct, t>
    const Array ct = uniform(3, y.shape());
    const Array back = std::get<0>(vjp(f, m).second(ct));
    EXPECT_NEAR(product_sum(ct, dy).item<float>(), product_sum(back, t).item<float>(), 2e-4);
    const auto along = [f = f](const Array& x, const Array& v) {
      return jvp(f, std::tuple(x), std::tuple(v)).second;
    };
    expect_near(jit(along)(m, t), dy);
    expect_near(vmap(along, {std::nullopt, 0})(m, stack({t, t * 2}))[1], dy * 2, 1e-4f);
  }
}

TEST(Jvp, OfAGradientIsAHessianVectorProduct) {
  const Array x = uniform(4, {4}), v = uniform(5, {4}), w = uniform(6, {4, 4});
  const auto f = [&](const Array& a) { return sum(tanh(matmul(w, a))) * prod(a); };
  const auto [g, hv] = jvp(grad(f), std::tuple(x), std::tuple(v));
  expect_near(g, grad(f)(x));
  expect_near(hv, matmul(hessian(f)(x), v));
  expect_near(jacfwd(grad(f))(x), hessian(f)(x));
}

// Reverse over reverse mode says the same; compiled, as scans are joined with their gradients
// there.
TEST(Jvp, OfAGradientIsThatOfTheProductWithTheTangent) {
  const Array m = uniform(1, {5, 5}), t = uniform(2, {5, 5});
  for (const auto& [name, f] : functions()) {
    SCOPED_TRACE(name);
    const auto gradient = grad([f = f](const Array& x) { return sum(sin(f(x))); });
    const auto along = [&](const Array& x, const Array& v) {
      return jvp(gradient, std::tuple(x), std::tuple(v)).second;
    };
    const auto twice = grad([&](const Array& x, const Array& v) {
      return product_sum(gradient(x), v);
    });
    const Array expected = jit(twice)(m, t);
    expect_near(jit(along)(m, t), expected, 1e-4f);
    expect_near(vmap(along, {std::nullopt, 0})(m, stack({t, t * 2}))[0], expected, 1e-4f);
  }
}

// The loop of the forward work hands an order to the one that transposes it, and that one residuals
// to its own gradient; all three are recomputed.
TEST(Jvp, TransposedLoopsAreCheckpointed) {
  const auto sorted = [](const Array& x) {
    const auto body = [](const None&, const Array& row) {
      return std::pair(None{}, sum(sort(sin(row)) * row));
    };
    return scan(body, None{}, x).second;
  };
  const auto loss = [&](const Array& x) {
    const auto along = linearize(sorted, x).second;
    const auto back = linear_transpose([&](const Array& t) { return along(t); }, x);
    return sum(square(std::get<0>(back(sum(x, 1)))));
  };
  const Array x = uniform(8, {3, 4});
  expect_near(jit(grad(checkpoint(loss)))(x), jit(grad(loss))(x));
}

TEST(Jvp, TreesIntegersAndSeveralArguments) {
  using Two = std::pair<Array, Array>;
  const Array x = Array::from({1.0f, 2.0f}), i = Array::from({3, 4});
  const auto f = [](const Two& p, const Array& scale) {
    return Two(p.first * p.second * scale, p.second + 1);
  };
  const auto [y, dy] = jvp(f, std::tuple(Two(x, i), 2.0), std::tuple(Two(x, i), 1.0));
  EXPECT_THAT(y.first.to_vector<float>(), ElementsAre(6, 16));
  EXPECT_THAT(dy.first.to_vector<float>(), ElementsAre(6 + 3, 16 + 8));
  EXPECT_THAT(dy.second.to_vector<int>(), ElementsAre(0, 0));
}

TEST(Jvp, ResultsAndArgumentsOfOtherMemories) {
  const MemoryKind host = MemoryKind::kPinnedHost;
  const Array x = device_put(Array::from({1.0f, 2.0f}), host),
              i = device_put(Array::from({3, 4}), host);
  const auto f = [&](const Array& a, const Array& n) {
    const Array product =
        sin(device_put(a, MemoryKind::kDevice)) * device_put(n, MemoryKind::kDevice);
    return std::pair(device_put(product, host), device_put(n, host));
  };
  const auto [y, dy] = jvp(f, std::tuple(x, i), std::tuple(x, i));
  EXPECT_EQ(dy.first.type().kind, host);
  EXPECT_EQ(dy.second.type(), i.type());
  expect_near(device_put(dy.first, MemoryKind::kDevice),
              Array::from({3 * std::cos(1.0f), 8 * std::cos(2.0f)}));
  EXPECT_THAT(dy.second.to_vector<int>(), ElementsAre(0, 0));
}

TEST(Jvp, OuterDerivativesAreNotConfused) {
  const Array x = Array::scalar(1.5f, DType::kF32);
  // d/dx of x * d/dy (x y) = d/dx x^2
  const auto f = [](const Array& a) {
    return a * jvp([&](const Array& y) { return a * y; }, std::tuple(a), std::tuple(1.0)).second;
  };
  EXPECT_FLOAT_EQ(grad(f)(x).item<float>(), 3.0f);
  EXPECT_FLOAT_EQ(jvp(f, std::tuple(x), std::tuple(1.0)).second.item<float>(), 3.0f);
}

TEST(Jvp, JacfwdIsJacrev) {
  const auto f = [](const Array& x) { return outer(sin(x), x) * sum(x); };
  const Array x = uniform(9, {3});
  ASSERT_EQ(jacfwd(f)(x).shape(), (Shape{3, 3, 3}));
  expect_near(jacfwd(f)(x), jacrev(f)(x));
  expect_near(jacrev(jacfwd(f))(x), jacfwd(jacrev(f))(x));
  EXPECT_EQ(jacfwd([](const Array& a) { return a * 2; })(zeros({0})).shape(), (Shape{0, 0}));
}

TEST(Jvp, AuxIsPassedOnAndIsNotDifferentiated) {
  using Aux = std::map<std::string, Array>;
  const auto f = [](const Array& a, const Array& b) {
    return std::pair(sin(a) * b, Aux{{"cos", cos(a)}, {"n", arange(3)}});
  };
  const auto plain = [](const Array& a, const Array& b) { return sin(a) * b; };
  const Array a = uniform(1, {3}), b = uniform(2, {3}), da = uniform(3, {3}), db = uniform(4, {3});
  const auto want = jvp(plain, std::tuple(a, b), std::tuple(da, db));
  const auto check_aux = [&](const Aux& aux) {
    expect_near(aux.at("cos"), cos(a));
    EXPECT_THAT(aux.at("n").to_vector<int>(), ElementsAre(0, 1, 2));
  };
  {
    const auto [y, dy, aux] = jvp_aux(f, std::tuple(a, b), std::tuple(da, db));
    expect_near(y, want.first);
    expect_near(dy, want.second);
    check_aux(aux);
  }
  {
    const auto [y, along, aux] = linearize_aux(f, a, b);
    expect_near(y, want.first);
    expect_near(along(2 * da, 2 * db), 2 * want.second);
    check_aux(aux);
  }
  {
    const auto [y, pullback, aux] = vjp_aux(f, a, b);
    expect_near(y, want.first);
    const auto [ga, gb] = pullback(da);
    expect_near(ga, da * cos(a) * b);
    expect_near(gb, da * sin(a));
    check_aux(aux);
  }
  // An outer derivative sees what the aux depends on.
  const auto outer_of = [&](const Array& x) {
    const auto [y, dy, aux] = jvp_aux(f, std::tuple(x, b), std::tuple(da, db));
    return sum(aux.at("cos"));
  };
  expect_near(jit(grad(outer_of))(a), -sin(a));
}

TEST(Jvp, JacobiansWithAux) {
  const auto f = [](const Array& x, double s) { return std::pair(sin(x) * x * s, sum(x)); };
  const auto plain = [](const Array& x, double s) { return sin(x) * x * s; };
  const Array x = uniform(9, {3});
  const auto [reverse, aux_reverse] = jacrev_aux(f)(x, 2.0);
  const auto [forward, aux_forward] = jit(jacfwd_aux([&](const Array& v) { return f(v, 2.0); }))(x);
  const auto [second, aux_second] = hessian_aux(f)(x, 2.0);
  expect_near(reverse, jacrev(plain)(x, 2.0));
  expect_near(forward, reverse);
  expect_near(second, hessian(plain)(x, 2.0));
  for (const Array& aux : {aux_reverse, aux_forward, aux_second}) expect_near(aux, sum(x));
}

}  // namespace
}  // namespace stow
