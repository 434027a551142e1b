// NamedArray: construction, elementwise functions by name, reductions; as a leaf of trees.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/nn/named.h"
#include "stowage/stowage.h"
#include "tests/support/message_of.h"

namespace {

struct Linear {
  stow::named::NamedArray w, b;
};
STOW_TREE(Linear, w, b);

}  // namespace

namespace stow::named {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

const Axis kBatch{"Batch", 2}, kEmbed{"Embed", 3}, kPos{"Pos", 4};

Array values(const Shape& shape, int seed = 1) {
  return stow::random::normal(stow::random::key(static_cast<uint64_t>(seed)), shape);
}
std::vector<float> floats(const Array& x) {
  return x.to_vector<float>();
}
std::vector<float> floats(const NamedArray& x) {
  return x.to_vector<float>();
}

TEST(NamedArray, KnowsItsAxes) {
  const NamedArray x = named(values({2, 3}), {"Batch", "Embed"});
  EXPECT_THAT(x.axes(), ElementsAre(kBatch, kEmbed));
  EXPECT_EQ(x.axis_size("Embed"), 3);
  EXPECT_EQ(x.axis_index("Embed"), 1);
  EXPECT_TRUE(x.has_axis("Batch"));
  EXPECT_FALSE(x.has_axis("Pos"));
  EXPECT_FALSE(x.has_axis(kBatch.resize(7)));
  EXPECT_EQ(to_string(x), "f32{Batch: 2, Embed: 3}");
  EXPECT_EQ(NamedArray(Array(3.0), {}).item<float>(), 3);
}

TEST(NamedArray, RefusesWhatIsNoNaming) {
  const Array x = values({2, 3});
  EXPECT_THAT(
      message_of([&] { named(x, {"Batch"}); }),
      StartsWith("[named] expected 2 names, one for each axis of f32[2,3], got 1: {Batch}"));
  EXPECT_THAT(
      message_of([&] {
        named(x, {"Batch", "Batch"});
      }),
      StartsWith("[named] axis 'Batch' is there twice in {Batch: 2, Batch: 3}; rename one"));
  EXPECT_THAT(
      message_of([&] {
        named(x, {kBatch, kEmbed.resize(4)});
      }),
      StartsWith("[named] expected axis 'Embed' of size 4, got f32[2,3] whose axis 1 has 3"));
  EXPECT_THAT(
      message_of([&] {
        named(x, {"Batch", "a b"});
      }),
      StartsWith("[named] expected a name of letters, digits, '_', '-' and '.', got 'a b'"));
  EXPECT_THAT(message_of([&] { named(x, {"Batch", ""}); }), HasSubstr("got '' for axis 1"));
  EXPECT_THAT(message_of([&] { named(x, all_axes); }), HasSubstr("name each of them"));
  EXPECT_THAT(message_of([&] { named(Array(), {"x"}); }), HasSubstr("the array is empty"));
  EXPECT_THAT(message_of([&] {
                named(x, {"a", "b"}).axis_size("c");
              }),
              StartsWith("[axis_size] there is no axis 'c' in {a: 2, b: 3}"));
  EXPECT_THAT(message_of([&] {
                named(x, {"a", "b"}).scalar();
              }),
              StartsWith("[scalar] expected no axes, got {a: 2, b: 3}"));
  EXPECT_THAT(message_of([&] { exp(NamedArray()); }), HasSubstr("never given an array"));
}

TEST(NamedArray, ElementwiseFunctionsMatchAxesByName) {
  const Array a = values({2, 3, 4}), b = values({4, 2}, 2), c = values({3}, 3);
  const NamedArray x = named(a, {"Batch", "Embed", "Pos"}), y = named(b, {"Pos", "Batch"}),
                   z = named(c, {"Embed"});
  const NamedArray sum = x + y;
  EXPECT_EQ(sum.axes(), x.axes());
  const Array wide = stow::reshape(stow::transpose(b), {2, 1, 4});
  EXPECT_EQ(floats(sum), floats(a + wide));
  EXPECT_EQ(floats(y - x), floats(wide - a));
  EXPECT_EQ((y - x).axes(), x.axes());
  EXPECT_EQ(floats(maximum(z, x)), floats(stow::maximum(stow::reshape(c, {3, 1}), a)));
  EXPECT_EQ(floats(x * 2.0), floats(a * 2.0));
  EXPECT_EQ(floats(1 / x), floats(1 / a));
  EXPECT_EQ(floats(x * Array(3)), floats(a * 3));
  EXPECT_EQ(floats(-gelu(tanh(x))), floats(-stow::gelu(stow::tanh(a))));
  // The same axes in another order: that of the first.
  const NamedArray t = named(stow::transpose(a), {"Pos", "Embed", "Batch"});
  EXPECT_EQ(floats(x + t), floats(a + a));
  EXPECT_EQ((t + x).axes(), t.axes());
  EXPECT_EQ(floats(where(y > 0, x, 0)), floats(stow::where(wide > 0, a, 0)));
  EXPECT_EQ(floats(clip(x, 0, y)), floats(stow::clip(a, 0, wide)));
  EXPECT_EQ((x < y).dtype(), DType::kBool);
  NamedArray w = x;
  w += y;
  EXPECT_EQ(floats(w), floats(sum));
  EXPECT_EQ((x * NamedArray(Array(2.0), {})).axes(), x.axes());
}

TEST(NamedArray, OneOperandMustHaveAllAxes) {
  const NamedArray x = zeros({kBatch, kEmbed}), y = zeros({kEmbed, kPos});
  EXPECT_THAT(
      message_of([&] { x + y; }),
      StartsWith("[+] neither of {Batch: 2, Embed: 3} and {Embed: 3, Pos: 4} has all axes of "
                 "the other: 'Pos' is missing in the larger; broadcast_axis adds axes"));
  EXPECT_EQ((broadcast_axis(x, kPos) + y).axes(), (std::vector{kPos, kBatch, kEmbed}));
  EXPECT_THAT(
      message_of([&] { x* zeros({kEmbed.resize(1)}); }),
      StartsWith("[*] axis 'Embed' has two sizes, in {Batch: 2, Embed: 3} and in {Embed: 1}"));
  EXPECT_THAT(message_of([&] {
                x + values({2, 3});
              }),
              StartsWith("[+] expected a NamedArray or a scalar, got f32[2,3] without names"));
}

TEST(NamedArray, ErrorsNameThePlaceOfTheCaller) {
  const NamedArray x = zeros({kBatch}), y = zeros({kPos});
  const std::string message = message_of([&] { maximum(x, y); });
  EXPECT_THAT(message, HasSubstr(fmt::format("named_array_test.cpp:{}", __LINE__ - 1)));
  EXPECT_THAT(message_of([&] { sum(x, "Pos"); }), HasSubstr("named_array_test.cpp:"));
}

TEST(NamedArray, ReductionsByName) {
  const Array a = values({2, 3, 4});
  const NamedArray x = named(a, {"Batch", "Embed", "Pos"});
  EXPECT_EQ(sum(x, "Embed").axes(), (std::vector{kBatch, kPos}));
  EXPECT_EQ(floats(sum(x, "Embed")), floats(stow::sum(a, 1)));
  EXPECT_EQ(floats(mean(x, {"Pos", "Batch"})), floats(stow::mean(a, {2, 0})));
  EXPECT_EQ(mean(x, {"Pos", "Batch"}).axes(), std::vector{kEmbed});
  EXPECT_EQ(max(x).item<float>(), stow::max(a).item<float>());
  EXPECT_EQ(floats(min(x, kPos)), floats(stow::min(a, 2)));
  EXPECT_EQ(floats(var(x, "Pos", 1)), floats(stow::var(a, 2, 1)));
  EXPECT_EQ(floats(standard_deviation(x, "Pos")), floats(stow::standard_deviation(a, 2)));
  EXPECT_EQ(floats(prod(x, "Pos")), floats(stow::prod(a, 2)));
  EXPECT_EQ(argmax(x, "Embed").to_vector<int>(), stow::argmax(a, 1).to_vector<int>());
  EXPECT_EQ(argmin(x, "Embed").axes(), (std::vector{kBatch, kPos}));
  EXPECT_EQ(any(x > 2, "Pos").to_vector<bool>(), stow::any(a > 2, 2).to_vector<bool>());
  EXPECT_EQ(all(x > -1, "Pos").to_vector<bool>(), stow::all(a > -1, 2).to_vector<bool>());
  EXPECT_EQ(floats(logsumexp(x, "Embed")), floats(stow::logsumexp(a, 1)));
  EXPECT_EQ(floats(softmax(x, "Embed")), floats(stow::softmax(a, 1)));
  EXPECT_EQ(softmax(x, "Embed").axes(), x.axes());
  EXPECT_EQ(floats(log_softmax(x, {"Embed", "Pos"})), floats(stow::log_softmax(a, {1, 2})));
  EXPECT_EQ(floats(cumsum(x, "Pos")), floats(stow::cumsum(a, 2)));
  EXPECT_EQ(floats(standardize(x, "Embed")), floats(stow::standardize(a, 1)));
  EXPECT_EQ(floats(sum(x, no_axes)), floats(a));
  const Array mask = values({4}, 5) > 0;
  EXPECT_EQ(floats(sum(x, "Pos", {.where = named(mask, {"Pos"})})),
            floats(stow::sum(a, 2, ReduceOptions{.where = mask})));
  EXPECT_THAT(message_of([&] { sum(x, "Head"); }),
              StartsWith("[sum] there is no axis 'Head' in {Batch: 2, Embed: 3, Pos: 4}"));
  EXPECT_THAT(message_of([&] {
                sum(x, {"Pos", "Pos"});
              }),
              StartsWith("[sum] axis 'Pos' is given twice"));
  EXPECT_THAT(message_of([&] {
                sum(x, "Pos", {.where = zeros(Axis{"Head", 2}) > 0});
              }),
              StartsWith("[sum] expected a `where` with axes of"));
}

TEST(NamedArray, IsOneLeafWithThePathOfTheValue) {
  const std::map<std::string, Linear> tree{{"up", {zeros({kBatch, kEmbed}), zeros(kEmbed)}}};
  EXPECT_THAT(tree_paths(tree), ElementsAre("up/w", "up/b"));
  EXPECT_THAT(part_paths_of(tree_ref(tree)), ElementsAre("", "up", "up/w", "up/b"));
  const auto doubled = tree_map([](const Array& x) { return x + 2; }, tree);
  EXPECT_EQ(doubled.at("up").w.axes(), tree.at("up").w.axes());
  EXPECT_THAT(floats(doubled.at("up").b), ElementsAre(2, 2, 2));
  EXPECT_NE(tree_structure(zeros(kBatch)), tree_structure(zeros(kBatch.alias("Pos"))));
  EXPECT_THAT(
      message_of([&] {
        tree_map([](const Array& a, const Array& b) { return a + b; },
                 Linear{zeros({kBatch, kEmbed}), zeros(kEmbed)},
                 Linear{zeros({kEmbed, kBatch}), zeros(kEmbed)});
      }),
      HasSubstr("the structures differ at 'w': a NamedArray of {Batch: 2, Embed: 3} there, a "
                "NamedArray of {Embed: 3, Batch: 2} here"));
}

TEST(NamedArray, GoesThroughJitAndGrad) {
  int traces = 0;
  auto f = jit([&](const NamedArray& x) {
    ++traces;
    return sum(x * x, "Embed");
  });
  const Array a = values({2, 3}), square = values({3, 3});
  const NamedArray y = f(named(a, {"Batch", "Embed"}));
  EXPECT_EQ(y.axes(), std::vector{kBatch});
  EXPECT_EQ(floats(y), floats(jit([](const Array& x) { return stow::sum(x * x, 1); })(a)));
  f(named(a, {"Batch", "Embed"}));
  EXPECT_EQ(traces, 1);
  f(named(square, {"Embed", "Other"}));
  f(named(square, {"Other", "Embed"}));  // of the same shape, and another program
  EXPECT_EQ(traces, 3);
}

TEST(NamedArray, GradientsHaveTheAxesOfTheirParameters) {
  const Array w = values({3, 4}), b = values({4}, 2), x = values({2, 3}, 3);
  const Linear layer{named(w, {"Embed", "Pos"}), named(b, {"Pos"})};
  const auto by_name = value_and_grad([&](const Linear& l) {
    return sum(square(dot(named(x, {"Batch", "Embed"}), l.w, "Embed") + l.b)).scalar();
  })(layer);
  const auto plain = value_and_grad([&](const std::pair<Array, Array>& l) {
    return stow::sum(stow::square(stow::matmul(x, l.first) + l.second));
  })(std::pair(w, b));
  EXPECT_EQ(by_name.first.item<float>(), plain.first.item<float>());
  EXPECT_EQ(by_name.second.w.axes(), layer.w.axes());
  EXPECT_EQ(floats(by_name.second.w), floats(plain.second.first));
  EXPECT_EQ(floats(by_name.second.b), floats(plain.second.second));
}

TEST(NamedArray, GoesThroughBranchesLoopsAndCheckpoints) {
  const NamedArray x = named(values({2, 3}), {"Batch", "Embed"});
  const Array& a = x.array();
  const auto twice = [](const NamedArray& v) { return v * 2; };
  const auto branch = stow::cond(
      stow::sum(a) < 1e9, twice, [](const NamedArray& v) { return v; }, x);
  EXPECT_EQ(branch.axes(), x.axes());
  EXPECT_EQ(floats(branch), floats(a * 2));
  const NamedArray many = stow::fori_loop(
      0, 3, [&](const Array&, const NamedArray& v) { return twice(v); }, x);
  EXPECT_EQ(floats(many), floats(a * 8));
  EXPECT_THAT(message_of([&] {
                stow::cond(
                    stow::sum(a) < 1e9, twice,
                    [](const NamedArray& v) {
                      return rename(v, {{"Batch", "Other"}});
                    },
                    x);
              }),
              HasSubstr("Other: 2"));
  auto loss = [&](const NamedArray& v) { return sum(stow::checkpoint(twice)(v) * v).scalar(); };
  EXPECT_EQ(floats(grad(loss)(x)),
            floats(grad([](const Array& v) { return stow::sum(v * 2 * v); })(a)));
  const auto [value, tangent] =
      stow::jvp([](const NamedArray& v) { return exp(v); }, std::tuple(x), std::tuple(x));
  EXPECT_EQ(tangent.axes(), x.axes());
  EXPECT_EQ(floats(value), floats(stow::exp(a)));
}

TEST(NamedArray, PlainLoopsThatTakeAnAxisAwayAreToldOf) {
  const NamedArray x = zeros({kBatch, kEmbed});
  EXPECT_THAT(
      message_of([&] {
        stow::scan([](const Array& c, const NamedArray& s) { return c + sum(s).scalar(); },
                   Array(0.0), x);
      }),
      HasSubstr("[sum] a NamedArray of {Batch: 2, Embed: 3} holds f32[3]: a transform of plain "
                "arrays took an axis away; use named::scan"));
}

}  // namespace
}  // namespace stow::named
