// Tilings and runs against elements counted one by one.
#include "stowage/core/tiling.h"

#include <gtest/gtest.h>

namespace stow {
namespace {

// The coordinates of an element, row-major.
Dims coordinates(const Shape& shape, int64_t elem) {
  Dims at(shape.dims().size());
  for (size_t i = at.size(); i-- > 0;) {
    at[i] = elem % shape.dims()[i];
    elem /= shape.dims()[i];
  }
  return at;
}

int64_t number(const Shape& shape, const Dims& at) {
  int64_t n = 0;
  for (size_t i = 0; i < at.size(); ++i) n = n * shape.dims()[i] + at[i];
  return n;
}

TEST(Tiling, EveryElementIsFoundInItsTile) {
  const struct {
    Shape shape;
    Dims parts;
  } rows[] = {{{}, {}},
              {{6}, {3}},
              {{4, 6}, {2, 3}},
              {{4, 6}, {1, 2}},
              {{4, 6}, {4, 1}},
              {{2, 4, 6}, {1, 2, 1}},
              {{2, 4, 6}, {2, 1, 3}},
              {{3, 1, 5}, {3, 1, 5}}};
  for (const auto& row : rows) {
    const Tiling tiling(row.shape, row.parts);
    int64_t found = 0;
    for (int64_t e = 0; e < row.shape.elems(); ++e) {
      const Tiling::Spot spot = tiling.locate(e);
      const ShardIndex index = tiling.index_of(spot.tile);
      const Dims at = coordinates(row.shape, e);
      Dims inner;
      for (size_t i = 0; i < at.size(); ++i) {
        EXPECT_GE(at[i], index[i].begin);
        EXPECT_LT(at[i], index[i].end);
        inner.push_back(at[i] - index[i].begin);
      }
      EXPECT_EQ(spot.offset, number(tiling.tile_shape(), inner));
      ASSERT_GE(spot.n_elems, 1);
      // The run holds: its last element is as far on in the tile, and lies in it.
      const Tiling::Spot last = tiling.locate(e + spot.n_elems - 1);
      EXPECT_EQ(last.tile, spot.tile);
      EXPECT_EQ(last.offset, spot.offset + spot.n_elems - 1);
      found += spot.offset == 0;
    }
    EXPECT_EQ(found, tiling.n_tiles());
  }
}

TEST(Tiling, RunsOfABoxGoThroughItOnce) {
  const Shape shape{3, 4, 5};
  for (const ShardIndex& box :
       {ShardIndex{{0, 3}, {0, 4}, {0, 5}}, ShardIndex{{1, 3}, {0, 4}, {0, 5}},
        ShardIndex{{0, 2}, {1, 3}, {0, 5}}, ShardIndex{{0, 3}, {0, 4}, {2, 4}},
        ShardIndex{{2, 3}, {3, 4}, {4, 5}}}) {
    std::vector<int64_t> want, got;
    for (int64_t e = 0; e < shape.elems(); ++e) {
      const Dims at = coordinates(shape, e);
      bool inside = true;
      for (size_t i = 0; i < 3; ++i) inside &= at[i] >= box[i].begin && at[i] < box[i].end;
      if (inside) want.push_back(e);
    }
    for (int64_t offset = 0; offset < elems_of(box);) {
      const ElementRun run = run_in_box(shape, box, offset);
      ASSERT_GE(run.n_elems, 1);
      for (int64_t i = 0; i < run.n_elems; ++i) got.push_back(run.elem + i);
      // From the middle of a run the rest of it follows.
      EXPECT_EQ(run_in_box(shape, box, offset + run.n_elems - 1).n_elems, 1);
      offset += run.n_elems;
    }
    EXPECT_EQ(got, want) << to_string(box);
  }
  EXPECT_EQ(run_in_box(shape, {{1, 2}, {0, 4}, {0, 5}}, 0).n_elems, 20);
  EXPECT_EQ(run_in_box(shape, {{0, 3}, {0, 4}, {2, 4}}, 0).n_elems, 2);
}

TEST(Tiling, Intersections) {
  const ShardIndex a = {{0, 4}, {2, 6}}, b = {{2, 8}, {0, 3}}, c = {{5, 6}, {0, 8}};
  EXPECT_EQ(intersection(a, b), (ShardIndex{{2, 4}, {2, 3}}));
  EXPECT_EQ(elems_of(intersection(a, c)), 0);
  EXPECT_EQ(to_string(a), "[0:4, 2:6]");
}

}  // namespace
}  // namespace stow
