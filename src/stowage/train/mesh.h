// The mesh of a training run: its axes, and the sharding of each array of a step.
// Not the devices, which a plan does not need; positions.h has those.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/core/axis_sharding.h"
#include "stowage/train/config.h"
#include "stowage/train/model.h"

namespace stow {

/// Returns the mesh with those of the axes "replica", "data" and "model" that have more than one
/// device, in this order. It has rank 0 for a single device.
MeshShape mesh_of(const TrainConfig& config);

/// Returns the axes that shard a batch: "replica" and "data", as far as the mesh has them.
MeshAxes batch_axes(const MeshShape& mesh);

/// Returns the sharding of a weight. `model` shards its heads, feed-forward width or vocabulary; a
/// vocabulary that `model` does not divide stays whole. `data` shards the embedding axis, else the
/// largest other axis that it divides, but never "layers", because layers are read one after
/// another. With mesh.parameters = replicated, `data` shards nothing; with "auto", no vector of up
/// to 64 KiB. `axes`: TrainModel::axes_of(); empty: no axis has a name.
/// Errors: TraceError that names the path, if `model` does not divide heads or feed-forward width.
AxisSharding weight_sharding(const TrainConfig& config, const MeshShape& mesh,
                             std::string_view path, const ArrayType& type,
                             std::span<const WeightAxis> axes);

/// Returns the sharding of an array of the optimizer's state or of the average. It is the sharding
/// of the parameter whose path `path` ends in, if the array has the parameter's shape, or that
/// shape without its last or second-to-last axis; else the array stays whole.
AxisSharding state_sharding(const TrainConfig& config, const MeshShape& mesh, std::string_view path,
                            const ArrayType& type, const NamedArrays& parameters,
                            const TrainModel& model);

/// Returns the sharding of an array of a batch. batch_axes() shard the first axis, or the second of
/// stacked microbatches (`is_stacked`), if they divide it and the array has another axis.
AxisSharding batch_sharding(const MeshShape& mesh, const ArrayType& type, bool is_stacked);

}  // namespace stow
