// The simulated seconds of a collective on a described network, from the bytes of one position.
// Not a run and not a choice of algorithm: a cost model of each level's bandwidth and latency.
#pragma once

#include <span>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/core/mesh_shape.h"
#include "stowage/ir/op_list.h"
#include "stowage/runtime/null/device_description.h"

namespace stow {

/// The distribution of a collective's group over the blocks of one network level. Position p of the
/// mesh stands on device number p.
struct GroupLevel {
  int64_t parts = 1;    ///< Blocks of the next inner level with members, in a block of this level.
  int64_t inside = 1;   ///< Members in one block of the next inner level.
  int64_t members = 1;  ///< Members in one block of this level.
};

/// Returns one GroupLevel for each network level, innermost first, for groups over `axes` of the
/// mesh. If groups, or the blocks of a group, differ (extents that do not divide a block), each
/// level has the largest `parts` and `members` and the smallest `inside`: no group takes longer.
std::vector<GroupLevel> group_levels(const DeviceDescription& description, const MeshShape& mesh,
                                     std::span<const int> axes);

/// Returns the seconds of a collective over `axes` of the mesh. `op`: one of is_collective().
/// `whole_bytes`: the larger of a position's operand and result, that is the result of an
/// all_gather, the operand of a reduce_scatter, and the array itself for other ops.
///
/// With n_l = parts and S_l = whole_bytes / inside of level l, B_l its achievable bandwidth and a_l
/// its latency:
///   all_gather, reduce_scatter   sum over l of S_l (n_l - 1) / (n_l B_l) + ceil(log2 n_l) a_l
///   all_reduce                   twice that
///   all_to_all                   sum over l with n_l > 1 of a_l +
///                                whole_bytes (members_l - inside_l) / (size of the group B_l)
///   permute                      whole_bytes / B_l + a_l of the outermost level with n_l > 1
/// Source: the standard costs of recursive halving (Thakur, Rabenseifner, Gropp 2005), level by
/// level. Infinite if the network does not join all positions of the mesh; check_network() returns
/// the message. 0 for a group of one. `groups`: `n_groups` equally long lists of indices along the
/// axes, one after the other; each list exchanges among its members only. Empty: one group of all
/// indices.
double collective_seconds(const DeviceDescription& description, OpKind op, const MeshShape& mesh,
                          std::span<const int> axes, double whole_bytes,
                          std::span<const int64_t> groups = {}, int64_t n_groups = 1);

/// Fails if no level joins all positions of the mesh; the message lists the levels that exist.
Result<void> check_network(const DeviceDescription& description, const MeshShape& mesh);

}  // namespace stow
