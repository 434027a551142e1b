// Functions that the rules of gather and of the scatter ops share.
// Not the rules; those are in gather.cpp and scatter.cpp.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/ops/rule.h"

namespace stow::ops {

/// The shape of a gather's result and of a scatter's updates. Its offset axes are the window axes
/// that are not collapsed; its other axes are those of the indices without the last. Operand 0 is
/// the indexed array, operand 1 the indices. Throws TraceError if the parameters do not fit.
Shape window_shape(const InferContext& c, const GatherParams& p);

/// For each index vector, true if its window lies within an array of shape `x`. The result is a
/// bool array with the shape of the indices without their last axis.
Val windows_within(const Val& indices, const Shape& x, const GatherParams& p);

/// The parameters and indices of a gather or scatter over a whole batch. The batch axis is axis 0
/// of the updates or result, and of operand 0 if that is batched. It is an axis of the window if
/// the indices are not batched, else an axis of the indices.
struct WideGather {
  GatherParams params;
  Val indices;
};
/// `operand`: true if operand 0 has the batch axis.
WideGather widen_gather(const BatchContext& c, bool operand);

/// Sharding factors of a gather or scatter; `windows` is window_shape(). Letters 0… are axes of the
/// operand, letters `rank`… axes of the indices. An indexed axis of which a window takes one
/// element has a letter that only the operand has.
ShardingFactors shard_gather_like(const InferContext& c, const Shape& windows);

/// The parameters for the part of operand 0 that a position holds.
GatherParams local_gather_params(const LocalContext& c);
/// True if an indexed axis of operand 0 is cut.
bool cuts_indexed_axis(const LocalContext& c);
/// Returns the indices relative to the first element that the position holds. Windows that another
/// position holds are then out of range.
Val local_indices(const LocalContext& c, const Val& indices);

}  // namespace stow::ops
