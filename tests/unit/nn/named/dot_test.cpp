// dot: products over axes by name, beside einsum.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/nn/named.h"
#include "stowage/stowage.h"
#include "tests/support/message_of.h"

namespace stow::named {
namespace {

using testing::StartsWith;

const Axis kBatch{"Batch", 2}, kPos{"Pos", 3}, kKey{"KeyPos", 4}, kHeads{"Heads", 2},
    kSize{"Size", 5};

NamedArray values(const AxisSpec& axes, uint64_t seed) {
  return random::normal(stow::random::key(seed), axes);
}

TEST(NamedDot, SumsOverNamesAndGoesAlongWithSharedAxes) {
  const NamedArray q = values({kBatch, kPos, kHeads, kSize}, 1),
                   k = values({kBatch, kKey, kHeads, kSize}, 2);
  const NamedArray scores = dot(q, k, "Size");
  // Each axis where it first occurs, as in Haliax.
  EXPECT_EQ(scores.axes(), (std::vector{kBatch, kPos, kHeads, kKey}));
  EXPECT_EQ(scores.to_vector<float>(),
            einsum("bphd,bkhd->bphk", {q.array(), k.array()}).to_vector<float>());
  const NamedArray other = dot(q, k, "Size", {.out_axes = AxisSelection{"Batch", "Heads", "..."}});
  EXPECT_EQ(other.axes(), (std::vector{kBatch, kHeads, kPos, kKey}));
  EXPECT_EQ(other.to_vector<float>(),
            einsum("bphd,bkhd->bhpk", {q.array(), k.array()}).to_vector<float>());
}

TEST(NamedDot, OverSeveralAxesAllOfThemAndNone) {
  const NamedArray x = values({kBatch, kHeads, kSize}, 1), w = values({kSize, kHeads, kPos}, 2);
  const NamedArray y = dot(x, w, {"Heads", "Size"});
  EXPECT_EQ(y.axes(), (std::vector{kBatch, kPos}));
  const Array expected = einsum("bhd,dhp->bp", {x.array(), w.array()});
  const std::vector<float> got = y.to_vector<float>(), want = expected.to_vector<float>();
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5);
  const NamedArray a = values(kPos, 3), b = values(kKey, 4);
  EXPECT_EQ(dot(a, a, all_axes).rank(), 0);
  EXPECT_NEAR(dot(a, a, all_axes).item<float>(), stow::vdot(a.array(), a.array()).item<float>(),
              1e-6);
  EXPECT_EQ(dot(a, b, no_axes).axes(), (std::vector{kPos, kKey}));
  EXPECT_EQ(dot(a, b, no_axes).to_vector<float>(),
            stow::outer(a.array(), b.array()).to_vector<float>());
  // An axis of one operand alone is summed over there.
  EXPECT_EQ(dot(x, b, {"Size", "Heads"}).axes(), (std::vector{kBatch, kKey}));
}

TEST(NamedDot, OfThreeOperands) {
  const NamedArray x = values({kBatch, kPos}, 1), w = values({kPos, kKey}, 2),
                   v = values({kKey, kSize}, 3);
  const NamedArray y = dot({x, w, v}, {"Pos", "KeyPos"});
  EXPECT_EQ(y.axes(), (std::vector{kBatch, kSize}));
  EXPECT_EQ(y.to_vector<float>(),
            stow::matmul(stow::matmul(x.array(), w.array()), v.array()).to_vector<float>());
}

TEST(NamedDot, Errors) {
  const NamedArray x = values({kBatch, kPos}, 1);
  EXPECT_THAT(
      message_of([&] { dot(x, x, "Size"); }),
      StartsWith("[dot] no operand has axis 'Size'; together they have {Batch: 2, Pos: 3}"));
  EXPECT_THAT(message_of([&] { dot(x, zeros(kPos.resize(4)), "Pos"); }),
              StartsWith("[dot] axis 'Pos' has two sizes, in {Batch: 2, Pos: 3} and in {Pos: 4}"));
  EXPECT_THAT(message_of([&] {
                dot(x, x, {"Pos", "Pos"});
              }),
              StartsWith("[dot] axis 'Pos' is given twice"));
}

}  // namespace
}  // namespace stow::named
