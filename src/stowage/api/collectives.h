// Collectives in the body of shard_map: communication between positions of the mesh, by axis name.
// Not the ops' rules (ops/collectives.cpp), and no transport between devices (runtime/comm).
#pragma once

#include <utility>
#include <vector>

#include "stowage/api/tree.h"
#include "stowage/core/partition_spec.h"

namespace stow {

/// One mesh axis by name, or several, of which the first is the major one: "data", {"data",
/// "model"}. Positions whose coordinates on all other mesh axes are equal form a group.
using AxisNames = PartitionSpec::Axes;

/// Divides the group of a collective into smaller groups, as lists of indices within it: {{0, 1},
/// {2, 3}} are the first two and the last two positions of an axis of extent 4. All lists have one
/// size, and each index occurs once. A position's index in its group is its index in the list.
/// Empty: no division.
using AxisIndexGroups = std::vector<std::vector<int64_t>>;

namespace concepts {
/// A tree that is no single array.
template <typename T>
concept ArrayTree = is_tree<T>() && !std::convertible_to<const T&, Operand>;
}  // namespace concepts

// For all functions here: n is the size of the group; shapes are those of parts, that is, of what
// one position holds. A tree is handled leaf by leaf. Each function has a gradient. The bits of a
// result depend on the order of the positions only (docs/bits.md).
// Errors: TraceError outside of the body of a shard_map; for an axis name that the mesh lacks, or
// that is given twice; for groups of different sizes, or that do not hold each index once; of the
// op's type rule.
// Source: jax.lax, whose names and arguments these are.

/// The sum over the group, at each position. It is a balanced pairwise tree over the index in the
/// group.
/// Types: numbers; bool is converted to i32. The cotangent of x is the sum of all positions'
/// cotangents.
Array psum(const Operand& x, const AxisNames& axes, const AxisIndexGroups& groups = {});
/// The maximum over the group, at each position. Equal maxima share the cotangent equally.
Array pmax(const Operand& x, const AxisNames& axes, const AxisIndexGroups& groups = {});
/// The minimum over the group, at each position. Equal minima share the cotangent equally.
Array pmin(const Operand& x, const AxisNames& axes, const AxisIndexGroups& groups = {});
/// psum divided by the size of the group.
Array pmean(const Operand& x, const AxisNames& axes, const AxisIndexGroups& groups = {});

struct AllGatherOptions {
  int64_t axis = 0;    ///< Axis of the result; a negative one counts from the end.
  bool tiled = false;  ///< True: concatenates along the axis. False: stacks along a new axis.
  AxisIndexGroups axis_index_groups = {};
};
/// All parts of the group, in the order of their indices, at each position.
/// Shapes:  [.., d, ..] -> [.., n d, ..] if tiled, else [.., n, d, ..].
Array all_gather(const Operand& x, const AxisNames& axes, const AllGatherOptions& options = {});

struct PsumScatterOptions {
  int64_t scatter_dimension = 0;  ///< Axis of the operand; a negative one counts from the end.
  bool tiled = false;             ///< False: the axis has extent n and is removed.
  AxisIndexGroups axis_index_groups = {};
};
/// psum(x) cut along an axis: position i gets part i.
/// Shapes:  [.., n d, ..] -> [.., d, ..] if tiled, else [.., n, ..] -> [.., ..].
Array psum_scatter(const Operand& x, const AxisNames& axes, const PsumScatterOptions& options = {});

struct AllToAllOptions {
  /// False: the split axis has extent n, is removed, and a new axis of extent n stands at
  /// `concat_axis`.
  bool tiled = false;
  AxisIndexGroups axis_index_groups = {};
};
/// Sends part i of the split axis to position i of the group, and joins the received parts along
/// `concat_axis` in the order of their senders. If tiled, the extent of the split axis is divided
/// by n, and that of `concat_axis` is multiplied by n.
Array all_to_all(const Operand& x, const AxisNames& axes, int64_t split_axis, int64_t concat_axis,
                 const AllToAllOptions& options = {});

/// For each pair (source, destination), sends x from one position to the other. A position that is
/// no destination gets zeros.
/// Errors: also for an index outside of the group, or one that is twice a source or a destination.
Array ppermute(const Operand& x, const AxisNames& axes,
               const std::vector<std::pair<int64_t, int64_t>>& pairs);
/// Position i gets x of position `from[i]`. Errors: also if `from` is no permutation of the group.
Array pshuffle(const Operand& x, const AxisNames& axes, const std::vector<int64_t>& from);

Array axis_index(const AxisNames& axes, STOW_AT);   ///< The position's index in its group, i32[].
int64_t axis_size(const AxisNames& axes, STOW_AT);  ///< The number of positions in a group.

template <concepts::ArrayTree T>
T psum(const T& tree, const AxisNames& axes, const AxisIndexGroups& groups = {}, STOW_AT) {
  return tree_map([&](const Array& x) { return psum(Operand(x, at.file, at.line), axes, groups); },
                  tree);
}
template <concepts::ArrayTree T>
T pmax(const T& tree, const AxisNames& axes, const AxisIndexGroups& groups = {}, STOW_AT) {
  return tree_map([&](const Array& x) { return pmax(Operand(x, at.file, at.line), axes, groups); },
                  tree);
}
template <concepts::ArrayTree T>
T pmin(const T& tree, const AxisNames& axes, const AxisIndexGroups& groups = {}, STOW_AT) {
  return tree_map([&](const Array& x) { return pmin(Operand(x, at.file, at.line), axes, groups); },
                  tree);
}
template <concepts::ArrayTree T>
T pmean(const T& tree, const AxisNames& axes, const AxisIndexGroups& groups = {}, STOW_AT) {
  return tree_map([&](const Array& x) { return pmean(Operand(x, at.file, at.line), axes, groups); },
                  tree);
}
template <concepts::ArrayTree T>
T all_gather(const T& tree, const AxisNames& axes, const AllGatherOptions& options = {}, STOW_AT) {
  return tree_map(
      [&](const Array& x) { return all_gather(Operand(x, at.file, at.line), axes, options); },
      tree);
}
template <concepts::ArrayTree T>
T psum_scatter(const T& tree, const AxisNames& axes, const PsumScatterOptions& options = {},
               STOW_AT) {
  return tree_map(
      [&](const Array& x) { return psum_scatter(Operand(x, at.file, at.line), axes, options); },
      tree);
}
template <concepts::ArrayTree T>
T all_to_all(const T& tree, const AxisNames& axes, int64_t split_axis, int64_t concat_axis,
             const AllToAllOptions& options = {}, STOW_AT) {
  return tree_map(
      [&](const Array& x) {
        return all_to_all(Operand(x, at.file, at.line), axes, split_axis, concat_axis, options);
      },
      tree);
}
template <concepts::ArrayTree T>
T ppermute(const T& tree, const AxisNames& axes,
           const std::vector<std::pair<int64_t, int64_t>>& pairs, STOW_AT) {
  return tree_map(
      [&](const Array& x) { return ppermute(Operand(x, at.file, at.line), axes, pairs); }, tree);
}

}  // namespace stow
