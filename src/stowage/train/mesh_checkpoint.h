// The checkpoints of a run over a mesh: its processes save and load the state together.
// Not what a checkpoint holds beside the state, nor its files; io/checkpoint_file.h has those.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/io/checkpoint_file.h"
#include "stowage/train/job.h"
#include "stowage/train/positions.h"

namespace stow {

/// Runs `work` on every process and waits until all have done it, however long one takes: meanwhile
/// the processes tell each other that they are there. A success if all succeeded; else a failure on
/// every process: its own, or "process 2: …", the first's. What `work` throws is thrown again where
/// it was, and a failure elsewhere. `work` communicates with no other process. All call it at the
/// same place. Errors: CommunicationError.
Result<void> work_together(Positions& positions, std::string_view label,
                           const std::function<Result<void>()>& work);

/// The text that process 0 makes, on all processes; a text of up to 1 KiB. Errors: as work_together.
Result<std::string> text_of_first(Positions& positions, std::string_view label,
                                  const std::function<Result<std::string>()>& make);

/// The newest checkpoint of a folder that process 0 sees, on all processes. Errors: as
/// latest_checkpoint, CommunicationError.
Result<std::optional<CheckpointName>> latest_checkpoint_of_all(const std::string& folder,
                                                               Positions& positions);

/// Opens a checkpoint on all processes, each of which verifies its share of the files.
/// Errors: as Checkpoint::open, on all processes if on one; CommunicationError.
Result<Checkpoint> open_checkpoint(const std::string& path, const CheckpointRequirements& needs,
                                   Positions& positions);

/// The part of a leaf that a position holds. Without a mesh that is all of it.
TensorSlice slice_of_position(const StateLeaf& leaf, const MeshShape& mesh, int64_t position);

/// Each position's parts of these leaves: `read(i, slice, buffer)` fills a buffer with a slice of
/// the whole leaf i. Reads leaf by leaf, in order. `types`: where each leaf lies. Errors: those of
/// `read`, on all processes if on one; CapacityError, DiskError.
Result<PositionBuffers> read_parts(
    std::span<const StateLeaf> leaves, std::span<const ArrayType> types, Positions& positions,
    const std::function<Result<void>(size_t, const TensorSlice&, DeviceBuffer&)>& read);

/// The same from a checkpoint of any mesh. Reads the ranges that hold the parts; uses one piece of
/// memory beside them. Errors: as Checkpoint::read_slice and above.
Result<PositionBuffers> read_state(const Checkpoint& checkpoint, std::span<const StateLeaf> leaves,
                                   std::span<const ArrayType> types, Positions& positions);

/// Saves the state, whose parts are `state`. One process writes the file of save_checkpoint();
/// several write one each (io/sharded_save.h), of parts that several hold one of them. Returns the
/// path of the JSON file, on every process. Errors: as save_checkpoint and the steps of a sharded
/// save, on all processes if on one; CommunicationError, DiskError.
Result<std::string> save_state(const std::string& folder, const CheckpointMeta& meta,
                               std::span<const StateLeaf> leaves, const PositionBuffers& state,
                               Positions& positions, const Retention& keep);

}  // namespace stow
