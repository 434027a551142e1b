// Collectives in the body of shard_map: values from other positions of the mesh, by axis name.
// Not the ops' rules (ops/collectives.cpp), and no transport between devices (runtime/comm).
#pragma once

#include <utility>
#include <vector>

#include "stowage/api/tree.h"
#include "stowage/core/partition_spec.h"

namespace stow {

/// One mesh axis by name, or several, the first of them the major one: "data", {"data", "model"}.
/// The positions that differ along no other axis form a group.
using AxisNames = PartitionSpec::Axes;

/// Groups of indices over the axes of a collective, which divide its group: {{0, 1}, {2, 3}} are the
/// first and the last two positions of an axis of four. All are of one size and hold each index once; a
/// position's index in its group is its place in the list. Empty: one group of all.
using AxisIndexGroups = std::vector<std::vector<int64_t>>;

namespace concepts {
/// A tree that is no single array.
template <typename T>
concept ArrayTree = is_tree<T>() && !std::convertible_to<const T&, Operand>;
}  // namespace concepts

// All functions here: shapes are those of parts; each works leaf by leaf on a tree; each has a
// gradient, and gives the bits that the order of positions alone decides (docs/bits.md).
// Errors: TraceError outside of the body of a shard_map; for a name that its mesh has not, or one
// twice; for groups of several sizes, or that do not hold each index once; of the op's type rule. Source: jax.lax, whose names and axes these are.

/// The sum over the group, at each position: a balanced pairwise tree over the group's index.
/// Types: numbers; bool counts as i32. Its cotangent is the sum of the positions' cotangents.
Array psum(const Operand& x, const AxisNames& axes, const AxisIndexGroups& groups = {});
/// The maximum over the group. Equal maxima share the cotangent alike.
Array pmax(const Operand& x, const AxisNames& axes, const AxisIndexGroups& groups = {});
/// The minimum likewise.
Array pmin(const Operand& x, const AxisNames& axes, const AxisIndexGroups& groups = {});
/// psum over the group's size.
Array pmean(const Operand& x, const AxisNames& axes, const AxisIndexGroups& groups = {});

struct AllGatherOptions {
  int64_t axis = 0;    ///< Axis of the result; negative ones from the end.
  bool tiled = false;  ///< True: parts are joined along the axis. False: the axis is a new one.
  AxisIndexGroups axis_index_groups = {};
};
/// The parts of the group, by index: [.., d, ..] -> [.., n d, ..] tiled, else [.., n, d, ..].
Array all_gather(const Operand& x, const AxisNames& axes, const AllGatherOptions& options = {});

struct PsumScatterOptions {
  int64_t scatter_dimension = 0;  ///< Axis of the operand; negative ones from the end.
  bool tiled = false;             ///< False: its extent is the group's size, and it is removed.
  AxisIndexGroups axis_index_groups = {};
};
/// Each position's part of psum(x): [.., n d, ..] -> [.., d, ..] tiled, else [.., n, ..] -> [..,
/// ..].
Array psum_scatter(const Operand& x, const AxisNames& axes, const PsumScatterOptions& options = {});

struct AllToAllOptions {
  bool tiled = false;  ///< False: the split axis has the group's size and moves to `concat_axis`.
  AxisIndexGroups axis_index_groups = {};
};
/// Part i of the split axis goes to position i of the group; what comes is joined along
/// `concat_axis` by index. Tiled: the split axis shrinks by n and the other grows by n.
Array all_to_all(const Operand& x, const AxisNames& axes, int64_t split_axis, int64_t concat_axis,
                 const AllToAllOptions& options = {});

/// x of position `first` at position `second` of each pair; zeros at positions that get none.
/// Errors: and an index that the group has not, or that is a source or a destination twice.
Array ppermute(const Operand& x, const AxisNames& axes,
               const std::vector<std::pair<int64_t, int64_t>>& pairs);
/// At position i, x of position `from[i]`. Errors: and if `from` is no permutation of the group.
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
