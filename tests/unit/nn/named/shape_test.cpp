// Making, reordering, joining and cutting NamedArrays; elements and updates by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/nn/named.h"
#include "stowage/stowage.h"
#include "tests/support/message_of.h"

namespace stow::named {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

const Axis kBatch{"Batch", 2}, kEmbed{"Embed", 6}, kPos{"Pos", 4};

NamedArray values(const AxisSpec& axes, uint64_t seed = 1) {
  return random::normal(stow::random::key(seed), axes);
}
std::vector<float> floats(const Array& x) {
  return x.to_vector<float>();
}
std::vector<float> floats(const NamedArray& x) {
  return x.to_vector<float>();
}

TEST(NamedShape, Makers) {
  EXPECT_THAT(floats(ones({kBatch})), ElementsAre(1, 1));
  EXPECT_THAT(floats(full({kBatch}, 2.5)), ElementsAre(2.5, 2.5));
  EXPECT_EQ(zeros({{"a", 1}, {"b", 2}}).axes(), (std::vector<Axis>{{"a", 1}, {"b", 2}}));
  EXPECT_THAT(arange(kPos).to_vector<int>(), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(arange(kPos, 5, 2).to_vector<int>(), ElementsAre(5, 7, 9, 11));
  EXPECT_THAT(floats(one_hot(named(Array::from({1, 0}), {"Batch"}), kPos.resize(2))),
              ElementsAre(0, 1, 1, 0));
  EXPECT_EQ(floats(random::uniform(stow::random::key(3), {kBatch, kPos})),
            floats(stow::random::uniform(stow::random::key(3), {2, 4})));
  EXPECT_THAT(message_of([] { zeros({{"a", 1}, {"a", 2}}); }), HasSubstr("'a' is there twice"));
  EXPECT_THAT(message_of([] { zeros(Axis{"a", -1}); }), HasSubstr("a size of at least 0, got -1"));
}

TEST(NamedShape, RearrangeRenameBroadcast) {
  const NamedArray x = values({kBatch, kEmbed, kPos});
  EXPECT_EQ(floats(rearrange(x, {"Pos", "Batch", "Embed"})),
            floats(stow::transpose(x.array(), {2, 0, 1})));
  EXPECT_EQ(rearrange(x, {"Pos", "..."}).axes(), (std::vector{kPos, kBatch, kEmbed}));
  EXPECT_EQ(rearrange(x, {"...", "Batch"}).axes(), (std::vector{kEmbed, kPos, kBatch}));
  EXPECT_THAT(
      message_of([&] {
        rearrange(x, {"Pos", "Batch"});
      }),
      StartsWith("[rearrange] {Embed: 6} of {Batch: 2, Embed: 6, Pos: 4} are not named; \"...\""));
  EXPECT_EQ(rename(x, {{"Pos", "KeyPos"}}).axes(),
            (std::vector{kBatch, kEmbed, kPos.alias("KeyPos")}));
  EXPECT_EQ(rename(x, {{"Pos", "Embed"}, {"Embed", "Pos"}}).axes()[1].name, "Pos");
  EXPECT_THAT(message_of([&] {
                rename(x, {{"Pos", "Embed"}});
              }),
              HasSubstr("'Embed' is there twice"));
  const NamedArray p = values(kPos);
  EXPECT_EQ(floats(broadcast_to(p, {kPos, kBatch})),
            floats(stow::broadcast_to(stow::reshape(p.array(), {4, 1}), {4, 2})));
  EXPECT_EQ(broadcast_axis(p, {kBatch, kPos}).axes(), (std::vector{kBatch, kPos}));
  EXPECT_THAT(message_of([&] { broadcast_to(p, kBatch); }),
              StartsWith("[broadcast_to] axis Pos: 4 of {Pos: 4} is not among {Batch: 2}"));
}

TEST(NamedShape, FlattenAndUnflatten) {
  const NamedArray x = values({kBatch, kEmbed, kPos});
  const NamedArray flat = flatten_axes(x, {"Pos", "Batch"}, "Both");
  EXPECT_EQ(flat.axes(), (std::vector<Axis>{{"Both", 8}, kEmbed}));
  EXPECT_EQ(floats(flat), floats(stow::reshape(stow::transpose(x.array(), {2, 0, 1}), {8, 6})));
  EXPECT_EQ(flatten_axes(x, no_axes, "One").axes()[0], (Axis{"One", 1}));
  const NamedArray back = unflatten_axis(flat, "Both", {kPos, kBatch});
  EXPECT_EQ(back.axes(), (std::vector{kPos, kBatch, kEmbed}));
  EXPECT_EQ(floats(rearrange(back, x.axes())), floats(x));
  EXPECT_EQ(unflatten_axis(zeros({Axis{"One", 1}, kPos}), "One", {}).axes(), std::vector{kPos});
  EXPECT_THAT(
      message_of([&] {
        unflatten_axis(x, "Embed", {kPos, kBatch});
      }),
      StartsWith("[unflatten_axis] expected axes of 6 elements for axis Embed: 6, got {Pos: 4, "
                 "Batch: 2} of 8"));
}

TEST(NamedShape, SplitJoinUnbind) {
  const NamedArray x = values({kBatch, kEmbed});
  const std::vector<NamedArray> parts = split(x, "Embed", {{"Q", 2}, {"K", 4}});
  EXPECT_EQ(parts[1].axes(), (std::vector<Axis>{kBatch, {"K", 4}}));
  EXPECT_EQ(floats(parts[1]), floats(x.array().slice(1, 2, 6)));
  EXPECT_EQ(floats(concatenate("Embed",
                               {rename(parts[0], {{"Q", "Embed"}}),
                                rearrange(rename(parts[1], {{"K", "Embed"}}), {"Embed", "..."})})),
            floats(x));
  const std::vector<NamedArray> rows = unbind(x, "Batch");
  EXPECT_EQ(rows.size(), 2u);
  EXPECT_EQ(floats(rows[1]), floats(x.array()[1]));
  EXPECT_EQ(floats(stack("Batch", rows)), floats(x));
  EXPECT_EQ(stack("Batch", rows).axes(), x.axes());
  EXPECT_EQ(floats(roll(x, 1, "Embed")), floats(stow::roll(x.array(), 1, 1)));
  EXPECT_THAT(
      message_of([&] {
        split(x, "Embed", {{"Q", 2}, {"K", 3}});
      }),
      StartsWith(
          "[split] expected parts of 6 elements in all for axis Embed: 6, got {Q: 2, K: 3}"));
  EXPECT_THAT(message_of([&] {
                stack("N", {zeros(kPos), zeros(kBatch)});
              }),
              HasSubstr("other axes than the first: {Pos: 4} there, {Batch: 2} here"));
}

TEST(NamedIndexing, Take) {
  const NamedArray x = values({kBatch, kEmbed, kPos});
  EXPECT_EQ(take(x, "Embed", -1).axes(), (std::vector{kBatch, kPos}));
  EXPECT_EQ(floats(take(x, "Embed", -1)), floats(x.array().index({all_of_axis, 5})));
  EXPECT_THAT(message_of([&] { take(x, "Embed", 6); }),
              StartsWith("[take] element 6 is out of range for axis Embed: 6"));
  // New axes stand where the old one did.
  const Array rows = Array::from({3, 0, 5});
  const NamedArray some = take(x, "Embed", named(rows, {"Some"}));
  EXPECT_EQ(some.axes(), (std::vector<Axis>{kBatch, {"Some", 3}, kPos}));
  EXPECT_EQ(floats(some), floats(stow::take(x.array(), rows, 1)));
  // An index of the axis's own name.
  EXPECT_EQ(take(x, "Embed", named(rows, {"Embed"})).axes()[1], kEmbed.resize(3));
  // Axes that both have go along: one element of Embed for each of Batch and Pos.
  const Array each = Array::from({0, 1, 2, 3, 5, 4, 3, 2}, {2, 4});
  const NamedArray picked = take(x, "Embed", named(each, {"Batch", "Pos"}));
  EXPECT_EQ(picked.axes(), (std::vector{kBatch, kPos}));
  const std::vector<float> all = floats(x), got = floats(picked);
  const std::vector<int> index = each.to_vector<int>();
  for (size_t b = 0; b < 2; ++b)
    for (size_t p = 0; p < 4; ++p)
      EXPECT_EQ(got[b * 4 + p], all[(b * 6 + static_cast<size_t>(index[b * 4 + p])) * 4 + p]);
  // One shared axis, one new, one of the taken axis's name.
  const NamedArray mixed =
      take(x, "Embed", named(Array::from({1, 2, 3, 4}, {2, 2}), {"Embed", "Batch"}));
  EXPECT_EQ(mixed.axes(), (std::vector<Axis>{{"Embed", 2}, kBatch, kPos}));
  EXPECT_EQ(floats(mixed)[1 * 8 + 1 * 4 + 2], all[(6 + 4) * 4 + 2]);
  EXPECT_THAT(message_of([&] { take(x, "Embed", zeros(kPos)); }),
              StartsWith("[take] expected indices of an integer dtype, got f32[4]"));
}

TEST(NamedIndexing, SlicesKnownNowAndLater) {
  const NamedArray x = values({kBatch, kEmbed});
  EXPECT_EQ(floats(slice(x, "Embed", {"Part", 2}, 3)), floats(x.array().slice(1, 3, 5)));
  EXPECT_EQ(slice(x, "Embed", {"Part", 2}, 3).axes(), (std::vector<Axis>{kBatch, {"Part", 2}}));
  EXPECT_EQ(floats(slice(x, "Embed", kEmbed.resize(2), Array(3))),
            floats(x.array().slice(1, 3, 5)));
  EXPECT_THAT(message_of([&] {
                slice(x, "Embed", {"Part", 2}, 5);
              }),
              StartsWith("[slice] elements 5 to 6 are out of range for axis Embed: 6"));
  const NamedArray u = updated_slice(x, {{"Embed", 4}}, full({Axis{"Embed", 2}}, 9.0));
  EXPECT_EQ(floats(u), floats(x.array().at({all_of_axis, range(4, 6)}).set(9.0)));
  EXPECT_EQ(floats(updated_slice(x, {{"Embed", Array(4)}}, full({Axis{"Embed", 2}}, 9.0))),
            floats(u));
  EXPECT_EQ(floats(updated_slice(x, {{"Embed", 2}}, full({kBatch}, 7.0))),
            floats(x.array().at({all_of_axis, 2}).set(7.0)));
  EXPECT_THAT(message_of([&] {
                updated_slice(x, {{"Embed", 5}}, ones(Axis{"Embed", 2}));
              }),
              HasSubstr("elements 5 to 6 are out of range"));
}

TEST(NamedIndexing, PlacesByName) {
  const NamedArray x = values({kBatch, kEmbed, kPos});
  const Array& a = x.array();
  EXPECT_EQ(floats(index(x, {{"Pos", range(1, 3)}, {"Batch", 1}})),
            floats(a.index({1, all_of_axis, range(1, 3)})));
  EXPECT_EQ(index(x, {{"Pos", range(1, 3)}, {"Batch", 1}}).axes(),
            (std::vector{kEmbed, kPos.resize(2)}));
  EXPECT_EQ(index(x, {{"Pos", Range{{}, {}, -2}}}).axes()[2], kPos.resize(2));
  const Array rows = Array::from({1, 4, 2});
  const NamedArray r = named(rows, {"Rows"});
  EXPECT_EQ(index(x, {{"Embed", r}}).axes(), (std::vector<Axis>{kBatch, {"Rows", 3}, kPos}));
  // Indexed axes with one between them that is kept: in front.
  EXPECT_EQ(index(x, {{"Batch", 0}, {"Pos", r}}).axes(), (std::vector<Axis>{{"Rows", 3}, kEmbed}));
  EXPECT_EQ(floats(index(x, {{"Batch", 0}, {"Pos", r}})), floats(a.index({0, all_of_axis, rows})));
  const NamedArray four = values({kPos.alias("First"), kBatch, kEmbed, kPos}, 8);
  const NamedArray far = index(four, {{"Batch", 0}, {"Pos", r}});
  EXPECT_EQ(far.axes(), (std::vector<Axis>{{"Rows", 3}, {"First", 4}, kEmbed}));
  EXPECT_EQ(floats(far), floats(four.array().index({all_of_axis, 0, all_of_axis, rows})));
  // An index with the axis that x keeps goes along with it, as take.
  const NamedArray each = named(Array::from({5, 3}), {"Batch"});
  EXPECT_EQ(index(x, {{"Embed", each}}).axes(), (std::vector{kBatch, kPos}));
  EXPECT_EQ(floats(index(x, {{"Embed", each}})), floats(take(x, "Embed", each)));
  EXPECT_THAT(message_of([&] {
                index(x, {{"Embed", each}, {"Batch", range(0, 1)}});
              }),
              HasSubstr("'Batch' of an index array is also a range"));
  EXPECT_THAT(message_of([&] { index(x, {{"Pos", 4}}); }), HasSubstr("out of range"));
}

TEST(NamedIndexing, UpdatesByName) {
  const NamedArray x = values({kBatch, kEmbed, kPos});
  const Array& a = x.array();
  const NamedArray v = values({kPos, kBatch}, 7);
  const NamedArray set = at(x, {{"Embed", 2}}).set(v);
  EXPECT_EQ(set.axes(), x.axes());
  EXPECT_EQ(floats(set), floats(a.at({all_of_axis, 2}).set(stow::transpose(v.array()))));
  const NamedArray twice = named(Array::from({1, 1}), {"Rows"});
  EXPECT_EQ(floats(at(x, {{"Embed", twice}}).add(1.0)),
            floats(a.at({all_of_axis, Array::from({1, 1})}).add(1.0)));
  EXPECT_EQ(floats(at(x, {{"Pos", range(0, 2)}}).multiply(2)),
            floats(a.at({ellipsis, range(0, 2)}).multiply(2)));
  EXPECT_THAT(message_of([&] {
                at(x, {{"Embed", 2}}).set(zeros(kEmbed));
              }),
              StartsWith("[at] expected a value with axes of {Batch: 2, Pos: 4}, got {Embed: 6}"));
}

}  // namespace
}  // namespace stow::named
