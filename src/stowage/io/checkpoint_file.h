// Training checkpoints on disk: saving so that a crash leaves the last one whole, finding,
// verifying. Not the trainer's state; which tensors and which configuration a run needs is the
// caller's to say.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/core/dtype.h"
#include "stowage/io/json.h"
#include "stowage/io/safetensors.h"

namespace stow {

/// Keys of a configuration and their values as text, in order.
using ConfigText = std::vector<std::pair<std::string, std::string>>;

/// All of a checkpoint but its tensors.
struct CheckpointMeta {
  int64_t step = 0;           ///< Steps done.
  int64_t data_position = 0;  ///< Where the data go on, in the trainer's own unit.
  uint64_t seed = 0;
  ConfigText config;
  Json extra;  ///< Whatever else the trainer wants back; null for nothing.
};

/// A tensor that a run needs from a checkpoint.
struct ExpectedTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
};

/// What a checkpoint must be to continue a run: these tensors and no others, and a configuration in
/// which each of these keys has this value. A key that it does not name, as it is older than the key,
/// has the value in `defaults`, if any.
struct CheckpointNeeds {
  std::vector<ExpectedTensor> tensors;
  ConfigText config, defaults;
  /// What to add to the error where a key has another value, "{}" standing for the checkpoint's.
  ConfigText remedies = {};
};

/// A checkpoint's place: its step and the path of its JSON file.
struct CheckpointName {
  int64_t step = 0;
  std::string path;
  friend bool operator==(const CheckpointName&, const CheckpointName&) = default;
};

/// Writes FOLDER/step-000123.safetensors and then FOLDER/step-000123.json, each to a temporary
/// name, synced and renamed. The JSON file comes last and names the other, so that a checkpoint
/// exists only when it is whole; one of the same step is replaced in that instant too. The folder
/// is made where needed. Then removes all but the `keep_resident` newest checkpoints (0 keeps all) and
/// what killed runs left of others, as far as the system lets it. Returns the path of the JSON
/// file. Errors: "PATH: reason"; the checkpoints that were there stay.
Result<std::string> save_checkpoint(const std::string& folder, const CheckpointMeta& meta,
                                    std::span<const TensorBytes> tensors, int keep_resident);

/// Whether the name of a file at such a path is one of those that checkpoints have.
bool is_checkpoint_name(const std::string& path);

/// The checkpoints of a folder by step, unread. None where there is no such folder.
Result<std::vector<CheckpointName>> list_checkpoints(const std::string& folder);

/// The one of the highest step, or nothing.
Result<std::optional<CheckpointName>> latest_checkpoint(const std::string& folder);

/// Where the checkpoints of an earlier run lie that were set aside: FOLDER/previous.
std::string set_aside_folder(const std::string& folder);

/// Moves the checkpoints of an earlier run there, replacing what was set aside there
/// before: a run that starts anew must not find them as its own. Returns that folder, or "" where
/// there was nothing to move. Errors: "PATH: reason", also where another run is at work there.
/// Where it is killed the newest checkpoint is whole, here or there.
Result<std::string> set_aside_checkpoints(const std::string& folder);

/// A checkpoint that has been verified.
class Checkpoint {
 public:
  /// Reads the JSON file at `path` and the tensors' file whole, and checks both: format, version,
  /// digests, configuration, the step in its name, the tensors' names and types.
  /// Errors: "FILE: reason" for a damaged, truncated or foreign checkpoint, the first found.
  static Result<Checkpoint> open(const std::string& path, const CheckpointNeeds& needs);

  /// The same of a checkpoint of any configuration and any tensors.
  static Result<Checkpoint> open(const std::string& path);

  const CheckpointMeta& meta() const { return meta_; }
  /// The tensor of that name, or null.
  const TensorInfo* find(std::string_view name) const { return file_.find(name); }
  /// Reads a tensor that was needed; `out` has its size.
  Result<void> read(std::string_view name, std::span<std::byte> out) const;
  /// Fills `out` with the bytes of such a tensor from an offset on.
  Result<void> read_part(std::string_view name, int64_t offset_bytes,
                         std::span<std::byte> out) const;

 private:
  Checkpoint(CheckpointMeta meta, SafetensorsFile file)
      : meta_(std::move(meta)), file_(std::move(file)) {}

  const TensorInfo& tensor(std::string_view name) const;

  CheckpointMeta meta_;
  SafetensorsFile file_;
};

}  // namespace stow
