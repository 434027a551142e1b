// TensorSlice: a box of a tensor, by start and size along each axis; operations on boxes.
// Not a view of memory: it has no strides and no address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/core/axis_sharding.h"
#include "stowage/core/dtype.h"
#include "stowage/core/mesh_shape.h"

namespace stow {

/// A box of a tensor. A slice of a scalar has no axes and one element.
struct TensorSlice {
  std::vector<int64_t> starts;  ///< By axis.
  std::vector<int64_t> sizes;   ///< By axis.

  int64_t elems() const;  ///< The product of the sizes.
  friend auto operator<=>(const TensorSlice&, const TensorSlice&) = default;
};

/// Returns the half-open range of each axis: "[0:4, 8:16]".
std::string to_string(const TensorSlice& slice);

/// Returns the slice that is all of a tensor of that shape.
TensorSlice whole_slice(std::span<const int64_t> shape);
/// Returns the part of an array of that shape that a mesh position holds. The sharding has no
/// partial axes.
TensorSlice slice_at(std::span<const int64_t> shape, const AxisSharding& sharding,
                     const MeshShape& mesh, int64_t position);
/// True if the slice has the rank of the shape and lies within it. Values that overflow count as
/// outside.
bool lies_within(const TensorSlice& slice, std::span<const int64_t> shape);
/// Returns the elements that two slices of equal rank share; none if they share no element.
std::optional<TensorSlice> intersection(const TensorSlice& a, const TensorSlice& b);

/// Cuts the elements of `slice` with row-major numbers [begin, end) into slices, at most two per
/// axis, which hold these elements in order when each is read row-major.
std::vector<TensorSlice> slices_of_range(const TensorSlice& slice, int64_t begin, int64_t end);

/// An example of elements of a tensor that are not in exactly one of a list of slices.
struct CoverFault {
  TensorSlice where;
  std::vector<size_t> slices;  ///< The numbers of the slices that hold `where`; empty: none does.
  bool is_too_irregular =
      false;  ///< True: undecided, because too many slices share too few borders.
};

/// Returns none if each element of a tensor of that shape lies in exactly one of the slices. The
/// slices lie within the shape and are not empty. Takes time N x axes for N slices on a grid, and
/// bounded time for any other slices.
std::optional<CoverFault> cover_fault(std::span<const int64_t> shape,
                                      std::span<const TensorSlice> slices);

/// Fills `out` with the bytes of a file from an offset on.
using ReadBytes = std::function<Result<void>(int64_t offset_bytes, std::span<std::byte> out)>;

/// Reads the elements that `stored` and `wanted` have in common. The file holds `stored` in
/// row-major order from `offset_bytes` on; `out` holds `wanted` in row-major order, and its other
/// elements are not changed. Reads only the ranges that hold these elements, and gaps between them
/// that are smaller than a page. Uses up to kSlicePieceBytes of memory besides `out`. Errors: those
/// of `read`.
Result<void> read_common(const ReadBytes& read, const TensorSlice& stored, int64_t offset_bytes,
                         const TensorSlice& wanted, int64_t elem_bytes, std::span<std::byte> out);
inline constexpr int64_t kSlicePieceBytes = int64_t{1} << 20;  ///< See read_common().

}  // namespace stow
