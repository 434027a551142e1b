// Sums over any axes of elementwise work on broadcast arrays: never stored, the same bits.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "stowage/ir/schedule_walk.h"
#include "stowage/session/compile.h"
#include "stowage/stowage.h"

namespace stow {
namespace {

constexpr int64_t kRows = 96, kColumns = 24;
constexpr int64_t kPairBytes = kRows * kRows * kColumns * 4;

using Results = std::vector<Array>;
using Loss = std::function<Array(const Array&, const Array&)>;
struct Case {
  std::string name;
  std::function<Results(const Array&, const Array&)> f;
};

Array difference(const Array& a, const Array& b) {
  return expand_dims(a, 1) - expand_dims(b, 0);
}
Array squared_distances(const Array& a, const Array& b) {
  return sum(square(difference(a, b)), -1);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  const auto add_gradients = [&](const std::string& name, Loss loss) {
    all.push_back({name, [=](const Array& a, const Array& b) { return Results{loss(a, b)}; }});
    all.push_back({name + ", by one", [=](const Array& a, const Array& b) {
                     return Results{grad<0>(loss)(a, b)};
                   }});
    all.push_back({name + ", by the other", [=](const Array& a, const Array& b) {
                     return Results{grad<1>(loss)(a, b)};
                   }});
    all.push_back({name + ", by both", [=](const Array& a, const Array& b) {
                     const auto [da, db] = grad<0, 1>(loss)(a, b);
                     return Results{da, db};
                   }});
  };
  add_gradients("distances", [](const Array& a, const Array& b) {
    return sum(sqrt(squared_distances(a, b) + 1e-6));
  });
  add_gradients("distances of 1-norm", [](const Array& a, const Array& b) {
    return sum(square(sum(abs(difference(a, b)), -1)));
  });
  add_gradients("radial kernel", [](const Array& a, const Array& b) {
    return sum(exp(-0.1 * squared_distances(a, b)));
  });
  add_gradients("additive attention", [](const Array& a, const Array& b) {
    const Array scores = sum(tanh(expand_dims(a, 1) + expand_dims(b, 0)), -1);
    return sum(square(matmul(softmax(scores), b)));
  });
  add_gradients("contrastive", [](const Array& a, const Array& b) {
    const Array near = -squared_distances(a, b);
    return mean(logsumexp(near, 1)) + mean(logsumexp(near, 0)) - 2 * mean(diagonal(near));
  });
  for (int axis : {0, 1, 2}) {
    const std::string at = " over axis " + std::to_string(axis);
    const auto product = [](const Array& a, const Array& b) {
      return expand_dims(a, 1) * expand_dims(b, 0);
    };
    add_gradients("softmax" + at, [=](const Array& a, const Array& b) {
      return sum(square(softmax(product(a, b), axis)));
    });
    add_gradients("variance" + at, [=](const Array& a, const Array& b) {
      return sum(square(var(tanh(product(a, b)), axis)));
    });
    add_gradients("largest" + at, [=](const Array& a, const Array& b) {
      return sum(square(max(product(a, b), axis)));
    });
  }
  add_gradients("norm with a scale a batch", [](const Array& a, const Array& b) {
    const Array x = expand_dims(a, 0) * expand_dims(b, 1);
    const Array y = (x - mean(x, -1, true)) * rsqrt(var(x, -1, 0, true) + 1e-5);
    return sum(square(sum(y * expand_dims(a, 0), 0))) + sum(tanh(sum(y, 1)));
  });
  all.push_back({"nearest", [](const Array& a, const Array& b) {
                   return Results{argmin(squared_distances(a, b), 1)};
                 }});
  all.push_back({"sums over all axes", [](const Array& a, const Array& b) {
                   const Array x = tanh(difference(a, b));
                   return Results{sum(x, 0),      sum(x, 1),      sum(x, 2), sum(x, {0, 1}),
                                  sum(x, {0, 2}), sum(x, {1, 2}), sum(x)};
                 }});
  all.push_back({"variances over all axes", [](const Array& a, const Array& b) {
                   const Array x = difference(a, b);
                   return Results{var(x, 0), var(x, 1), var(x, Axes{0, 1}), var(x, Axes{0, 2})};
                 }});
  return all;
}

// Some arrays of one element a pair, and no array of all pairs.
TEST(SumsOfBroadcasts, StoreNothingAndKeepTheirBits) {
  CompileOptions apart;
  apart.fuse = apart.reuse = false;
  const Array a = random::normal(random::key(0), {kRows, kColumns});
  const Array b = random::normal(random::key(1), {kRows, kColumns});
  for (const Case& c : cases()) {
    const auto lowered = jit(c.f).lower(a, b);
    const auto compiled = lowered.compile();
    EXPECT_LT(compiled.memory_analysis().device().temp_bytes, kPairBytes / 2) << c.name;
    const Results got = compiled(a, b), want = lowered.compile(apart)(a, b);
    for (size_t i = 0; i < want.size(); ++i) {
      const std::vector<float> x = got[i].astype(DType::kF32).to_vector<float>();
      const std::vector<float> y = want[i].astype(DType::kF32).to_vector<float>();
      EXPECT_EQ(std::memcmp(x.data(), y.data(), 4 * y.size()), 0) << c.name << ", result " << i;
    }
  }
}

// Work on what is as large is made once, over that: to make it again would take longer.
TEST(SumsOfBroadcasts, WorkOnWholeArraysIsNotRepeated) {
  const auto f = [](const Array& x) {
    const Array y = tanh(x);
    return std::tuple(sum(y, 0), sum(y, 2));
  };
  const auto compiled = jit(f).lower(Array::abstract(Shape{64, 8, 32})).compile();
  int n = 0;
  for (const Instruction& instruction : compiled.executable().schedule().instructions)
    for (const Step& step : instruction.kernel()->program->steps)
      n += step.kind == StepKind::kCompute && step.op == OpKind::kTanh;
  EXPECT_EQ(n, 1);
}

// An exponential over what near caches hold is stored for the second of two sums; a large one is
// repeated.
TEST(SumsOfBroadcasts, FunctionsOverLittleAreComputedOnce) {
  const auto f = [](const Array& a, const Array& b) {
    const Array y = exp(expand_dims(a, 2) + expand_dims(b, 0));
    return std::tuple(sum(y, 0), sum(y, 2));
  };
  for (const auto& [n, want] : {std::pair<int64_t, int>(16, 1), {512, 2}}) {
    const auto compiled =
        jit(f).lower(Array::abstract(Shape{n, 20}), Array::abstract(Shape{20, 20})).compile();
    int exponentials = 0;
    for (const Instruction& instruction : compiled.executable().schedule().instructions)
      for (const Step& step : instruction.kernel()->program->steps)
        exponentials += step.kind == StepKind::kCompute && step.op == OpKind::kExp;
    EXPECT_EQ(exponentials, want) << n;
  }
}

}  // namespace
}  // namespace stow
