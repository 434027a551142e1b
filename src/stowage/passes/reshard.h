// Resharding: the slices and collectives that take a value from one sharding to another.
// Not the choice of shardings; passes/propagate and passes/partition make it.
#pragma once

#include <functional>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/core/axis_sharding.h"
#include "stowage/ops/build.h"

namespace stow {

/// Returns the sharding without mesh axes of extent 1, which cut nothing.
AxisSharding canonical_sharding(AxisSharding sharding, const MeshShape& mesh);

enum class ReshardOp : uint8_t { kSlice, kAllGather, kReduceScatter, kAllReduce, kAllToAll };

struct ReshardStep {
  ReshardOp op = ReshardOp::kSlice;
  MeshAxes axes;        ///< Mesh axes of the group, major first.
  int axis = 0;         ///< The array axis that is cut, gathered or split.
  int concat_axis = 0;  ///< AllToAll: where parts are joined.
  ReduceKind kind = ReduceKind::kSum;
  AxisSharding after;  ///< The sharding after the step.
};

struct ReshardPlan {
  std::vector<ReshardStep> steps;
  double bytes = 0;        ///< Bytes that one position sends in ring algorithms.
  int64_t most_bytes = 0;  ///< Bytes of the largest local form, before, between and after steps.
  /// True if a form between steps is larger than both ends.
  bool grows = false;
};

/// Returns the steps from sharding `from` to sharding `to`, which must not be partial. Slices,
/// which send nothing, come first. A mesh axis that changes its array axis becomes an all_to_all;
/// others are gathered. Partial sums are reduced directly to the wanted part. `type` is that of the
/// whole array.
ReshardPlan plan_reshard(const ArrayType& type, const AxisSharding& from, const AxisSharding& to,
                         const MeshShape& mesh);

/// Appends the steps for the local value `x` of an array with whole type `type`, and returns the
/// result. `index` returns the index of the position in its group, i32[]. A value off the device is
/// moved to the device for the steps, and back.
Val apply_reshard(const ReshardPlan& plan, const ArrayType& type, const Val& x,
                  const MeshShape& mesh, const std::function<Val(const MeshAxes&)>& index);

}  // namespace stow
