// How a value goes from one sharding to another: steps of slices and collectives, with their bytes.
// Not the choice of shardings; those are passes/propagate's and passes/partition's.
#pragma once

#include <functional>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/core/axis_sharding.h"
#include "stowage/ops/build.h"

namespace stow {

/// The same sharding without the mesh axes of one position, which cut nothing.
AxisSharding canonical_sharding(AxisSharding sharding, const MeshShape& mesh);

enum class ReshardOp : uint8_t { kSlice, kAllGather, kReduceScatter, kAllReduce, kAllToAll };

struct ReshardStep {
  ReshardOp op = ReshardOp::kSlice;
  MeshAxes axes;        ///< Mesh axes of the group, major first.
  int axis = 0;         ///< The array axis that is cut, gathered or split.
  int concat_axis = 0;  ///< AllToAll: where parts are joined.
  ReduceKind kind = ReduceKind::kSum;
  AxisSharding after;  ///< How the value lies then.
};

struct ReshardPlan {
  std::vector<ReshardStep> steps;
  double bytes = 0;        ///< Bytes that one position sends in ring algorithms.
  int64_t most_bytes = 0;  ///< The largest local form on the way, both ends included.
  /// True if the largest form on the way is larger than both ends.
  bool grows = false;
};

/// The steps from one sharding to another one, which is not partial. Slices, which send nothing,
/// come first; what moves between array axes goes as all_to_all; the rest is gathered. Partial sums
/// are reduced to the part that is wanted. `type` is whole; both shardings fit it.
ReshardPlan plan_reshard(const ArrayType& type, const AxisSharding& from, const AxisSharding& to,
                         const MeshShape& mesh);

/// Appends the steps for the local value `x` of an array of that whole type. `index` gives the
/// index in a group, i32[]. A value off the device is moved there for it, and back.
Val apply_reshard(const ReshardPlan& plan, const ArrayType& type, const Val& x,
                  const MeshShape& mesh, const std::function<Val(const MeshAxes&)>& index);

}  // namespace stow
