// Tiling: a shape cut into equal tiles along its axes, and where elements lie in them.
// Not a sharding; which device holds which tile is api/sharding.h's.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "stowage/core/shape.h"

namespace stow {

/// A half-open range of one axis, in elements.
struct AxisRange {
  int64_t begin = 0, end = 0;
  int64_t extent() const { return end - begin; }  ///< Its length.
  friend bool operator==(const AxisRange&, const AxisRange&) = default;  ///< Both ends.
};

/// The part of an array that a shard holds: a range an axis. A scalar's has none.
using ShardIndex = std::vector<AxisRange>;

/// "[0:4, 2:4]".
std::string to_string(const ShardIndex& index);

/// Elements that follow one another both in the whole array and in a part of it.
struct ElementRun {
  int64_t elem = 0;      ///< The first, by its number in the whole array, row-major.
  int64_t n_elems = 0;  ///< How many.
};

/// Elements of the part `box` of an array of that shape.
int64_t elems_of(const ShardIndex& box);
/// The elements that two parts of one array share; ranges of extent 0 where there are none.
ShardIndex intersection(const ShardIndex& a, const ShardIndex& b);
/// The longest run that begins at element `offset` of `box`, counted row-major within the box.
/// `offset` is below elems_of(box).
ElementRun run_in_box(const Shape& shape, const ShardIndex& box, int64_t offset);

/// Tiles are numbered row-major, too. Each of `parts` divides its extent.
class Tiling {
 public:
  Tiling(Shape shape, Dims parts);  ///< Parts by axis, each at least 1.

  const Shape& shape() const { return shape_; }            ///< Shape of the whole array.
  const Dims& parts() const { return parts_; }             ///< By axis.
  const Shape& tile_shape() const { return tile_shape_; }  ///< The same for all tiles.
  int64_t n_tiles() const { return n_tiles_; }             ///< The product of the parts.
  /// The ranges of a tile, by axis.
  ShardIndex index_of(int64_t tile) const;

  /// The place of an element of the whole array.
  struct Spot {
    int64_t tile = 0;
    int64_t offset = 0;   ///< Its number in the tile, row-major.
    int64_t n_elems = 0;  ///< From it on, so many follow one another in both.
  };
  Spot locate(int64_t elem) const;

 private:
  Shape shape_, tile_shape_;
  Dims parts_, strides_, tile_strides_;
  int64_t n_tiles_ = 1;
  int64_t run_elems_ = 1;  // from the last axis that is cut on, elements of a tile that adjoin
};

}  // namespace stow
