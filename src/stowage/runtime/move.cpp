#include "stowage/runtime/move.h"

#include <cstdlib>
#include <vector>

#include "stowage/base/error.h"
#include "stowage/runtime/disk/disk.h"

namespace stow {
namespace {

int64_t elems(const Dims& dims) {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  return n;
}

void between_disk_and_memory(const Place& disk, const Dims& disk_strides, std::byte* memory,
                             const Dims& memory_strides, const Dims& dims, int64_t width,
                             bool write, std::span<std::byte> bounce) {
  std::vector<DiskAxis> axes;
  for (size_t a = 0; a < dims.size(); ++a)
    axes.push_back({dims[a], disk_strides[a] * width, memory_strides[a] * width});
  const DiskWindow window{disk.offset, memory, width, axes};
  write ? disk.disk->write(window, bounce) : disk.disk->read(window, bounce);
}

// Boxes that fit into half of the bounce are read into it and written from there.
void between_disks(const Place& from, const Place& to, const MoveShape& shape,
                   std::span<std::byte> bounce) {
  const int64_t width = dtype_bytes(shape.dtype), n = elems(shape.dims);
  const std::span<std::byte> box =
      bounce.first(bounce.size() / 2 / kDiskBlockBytes * kDiskBlockBytes);
  STOW_CHECK(!box.empty(), "a bounce of {} bytes", bounce.size());
  if (n * width <= static_cast<int64_t>(box.size())) {
    const Dims strides = contiguous_strides(Shape(shape.dims));
    const std::span<std::byte> rest = bounce.subspan(box.size());
    between_disk_and_memory(from, shape.from_strides, box.data(), strides, shape.dims, width, false,
                            rest);
    between_disk_and_memory(to, shape.to_strides, box.data(), strides, shape.dims, width, true,
                            rest);
    return;
  }
  // Halves along the axis of the largest steps where it is written keep what is written together.
  size_t axis = shape.dims.size();
  for (size_t a = 0; a < shape.dims.size(); ++a)
    if (shape.dims[a] > 1 && (axis == shape.dims.size() ||
                              std::abs(shape.to_strides[a]) > std::abs(shape.to_strides[axis])))
      axis = a;
  MoveShape part = shape;
  part.dims[axis] = shape.dims[axis] / 2;
  between_disks(from, to, part, bounce);
  const int64_t done = part.dims[axis];
  part.dims[axis] = shape.dims[axis] - done;
  between_disks(from.plus(done * shape.from_strides[axis] * width),
                to.plus(done * shape.to_strides[axis] * width), part, bounce);
}

}  // namespace

void move(const Place& from, const Place& to, const MoveShape& shape, std::span<std::byte> bounce,
          const Target& target, int threads) {
  if (elems(shape.dims) == 0) return;
  const int64_t width = dtype_bytes(shape.dtype);
  if (from.disk && to.disk)
    between_disks(from, to, shape, bounce);
  else if (from.disk)
    between_disk_and_memory(from, shape.from_strides, to.memory, shape.to_strides, shape.dims,
                            width, false, bounce);
  else if (to.disk)
    between_disk_and_memory(to, shape.to_strides, from.memory, shape.from_strides, shape.dims,
                            width, true, bounce);
  else
    target.copy({from.memory, shape.dtype, shape.dims, shape.from_strides},
                {to.memory, shape.dtype, shape.dims, shape.to_strides}, threads);
}

}  // namespace stow
