// Training checkpoints on disk: saving so that a crash leaves the last one whole, finding,
// verifying. Not the trainer's state; which tensors and which configuration a run needs is the
// caller's to say. sharded_save.h writes those of several processes.
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

/// Conditions for a checkpoint to continue a run: these tensors and no others, and a configuration in
/// which each of these keys has this value. A key that it does not name, as it is older than the
/// key, has the value in `defaults`, if any.
struct CheckpointNeeds {
  std::vector<ExpectedTensor> tensors;
  ConfigText config, defaults;
  /// Text to add to the error if a key has another value, "{}" standing for the checkpoint's.
  ConfigText remedies = {};
};

/// A checkpoint's place: its step and the path of its JSON file.
struct CheckpointName {
  int64_t step = 0;
  std::string path;
  friend bool operator==(const CheckpointName&, const CheckpointName&) = default;
};

/// Checkpoints that a save leaves in the folder.
struct Retention {
  // Implicit: a number alone is what most callers have.
  Retention(int newest_ones, std::optional<int64_t> pinned = {})
      : newest(newest_ones), pinned_step(pinned) {}
  int newest;                          ///< How many of the newest; 0: all.
  std::optional<int64_t> pinned_step;  ///< One that stays beside them.
};

/// Writes FOLDER/step-000123.safetensors and then FOLDER/step-000123.json, each to a temporary
/// name, synced and renamed. The JSON file comes last and names the other, so that a checkpoint
/// exists only when it is whole; one of the same step is replaced in that instant too. The folder
/// is made where needed. Then removes the checkpoints that `keep` does not name
/// and what killed runs left of others, as far as the system lets it. Returns the path of the JSON
/// file. Errors: "PATH: reason"; the checkpoints that were there stay.
Result<std::string> save_checkpoint(const std::string& folder, const CheckpointMeta& meta,
                                    std::span<const TensorBytes> tensors, const Retention& keep);

/// Removes the checkpoints that `keep` does not name, never the one of `saved_step`, whose files of
/// tensors are these; and what killed runs left. What cannot be removed stays.
void tidy_checkpoints(const std::string& folder, int64_t saved_step,
                      const std::set<std::string>& saved_names, const Retention& keep);

/// True if the name of a file at such a path is one of those that checkpoints have.
bool is_checkpoint_name(const std::string& path);

/// The checkpoints of a folder by step, unread. None where there is no such folder.
Result<std::vector<CheckpointName>> list_checkpoints(const std::string& folder);

/// The one of the highest step, or nothing.
Result<std::optional<CheckpointName>> latest_checkpoint(const std::string& folder);

/// The metadata in the JSON file of a checkpoint. No tensor is read. Errors: "PATH: reason".
Result<CheckpointMeta> read_checkpoint_meta(const std::string& path);

/// The path of the JSON file of a step's checkpoint, whether it is there or not.
std::string checkpoint_path(const std::string& folder, int64_t step);

/// The folder of the checkpoints of an earlier run that were set aside: FOLDER/previous.
std::string set_aside_folder(const std::string& folder);

/// Moves the checkpoints of an earlier run there, replacing what was set aside there
/// before: a run that starts anew must not find them as its own. Returns that folder, or "" where
/// there was nothing to move. Errors: "PATH: reason", also where another run is at work there.
/// If it is killed, the newest checkpoint is whole, here or there.
Result<std::string> set_aside_checkpoints(const std::string& folder);

/// Files of a checkpoint that a process verifies: those whose number is `index` modulo `count`.
/// All processes together verify all; none may use what it has read before all have said so.
struct CheckpointShare {
  int index = 0;
  int count = 1;
};

/// A checkpoint that has been verified, of one process or of several. It holds its files open if
/// they are few.
class Checkpoint {
 public:
  /// Reads the JSON file at `path`, and the process's share of the tensors' files whole, and checks
  /// both: format, version, digests, configuration, the step in its name, the tensors' names and
  /// types, that each tensor's pieces have every element once. Of other files, reading checks the
  /// size. Errors: "FILE: reason" for a damaged, truncated or foreign checkpoint, the first found.
  static Result<Checkpoint> open(const std::string& path, const CheckpointNeeds& needs,
                                 CheckpointShare share = {});

  /// The same of a checkpoint of any configuration and any tensors.
  static Result<Checkpoint> open(const std::string& path);

  const CheckpointMeta& meta() const { return index_.meta; }
  /// The whole tensor of that name, or null. Its offset means nothing.
  const TensorInfo* find(std::string_view name) const;
  /// Reads a tensor that was needed; `out` has its size.
  Result<void> read(std::string_view name, std::span<std::byte> out) const;
  /// Fills `out` with the bytes of such a tensor from an offset on; both are of whole elements.
  Result<void> read_part(std::string_view name, int64_t offset_bytes,
                         std::span<std::byte> out) const;
  /// Fills `out` with a slice of such a tensor, row-major, or with its bytes from an offset on, of
  /// whole elements. Reads the ranges that hold them (read_common), however the tensor was cut when
  /// it was saved.
  Result<void> read_slice(std::string_view name, const TensorSlice& slice,
                          std::span<std::byte> out) const;
  Result<void> read_slice_part(std::string_view name, const TensorSlice& slice,
                               int64_t offset_bytes, std::span<std::byte> out) const;

 private:
  Checkpoint() = default;
  static Result<Checkpoint> open(const std::string& path, const CheckpointNeeds* needs,
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
  std::vector<InputFile> held_;  // By file; empty: they are opened for each read.
};

}  // namespace stow
