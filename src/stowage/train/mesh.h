// The mesh of a training run: its axes, and how each array of a step is cut over them.
// Not the devices, of which a plan needs none; positions.h has those.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/core/axis_sharding.h"
#include "stowage/nn/decoder.h"
#include "stowage/train/config.h"
#include "stowage/train/model.h"

namespace stow {

/// The axes "replica", "data" and "model" of more than one device, in this order; without any where one
/// device trains.
MeshShape mesh_of(const TrainConfig& config);

/// The axes that a batch is cut over: replicas and data, as far as the mesh has them.
MeshAxes batch_axes(const MeshShape& mesh);

/// How a weight lies. `model` cuts its heads, its feed-forward width or its vocabulary. `data` cuts its
/// embedding axis, else the largest other axis that it divides; never "layers", along which layers are
/// read one after another. With mesh.parameters = replicated, `data` cuts nothing; with "auto", no vector of
/// up to 64 KiB.
/// `axes`: TrainModel::axes_of(); empty: the first axis of a path "layers/…" is "layers", the others have
/// no names.
/// A vocabulary that `model` does not divide stays whole.
/// Errors: TraceError where `model` does not divide heads or the width of the feed-forward block, naming
/// the path.
AxisSharding weight_sharding(const TrainConfig& config, const MeshShape& mesh, std::string_view path,
                             const ArrayType& type, std::span<const WeightAxis> axes);

/// How an array of the optimizer's state, or of the average, at `path` lies: as the weight that its path
/// ends in, if it has that one's shape, or that shape without its last axis or the one before; whole if
/// not.
AxisSharding state_sharding(const TrainConfig& config, const MeshShape& mesh, std::string_view path,
                            const ArrayType& type, const NamedArrays& parameters,
                            const TrainModel& model);

/// How the residual stream [B, T, d] lies where mesh.sequence asks for it; none where it does not, or where
/// `model` does not divide the T tokens.
std::optional<nn::StreamSharding> stream_sharding(const TrainConfig& config, int64_t tokens);

/// How an array of a batch lies: its first axis, or the second of stacked microbatches, is cut over
/// replicas and data if they divide it, and if it is not its only one.
AxisSharding batch_sharding(const MeshShape& mesh, const ArrayType& type, bool is_stacked);

}  // namespace stow
