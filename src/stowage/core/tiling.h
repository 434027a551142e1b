// Tiling: a shape cut into equal tiles along its axes, and the tile and offset of each element.
// Not a sharding; api/sharding.h says which device holds which tile.
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

/// The part of an array that a shard holds: one range for each axis.
using ShardIndex = std::vector<AxisRange>;

/// "[0:4, 2:4]".
std::string to_string(const ShardIndex& index);

/// Elements that are consecutive both in the whole array and in a part of it.
struct ElementRun {
  int64_t elem = 0;      ///< Row-major number of the first element in the whole array.
  int64_t n_elems = 0;  ///< Number of elements.
};

/// Returns the number of elements of the part `box`.
int64_t elems_of(const ShardIndex& box);
/// Returns the elements that two parts of one array share; if an axis has none, its range is empty.
ShardIndex intersection(const ShardIndex& a, const ShardIndex& b);
/// Returns the longest run that begins at element `offset` of the part `box`, counted row-major
/// within the box. `shape`: that of the whole array. `offset` is below elems_of(box).
ElementRun run_in_box(const Shape& shape, const ShardIndex& box, int64_t offset);

/// A shape cut into equal tiles, which are numbered row-major. `parts` divides the extents.
class Tiling {
 public:
  Tiling(Shape shape, Dims parts);  ///< `parts`: the number of tiles along each axis.

  const Shape& shape() const { return shape_; }            ///< Shape of the whole array.
  const Dims& parts() const { return parts_; }             ///< Number of tiles along each axis.
  const Shape& tile_shape() const { return tile_shape_; }  ///< The same for all tiles.
  int64_t n_tiles() const { return n_tiles_; }             ///< The product of the parts.
  /// The ranges of a tile, by axis.
  ShardIndex index_of(int64_t tile) const;

  /// The place of an element of the whole array.
  struct Spot {
    int64_t tile = 0;
    int64_t offset = 0;   ///< Row-major number of the element in the tile.
    int64_t n_elems = 0;  ///< Length of the run of elements from here that is consecutive in both.
  };
  Spot locate(int64_t elem) const;

 private:
  Shape shape_, tile_shape_;
  Dims parts_, strides_, tile_strides_;
  int64_t n_tiles_ = 1;
  int64_t run_elems_ = 1;  // product of the tile's extents from the last axis that is cut on
};

}  // namespace stow
