#include "stowage/core/tiling.h"

#include <fmt/format.h>

#include <algorithm>

#include "stowage/base/error.h"

namespace stow {

std::string to_string(const ShardIndex& index) {
  std::string text;
  for (const AxisRange& r : index)
    text += fmt::format("{}{}:{}", text.empty() ? "" : ", ", r.begin, r.end);
  return "[" + text + "]";
}

int64_t elems_of(const ShardIndex& box) {
  int64_t n = 1;
  for (const AxisRange& r : box) n *= r.extent();
  return n;
}

ShardIndex intersection(const ShardIndex& a, const ShardIndex& b) {
  ShardIndex both;
  for (size_t i = 0; i < a.size(); ++i) {
    const int64_t begin = std::max(a[i].begin, b[i].begin);
    both.push_back({begin, std::max(begin, std::min(a[i].end, b[i].end))});
  }
  return both;
}

ElementRun run_in_box(const Shape& shape, const ShardIndex& box, int64_t offset) {
  ElementRun run{0, 1};
  int64_t stride = 1, rest = offset;
  bool adjoins = true;  // all axes behind this one are whole in the box
  int64_t block = 1, at_in_block = 0;
  for (size_t i = box.size(); i-- > 0;) {
    const int64_t extent = box[i].extent(), at = rest % extent;
    rest /= extent;
    run.elem += (box[i].begin + at) * stride;
    if (adjoins) {
      at_in_block += at * block;
      block *= extent;
      adjoins = extent == shape[static_cast<int>(i)];
    }
    stride *= shape[static_cast<int>(i)];
  }
  run.n_elems = block - at_in_block;
  return run;
}

Tiling::Tiling(Shape shape, Dims parts)
    : shape_(std::move(shape)), tile_shape_(shape_), parts_(std::move(parts)) {
  STOW_CHECK(parts_.size() == static_cast<size_t>(shape_.rank()));
  for (int axis = 0; axis < shape_.rank(); ++axis) {
    const int64_t n = parts_[static_cast<size_t>(axis)];
    STOW_CHECK(n >= 1 && shape_[axis] % n == 0, "{} parts of {}", n, shape_[axis]);
    tile_shape_[axis] = shape_[axis] / n;
    n_tiles_ *= n;
  }
  strides_ = contiguous_strides(shape_);
  tile_strides_ = contiguous_strides(tile_shape_);
  for (int axis = shape_.rank(); axis-- > 0;) {
    run_elems_ *= tile_shape_[axis];
    if (parts_[static_cast<size_t>(axis)] > 1) break;
  }
}

ShardIndex Tiling::index_of(int64_t tile) const {
  ShardIndex index(parts_.size());
  for (size_t i = parts_.size(); i-- > 0;) {
    const int64_t extent = tile_shape_[static_cast<int>(i)], at = tile % parts_[i];
    tile /= parts_[i];
    index[i] = {at * extent, (at + 1) * extent};
  }
  return index;
}

Tiling::Spot Tiling::locate(int64_t elem) const {
  Spot spot;
  int64_t rest = elem;
  for (size_t i = 0; i < parts_.size(); ++i) {
    const int64_t at = rest / strides_[i], extent = tile_shape_[static_cast<int>(i)];
    rest %= strides_[i];
    spot.tile = spot.tile * parts_[i] + at / extent;
    spot.offset += at % extent * tile_strides_[i];
  }
  spot.n_elems = run_elems_ - spot.offset % run_elems_;
  return spot;
}

}  // namespace stow
