// TensorSlice: a box of a tensor, by first index and extent of each axis, and how boxes meet.
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

/// A box of a tensor. A scalar's has no axes and one element.
struct TensorSlice {
  std::vector<int64_t> starts;  ///< By axis.
  std::vector<int64_t> sizes;   ///< By axis.

  int64_t elems() const;  ///< The product of the sizes.
  friend auto operator<=>(const TensorSlice&, const TensorSlice&) = default;
};

/// "[0:4, 8:16]", each axis from its start to behind its end.
std::string to_string(const TensorSlice& slice);

/// All of a tensor of that shape.
TensorSlice whole_slice(std::span<const int64_t> shape);
/// The part of an array of that shape that a position of the mesh holds. Nothing is partial.
TensorSlice slice_at(std::span<const int64_t> shape, const AxisSharding& sharding,
                     const MeshShape& mesh, int64_t position);
/// True if the slice has as many axes as the shape, and every axis lies within it. Overflows count
/// as outside.
bool lies_within(const TensorSlice& slice, std::span<const int64_t> shape);
/// The elements of both; none if there is no such element. Both have the same number of axes.
std::optional<TensorSlice> intersection(const TensorSlice& a, const TensorSlice& b);

/// Slices of `slice` that have, one after another and each in row-major order, its elements
/// [begin, end) in row-major order. At most two an axis.
std::vector<TensorSlice> slices_of_range(const TensorSlice& slice, int64_t begin, int64_t end);

/// The fault of slices that do not have every element of a tensor exactly once.
struct CoverFault {
  TensorSlice where;
  std::vector<size_t> slices;  ///< The numbers of those that all have it; empty: none does.
  bool is_too_irregular =
      false;  ///< There is no answer: too many slices that share too few borders.
};

/// None if each element of a tensor of that shape lies in exactly one of the slices, which all lie
/// within it and are not empty. Time is N x axes for N slices on a grid; it is bounded for any
/// others.
std::optional<CoverFault> cover_fault(std::span<const int64_t> shape,
                                      std::span<const TensorSlice> slices);

/// Fills `out` with the bytes of a file from an offset on.
using ReadBytes = std::function<Result<void>(int64_t offset_bytes, std::span<std::byte> out)>;

/// Reads the elements that `stored` and `wanted` have in common. `stored` lies in row-major order
/// from `offset_bytes` of a file on; `out` is `wanted` in row-major order, and its other elements
/// stay. Reads the ranges that hold these elements, and gaps of less than a page between them; uses
/// up to kSlicePieceBytes of memory beside `out`. Errors: those of `read`.
Result<void> read_common(const ReadBytes& read, const TensorSlice& stored, int64_t offset_bytes,
                         const TensorSlice& wanted, int64_t elem_bytes, std::span<std::byte> out);
inline constexpr int64_t kSlicePieceBytes = int64_t{1} << 20;  ///< See read_common().

}  // namespace stow
