// Derivatives of attention of second and third order, beside those of the form that stores scores.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/stowage.h"

namespace stow {
namespace {

struct Inputs {
  Array q, k, v;
};
STOW_TREE(Inputs, q, k, v);

struct Form {
  std::string name;
  Shape q, kv;
  AttentionOptions options;
};

const std::vector<Form>& forms() {
  static const std::vector<Form> forms = {
      {"full", {2, 3, 2, 4}, {2, 5, 2, 4}, {}},
      {"grouped heads", {2, 3, 4, 4}, {2, 5, 2, 4}, {.scale = 0.7f}},
      {"causal", {1, 4, 2, 4}, {1, 4, 2, 4}, {.causal = true}},
      {"causal, more keys", {1, 3, 4, 3}, {1, 6, 1, 3}, {.causal = true}},
      {"causal, aligned last", {1, 3, 4, 3}, {1, 6, 2, 3}, {.causal = true, .align_last = true}},
      {"intervals",
       {2, 4, 4, 3},
       {2, 6, 2, 3},
       {.lo = Array::from({0, 3, -2, 4, 1, 2, 5, 0}).reshape({2, 4}),
        .hi = Array::from({6, 5, 9, 4, 2, 4, 6, 1}).reshape({2, 4})}},
      {"causal, from a key on",
       {2, 4, 2, 3},
       {2, 5, 1, 3},
       {.causal = true, .lo = Array::from({1, 0}).reshape({2, 1})}},
  };
  return forms;
}

Inputs inputs_of(const Form& f) {
  const std::vector<Array> keys = random::split(random::key(5), 3);
  return {random::normal(keys[0], f.q), random::normal(keys[1], f.kv),
          random::normal(keys[2], f.kv)};
}

// Some loss of the result: of the fused form, or in f64, whose scores are stored.
auto loss_of(const Form& f, bool stored) {
  return [&f, stored](const Inputs& x) {
    const DType dtype = stored ? DType::kF64 : x.q.dtype();
    const Array y =
        attention(astype(x.q, dtype), astype(x.k, dtype), astype(x.v, dtype), f.options);
    return sum(sin(astype(y, DType::kF32) * 2));
  };
}
template <typename F>
auto squared_gradient(F loss) {
  return [loss](const Inputs& x) {
    const Inputs g = grad(loss)(x);
    return sum(square(g.q)) + sum(square(g.k)) + sum(g.v * g.v * g.v);
  };
}

void expect_near(const Array& got, const Array& want, float error) {
  ASSERT_EQ(got.shape(), want.shape());
  const float scale = std::max(1.0f, max(abs(want)).item<float>());
  EXPECT_THAT(got.to_vector<float>(),
              ::testing::Pointwise(::testing::FloatNear(error * scale), want.to_vector<float>()));
}
void expect_near(const Inputs& got, const Inputs& want, float error) {
  expect_near(got.q, want.q, error);
  expect_near(got.k, want.k, error);
  expect_near(got.v, want.v, error);
}

TEST(AttentionDerivatives, OfSecondAndThirdOrder) {
  for (const Form& f : forms()) {
    SCOPED_TRACE(f.name);
    const Inputs x = inputs_of(f);
    const auto fused = squared_gradient(loss_of(f, false));
    const auto stored = squared_gradient(loss_of(f, true));
    expect_near(jit(grad(fused))(x), jit(grad(stored))(x), 1e-5f);
  }
  const Form& f = forms()[3];
  const Inputs x = inputs_of(f);
  const auto third = [&](bool stored) {
    return jit(grad(squared_gradient(squared_gradient(loss_of(f, stored)))));
  };
  expect_near(third(false)(x), third(true)(x), 1e-4f);
}

TEST(AttentionDerivatives, UnderVmapScanAndCheckpoint) {
  const Form& f = forms()[4];
  const Inputs x = inputs_of(f);
  const auto stacked = [](const Array& a) { return stack({a, a * 0.5f, a - 1}); };
  const Inputs xs{stacked(x.q), stacked(x.k), stacked(x.v)};
  const auto batched = [&](bool stored) {
    return jit(vmap(grad(squared_gradient(loss_of(f, stored)))));
  };
  expect_near(batched(false)(xs), batched(true)(xs), 1e-5f);
  // Queries go through attention again and again.
  const auto repeated = [&](bool stored) {
    const DType dtype = stored ? DType::kF64 : DType::kF32;
    const auto loss = [&f, dtype](const Inputs& y) {
      const auto step = checkpoint([&](const Array& q, const Array& s) {
        return q + attention(q * s, astype(y.k, dtype), astype(y.v, dtype), f.options);
      });
      const Array scales = astype(Array::from({1.0f, 0.5f}), dtype);
      return sum(astype(scan(step, astype(y.q, dtype), scales), DType::kF32));
    };
    return jit(grad(squared_gradient(loss)));
  };
  expect_near(repeated(false)(x), repeated(true)(x), 2e-5f);
}

// By the fused form, and by those that store scores.
TEST(AttentionDerivatives, OfQueriesThatSeeNothingAreZero) {
  const Form f{"", {1, 4, 2, 3}, {1, 2, 2, 3}, {.causal = true, .align_last = true}};
  Form biased = f, masked = f;
  biased.options.bias = zeros({1, 1, 4, 2});
  masked.options.mask = ones({1, 1, 4, 2}, DType::kBool);
  const Inputs x = inputs_of(f);
  const Array y = attention(x.q, x.k, x.v, f.options);
  const Inputs g = jit(grad(squared_gradient(loss_of(f, false))))(x);
  EXPECT_TRUE(all(isfinite(g.q)).item<bool>());
  EXPECT_TRUE(all(isfinite(g.k)).item<bool>());
  EXPECT_TRUE(all(isfinite(g.v)).item<bool>());
  EXPECT_TRUE(all(slice(y, 1, 0, 2) == 0).item<bool>());
  EXPECT_TRUE(all(slice(g.q, 1, 0, 2) == 0).item<bool>());
  EXPECT_FALSE(all(slice(g.q, 1, 3, 4) == 0).item<bool>());
  for (const Form& other : {f, biased, masked})
    for (const bool stored : {false, true}) {
      expect_near(attention(x.q, x.k, x.v, other.options), y, 1e-6f);
      expect_near(jit(grad(squared_gradient(loss_of(other, stored))))(x), g, 1e-5f);
    }
}

// Bounds with and without the batch, as for each example by itself.
TEST(AttentionDerivatives, OfIntervalsUnderVmap) {
  const Form f{"", {2, 3, 4, 3}, {2, 6, 2, 3}, {}};
  const Inputs x = inputs_of(f);
  const Array queries = stack({x.q, x.q * 0.5f, x.q - 1});  // [3, 2, 3, 4, 3]
  const Array lo =
      Array::from({0, 2, 4, 1, 1, 1, 3, 0, 2, 5, 2, 0, 0, 3, 1, 2, 4, 3}).reshape({3, 2, 3});
  const auto loss = [&](const Array& q, const Array& k, const Array& from, const Array& to) {
    return sum(sin(attention(q, k, x.v, {.lo = from, .hi = to})));
  };
  for (const bool batched : {false, true}) {
    const Array hi = full({2, 3}, 4, DType::kI32);
    const auto gradient = [&](const Array& q, const Array& from) {
      return grad([&](const Array& k) { return loss(q, k, batched ? from : take(lo, 0, 0), hi); })(
          x.k);
    };
    const Array together = jit(vmap(gradient))(queries, lo);
    for (int64_t i = 0; i < 3; ++i) {
      const Array alone = gradient(take(queries, i, 0), take(lo, i, 0));
      expect_near(take(together, i, 0), alone, 1e-6f);
    }
  }
}

// A bias or a mask, which have scores stored, and intervals.
TEST(AttentionDerivatives, OfIntervalsWithABias) {
  const Form& f = forms()[5];
  Form biased = f, masked = f;
  biased.options.bias = zeros({1, 1, 4, 6});
  masked.options.mask = ones({1, 1, 4, 6}, DType::kBool);
  const Inputs x = inputs_of(f);
  for (const Form& other : {biased, masked}) {
    expect_near(attention(x.q, x.k, x.v, other.options), attention(x.q, x.k, x.v, f.options),
                1e-6f);
    const Inputs g = jit(grad(loss_of(other, false)))(x);
    expect_near(g, jit(grad(loss_of(f, false)))(x), 1e-5f);
    EXPECT_TRUE(all(take(take(g.q, 0, 0), 3, 0) == 0).item<bool>());  // of hi = lo
  }
}

TEST(AttentionDerivatives, OfNarrowFloats) {
  const Form& f = forms()[1];
  const Inputs x = inputs_of(f);
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const Inputs narrow{astype(x.q, dtype), astype(x.k, dtype), astype(x.v, dtype)};
    const Inputs wide{astype(narrow.q, DType::kF32), astype(narrow.k, DType::kF32),
                      astype(narrow.v, DType::kF32)};
    const auto second = jit(grad(squared_gradient(loss_of(f, false))));
    const Inputs got = second(narrow);
    EXPECT_EQ(got.k.dtype(), dtype);
    expect_near(
        {astype(got.q, DType::kF32), astype(got.k, DType::kF32), astype(got.v, DType::kF32)},
        second(wide), dtype == DType::kBF16 ? 5e-2f : 1e-2f);
  }
}

}  // namespace
}  // namespace stow
