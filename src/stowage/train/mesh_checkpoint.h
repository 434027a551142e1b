// Checkpoints of a run over a mesh, whose processes save and load the state together.
// Not the metadata and files of checkpoints; io/checkpoint_file.h has those.
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

/// Runs `work` on every process and waits until all have finished, without a time limit: the
/// processes exchange signs of life meanwhile. All processes must call it at the same point; `work`
/// must not communicate. Succeeds if all succeeded; else fails on every process, with the process's
/// own error or that of the first failed process, "process 2: …". An exception of `work` is
/// rethrown on its process and is a failure on the others.
/// Errors: CommunicationError.
Result<void> run_on_all_processes(Positions& positions, std::string_view label,
                                  const std::function<Result<void>()>& work);

/// Returns, on all processes, the text that make() returns on process 0: at most 1 KiB.
/// Errors: as run_on_all_processes().
Result<std::string> text_of_process_0(Positions& positions, std::string_view label,
                                      const std::function<Result<std::string>()>& make);

/// Returns, on all processes, the newest checkpoint of a folder that process 0 sees.
/// Errors: those of latest_checkpoint(); CommunicationError.
Result<std::optional<CheckpointName>> latest_checkpoint_of_all(const std::string& folder,
                                                               Positions& positions);

/// Opens a checkpoint on all processes, each of which verifies its share of the files.
/// Errors: those of Checkpoint::open(), on all processes if on one; CommunicationError.
Result<Checkpoint> open_checkpoint(const std::string& path, const CheckpointRequirements& needs,
                                   Positions& positions);

/// Returns the part of a leaf that a position holds; without a mesh the whole leaf.
TensorSlice slice_of_position(const StateLeaf& leaf, const MeshShape& mesh, int64_t position);

/// Reads the parts of all leaves for each position of this process, leaf by leaf in order. `read(i,
/// slice, buffer)`: fills a buffer with a slice of the whole leaf i. `types`: give each leaf's
/// memory kind.
/// Errors: those of `read`, on all processes if on one; CapacityError, DiskError.
Result<PositionBuffers> read_parts(
    std::span<const StateLeaf> leaves, std::span<const ArrayType> types, Positions& positions,
    const std::function<Result<void>(size_t, const TensorSlice&, DeviceBuffer&)>& read);

/// Reads the parts from a checkpoint of any mesh. Reads only the ranges of the files that hold the
/// parts.
/// Errors: those of Checkpoint::read_slice() and read_parts().
Result<PositionBuffers> read_state(const Checkpoint& checkpoint, std::span<const StateLeaf> leaves,
                                   std::span<const ArrayType> types, Positions& positions);

/// Saves the state, given by the parts `state`, and returns the path of the JSON file on every
/// process. A single process calls save_checkpoint(). Several processes write one file each
/// (io/sharded_save.h); a part that several hold is written once.
/// Errors: those of save_checkpoint() and of a sharded save, on all processes if on one;
/// CommunicationError, DiskError.
Result<std::string> save_state(const std::string& folder, const CheckpointMeta& meta,
                               std::span<const StateLeaf> leaves, const PositionBuffers& state,
                               Positions& positions, const Retention& keep);

}  // namespace stow
