// The seconds of a collective on a described network, from the bytes of one position alone.
// Not a run and not a choice of algorithm: a bound by bandwidth and latency of each level.
#pragma once

#include <span>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/core/mesh_shape.h"
#include "stowage/ir/op_list.h"
#include "stowage/runtime/null/device_description.h"

namespace stow {

/// How the group of a collective lies in the levels of a network. The device of position p is
/// number p.
struct GroupLevel {
  int64_t parts = 1;    ///< Blocks of the next inner level that it has in a block of this level.
  int64_t inside = 1;   ///< Members of it in one block of the next inner level.
  int64_t members = 1;  ///< Members of it in one block of this level.
};

/// By level of the network, inner first, for groups over `axes` of the mesh. If groups differ, or
/// the blocks of one do (extents that do not divide a block), each level has the most parts and
/// members and the fewest inside: no group takes longer.
std::vector<GroupLevel> group_levels(const DeviceDescription& description, const MeshShape& mesh,
                                     std::span<const int> axes);

/// Seconds of a collective, `op` one of is_collective(), over `axes` of the mesh. `whole_bytes` is
/// the larger of a position's operand and result: the gathered array of an all_gather, the operand
/// of a reduce_scatter, the array itself of the others.
///
/// With n_l = parts and S_l = whole_bytes / inside of level l, B_l its achievable bandwidth and a_l
/// its latency:
///   all_gather, reduce_scatter   sum over l of S_l (n_l - 1) / (n_l B_l) + ceil(log2 n_l) a_l
///   all_reduce                   twice that
///   all_to_all                   sum over l with n_l > 1 of a_l +
///                                whole_bytes (members_l - inside_l) / (size of the group B_l)
///   permute                      whole_bytes / B_l + a_l of the outermost level with n_l > 1
/// Source: the standard costs of recursive halving (Thakur, Rabenseifner, Gropp 2005), level by
/// level. Infinite where the network does not join the group; check_network() has the words. 0 for
/// a group of one. `groups`: `n_groups` lists of indices along the axes, one behind the other, that exchange
/// among themselves alone.
double collective_seconds(const DeviceDescription& description, OpKind op, const MeshShape& mesh,
                          std::span<const int> axes, double whole_bytes,
                          std::span<const int64_t> groups = {}, int64_t n_groups = 1);

/// Fails if a level that joins all positions of the mesh is missing, and says what there is.
Result<void> check_network(const DeviceDescription& description, const MeshShape& mesh);

}  // namespace stow
