// named::scan, fold, map and vmap: the bits of plain loops; which leaf has the axis; errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/nn/named.h"
#include "stowage/stowage.h"
#include "tests/support/message_of.h"

namespace {

struct Layer {
  stow::named::NamedArray w, b;
  stow::Array gain;
};
STOW_TREE(Layer, w, b, gain);

}  // namespace

namespace stow::named {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

const Axis kLayers{"Layers", 5}, kBatch{"Batch", 2}, kEmbed{"Embed", 3}, kOut{"Out", 3};

Array values(const Shape& shape, uint64_t seed) {
  return stow::random::normal(stow::random::key(seed), shape);
}
std::vector<float> floats(const Array& x) {
  return x.to_vector<float>();
}
std::vector<float> floats(const NamedArray& x) {
  return x.to_vector<float>();
}

// The axis of layers stands in the middle of w, last in b, first in gain.
Layer layers() {
  return {named(values({3, 5, 3}, 1), {"Embed", "Layers", "Out"}),
          named(values({3, 5}, 2), {"Out", "Layers"}), values({5}, 3)};
}

std::pair<NamedArray, NamedArray> step(const NamedArray& x, const Layer& l) {
  const NamedArray y = tanh(rename(dot(x, l.w, "Embed") + l.b, {{"Out", "Embed"}})) * l.gain;
  return {x + y, sum(y, "Embed")};
}

std::pair<Array, Array> plain_step(const Array& x, const std::tuple<Array, Array, Array>& l) {
  const auto& [w, b, gain] = l;
  const Array y = stow::tanh(stow::matmul(x, w) + b) * gain;
  return {x + y, stow::sum(y, 1)};
}

TEST(NamedScan, FindsTheAxisWhereverItStands) {
  const Layer l = layers();
  const Array x = values({2, 3}, 4);
  const auto [carry, ys] = named::scan(step, "Layers", named(x, {"Batch", "Embed"}), l);
  const auto [plain_carry, plain_ys] =
      stow::scan(plain_step, x, std::tuple(l.w.array(), l.b.array(), l.gain), {.axes = {1, 1, 0}});
  EXPECT_EQ(carry.axes(), (std::vector{kBatch, kEmbed}));
  EXPECT_EQ(floats(carry), floats(plain_carry));
  EXPECT_EQ(ys.axes(), (std::vector{kLayers, kBatch}));
  EXPECT_EQ(floats(ys), floats(plain_ys));
}

TEST(NamedScan, MakesNoTransposedCopy) {
  const auto lowered = jit([](const Layer& l, const NamedArray& x) {
                         return named::scan(step, "Layers", x, l);
                       }).lower(layers(), zeros({kBatch, kEmbed}));
  const std::string text = lowered.text();
  const std::string outside = text.substr(0, text.find("scan"));
  EXPECT_EQ(outside.find("transpose"), std::string::npos) << text;
}

TEST(NamedScan, GradientsAreThoseOfThePlainLoop) {
  const Layer l = layers();
  const Array x = values({2, 3}, 4);
  for (const ScanCheckpoint& checkpoint :
       {ScanCheckpoint(false), ScanCheckpoint(true), ScanCheckpoint("nested"), ScanCheckpoint(2)}) {
    const auto by_name = jit(grad([&](const Layer& p, const NamedArray& h) {
      const auto [c, ys] = named::scan(step, kLayers, h, p, {.checkpoint = checkpoint});
      return (sum(c * c) + sum(ys)).scalar();
    }))(l, named(x, {"Batch", "Embed"}));
    const auto plain = jit(grad([&](const std::tuple<Array, Array, Array>& p, const Array& h) {
      const auto [c, ys] = stow::scan(plain_step, h, p, {.axes = {1, 1, 0}});
      return stow::sum(c * c) + stow::sum(ys);
    }))(std::tuple(l.w.array(), l.b.array(), l.gain), x);
    EXPECT_EQ(by_name.w.axes(), l.w.axes());
    EXPECT_EQ(floats(by_name.w), floats(std::get<0>(plain)));
    EXPECT_EQ(floats(by_name.b), floats(std::get<1>(plain)));
    EXPECT_EQ(floats(by_name.gain), floats(std::get<2>(plain)));
  }
}

TEST(NamedScan, LeavesWithoutTheAxisAreTheSameForAllSlices) {
  const NamedArray shared = named(values({3}, 5), {"Embed"}),
                   xs = named(values({3, 5}, 6), {"Embed", "Layers"});
  const auto xs_tree = std::tuple(xs, shared, Array(2.0));
  const NamedArray y = named::fold(
      [](const NamedArray& c, const std::tuple<NamedArray, NamedArray, Array>& x) {
        return c + std::get<0>(x) * std::get<1>(x) * std::get<2>(x);
      },
      "Layers", zeros(kEmbed), xs_tree);
  Array expected = stow::zeros({3});
  for (int64_t i = 0; i < 5; ++i)
    expected = expected + xs.array().index({all_of_axis, i}) * shared.array() * 2.0;
  EXPECT_EQ(floats(y), floats(expected));
}

TEST(NamedScan, ReverseAndMapAndNothingScanned) {
  const NamedArray xs = named(values({5, 3}, 6), {"Layers", "Embed"});
  const auto body = [](const NamedArray& c, const NamedArray& x) { return c * 0.5 + x; };
  EXPECT_EQ(floats(named::fold(body, "Layers", zeros(kEmbed), xs, {.reverse = true})),
            floats(stow::scan([](const Array& c, const Array& x) { return c * 0.5 + x; },
                              stow::zeros({3}), xs.array(), {.reverse = true})));
  const NamedArray doubled = named::map([](const NamedArray& x) { return x * 2; }, "Layers", xs);
  EXPECT_EQ(doubled.axes(), xs.axes());
  EXPECT_EQ(floats(doubled), floats(xs.array() * 2));
  const NamedArray power = named::scan([](const NamedArray& c, const None&) { return c * 2; },
                                       Axis{"Steps", 3}, ones(kEmbed));
  EXPECT_EQ(floats(power), (std::vector<float>{8, 8, 8}));
}

TEST(NamedVmap, FindsTheAxisAndPutsItInFront) {
  const NamedArray w = named(values({3, 5}, 1), {"Embed", "Layers"}),
                   x = named(values({2, 3}, 2), {"Batch", "Embed"});
  const auto f = named::vmap(
      [](const NamedArray& a, const NamedArray& b) { return dot(b, a, "Embed"); }, "Layers");
  const NamedArray y = f(w, x);
  EXPECT_EQ(y.axes(), (std::vector{kLayers, kBatch}));
  for (int64_t i = 0; i < 5; ++i)
    EXPECT_EQ(floats(take(y, "Layers", i)), floats(dot(x, take(w, "Layers", i), "Embed")));
}

TEST(NamedScan, ErrorsNameTheLeaf) {
  Layer l = layers();
  const NamedArray x = zeros({kBatch, kEmbed});
  l.b = zeros({kOut, Axis{"Layers", 4}});
  EXPECT_THAT(message_of([&] { named::scan(step, "Layers", x, l); }),
              StartsWith("[scan] 'b' has 4 slices on its axis 1, 'w' has 5"));
  EXPECT_THAT(message_of([&] { named::scan(step, kLayers.resize(7), x, layers()); }),
              StartsWith("[scan] 'w' has 5 slices on its axis 1, the axis has 7"));
  EXPECT_THAT(message_of([&] {
                named::scan([](const NamedArray& c, const NamedArray&) { return c; }, "Head", x, x);
              }),
              StartsWith("[scan] nothing has axis 'Head'; give an Axis with a size"));
  EXPECT_THAT(message_of([&] {
                named::map([](const NamedArray& s) { return broadcast_axis(s, kLayers); }, "Layers",
                           zeros({kLayers, kEmbed}));
              }),
              HasSubstr("has axis 'Layers' already"));
  EXPECT_THAT(
      message_of([&] {
        named::fold(
            [](const NamedArray& c, const NamedArray&) {
              return rearrange(c, {"Embed", "Batch"});
            },
            "Layers", x, zeros({kLayers, kEmbed}));
      }),
      HasSubstr("the structures differ at the root: a NamedArray of {Batch: 2, Embed: 3} there, "
                "a NamedArray of {Embed: 3, Batch: 2} here"));
  EXPECT_THAT(message_of([] { ScanCheckpoint("sometimes"); }),
              StartsWith("[checkpoint] expected true, false, a number, \"save_all\""));
  EXPECT_THAT(message_of([] { ScanCheckpoint(0); }), HasSubstr("at least 1 iteration, got 0"));
  EXPECT_THAT(message_of([&] { named::scan(step, "Layers", x, layers(), {.checkpoint = 9}); }),
              HasSubstr("expected blocks of 1 to 5 iterations, got blocks of 9"));
  EXPECT_THAT(message_of([&] {
                named::scan(step, "Layers", x, layers(), {.checkpoint = "nested", .unroll = 2});
              }),
              HasSubstr("unroll is 2, and blocks are nested"));
}

}  // namespace
}  // namespace stow::named
