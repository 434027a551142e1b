// Training checkpoints on disk: crash-safe saving, listing, verifying and reading.
// Not the choice of tensors and configuration (the caller's); sharded_save.h saves from processes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/core/dtype.h"
#include "stowage/io/checkpoint_index.h"
#include "stowage/io/files.h"
#include "stowage/io/safetensors.h"
#include "stowage/io/tensor_slice.h"

namespace stow {

/// A tensor that a run needs from a checkpoint.
struct ExpectedTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
};

/// Conditions for a checkpoint to continue a run: exactly these tensors, and a configuration in
/// which each key of `config` has that value. A key that is missing in the checkpoint, which may be
/// older than the key, has the value in `defaults`, if any.
struct CheckpointRequirements {
  std::vector<ExpectedTensor> tensors;
  ConfigText config, defaults;
  /// By key, text to add to the error if the key has another value; "{}" in it stands for the
  /// checkpoint's value.
  ConfigText remedies = {};
};

/// The step of a checkpoint and the path of its JSON file.
struct CheckpointName {
  int64_t step = 0;
  std::string path;
  friend bool operator==(const CheckpointName&, const CheckpointName&) = default;
};

/// The checkpoints that a save keeps in the folder; it removes all others.
struct Retention {
  // Implicit, because most callers have a number only.
  Retention(int newest_ones, std::optional<int64_t> pinned = {})
      : newest(newest_ones), pinned_step(pinned) {}
  int newest;                          ///< Number of newest checkpoints to keep; 0: all.
  std::optional<int64_t> pinned_step;  ///< Step of one more checkpoint to keep.
};

/// Writes FOLDER/step-000123.safetensors and then FOLDER/step-000123.json. Each is written under a
/// temporary name, synced and renamed. The JSON file is last and names the other file, so its
/// rename makes the whole checkpoint appear, or replaces one of the same step, atomically. Creates
/// the folder if it is missing. Afterwards removes the checkpoints that `keep` does not name and
/// the incomplete files of killed runs; failures to remove them are ignored. Returns the path of
/// the JSON file. Errors: "PATH: reason"; earlier checkpoints are then unchanged.
Result<std::string> save_checkpoint(const std::string& folder, const CheckpointMeta& meta,
                                    std::span<const TensorBytes> tensors, const Retention& keep);

/// Removes the checkpoints that `keep` does not name, except that of `saved_step`, and the
/// incomplete files of killed runs. `saved_names`: names of the tensor files of `saved_step`.
/// Failures to remove a file are ignored.
void remove_old_checkpoints(const std::string& folder, int64_t saved_step,
                            const std::set<std::string>& saved_names, const Retention& keep);

/// True if the file name of `path` has the form of a checkpoint's file.
bool is_checkpoint_name(const std::string& path);

/// Returns the checkpoints of a folder in the order of steps, without reading them. Empty if the
/// folder does not exist.
Result<std::vector<CheckpointName>> list_checkpoints(const std::string& folder);

/// Returns the checkpoint of the highest step; none if there is none.
Result<std::optional<CheckpointName>> latest_checkpoint(const std::string& folder);

/// Reads the metadata in the JSON file of a checkpoint, but no tensors. Errors: "PATH: reason".
Result<CheckpointMeta> read_checkpoint_meta(const std::string& path);

/// Returns the path of the JSON file of a step's checkpoint, which need not exist.
std::string checkpoint_path(const std::string& folder, int64_t step);

/// Returns the folder for checkpoints of an earlier run that are set aside: FOLDER/previous.
std::string set_aside_folder(const std::string& folder);

/// Moves the checkpoints of an earlier run to set_aside_folder(folder), so that a new run does not
/// resume from them. They replace those that were set aside before. Returns that folder, or "" if
/// there are no checkpoints. If the process is killed, the newest checkpoint is whole in one of the
/// two folders. Errors: "PATH: reason", also if another run uses the folder.
Result<std::string> set_aside_checkpoints(const std::string& folder);

/// The files of a checkpoint that one of several processes verifies: those whose number is `index`
/// modulo `count`. A process may use the tensors only after all processes have verified their
/// share.
struct CheckpointShare {
  int index = 0;
  int count = 1;
};

/// A verified checkpoint, saved by one process or by several. Holds its files open if they are few.
class Checkpoint {
 public:
  /// Reads the JSON file at `path` and all of the tensor files in the process's share, and checks:
  /// format, version, digests, configuration, the step in the file name, names and types of
  /// tensors, and that the pieces of each tensor hold every element once. Files outside of the
  /// share get only their size checked, when they are read. Errors: "FILE: reason" for the first
  /// fault found.
  static Result<Checkpoint> open(const std::string& path, const CheckpointRequirements& needs,
                                 CheckpointShare share = {});

  /// Opens a checkpoint of any configuration and any tensors, and verifies all of its files.
  static Result<Checkpoint> open(const std::string& path);

  const CheckpointMeta& meta() const { return index_.meta; }
  /// Returns the type of the tensor of that name, or null. Its offset_bytes is not set.
  const TensorInfo* find(std::string_view name) const;
  /// Reads the tensor of that name, which must exist; `out` has its size.
  Result<void> read(std::string_view name, std::span<std::byte> out) const;
  /// Fills `out` with the bytes of a tensor from `offset_bytes` on. The offset and the size of
  /// `out` are whole numbers of elements.
  Result<void> read_part(std::string_view name, int64_t offset_bytes,
                         std::span<std::byte> out) const;
  /// Fills `out` with a slice of a tensor, row-major; read_slice_part with the bytes of that slice
  /// from `offset_bytes` on, whole elements. Both read only the ranges of the files that hold these
  /// elements (read_common), for any cut of the saved tensor.
  Result<void> read_slice(std::string_view name, const TensorSlice& slice,
                          std::span<std::byte> out) const;
  Result<void> read_slice_part(std::string_view name, const TensorSlice& slice,
                               int64_t offset_bytes, std::span<std::byte> out) const;

 private:
  Checkpoint() = default;
  static Result<Checkpoint> open(const std::string& path, const CheckpointRequirements* needs,
                                 CheckpointShare share);
  Result<void> open_whole(const std::string& path, bool verifies);
  Result<void> open_shards(const std::string& path, CheckpointShare share);
  Result<void> verify_shard(const std::string& path, size_t file,
                            const SafetensorsFile& opened) const;

  const StoredTensor& tensor(std::string_view name) const;
  std::string path_of(size_t file) const { return folder_ + "/" + index_.files[file].name; }
  Result<void> read_file(size_t file, int64_t offset_bytes, std::span<std::byte> out) const;

  std::string folder_;
  CheckpointIndex index_;
  std::vector<InputFile> held_;  // Open files, by file number; empty: each read opens its file.
};

}  // namespace stow
