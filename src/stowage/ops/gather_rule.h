// Functions that the rules of gather and of the scatters share.
// Not the rules; those are in gather.cpp and scatter.cpp.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/ops/rule.h"

namespace stow::ops {

/// The shape of what gather gives and scatters take: offset axes hold the window without its
/// collapsed axes, the others the indices without their last axis. Operand 0 is what is indexed,
/// operand 1 the indices. Throws TraceError where the parameters do not fit.
Shape window_shape(const InferContext& c, const GatherParams& p);

/// For each index vector, whether its window lies within: bool of the indices without their last
/// axis.
Val windows_within(const Val& indices, const Shape& x, const GatherParams& p);

/// Operand and updates (or result) have the batch at axis 0. Where the indices are the same for all,
/// it is an axis of the window; else it goes along with an axis of the indices.
struct WideGather {
  GatherParams params;
  Val indices;
};
WideGather widen_gather(const BatchContext& c, bool operand);

/// Letters 0… are axes of the operand, `rank`… axes of the indices. An axis that is indexed and of
/// which a window takes one element has a letter of the operand alone.
ShardingFactors shard_gather_like(const InferContext& c, const Shape& windows);

/// The parameters for the part of operand 0 at a position.
GatherParams local_gather_params(const LocalContext& c);
/// True if an axis of operand 0 that is indexed is cut.
bool cuts_indexed_axis(const LocalContext& c);
/// Starts counted from the first element that a position holds. Those of windows that lie elsewhere
/// do not lie within the part.
Val local_indices(const LocalContext& c, const Val& indices);

}  // namespace stow::ops
