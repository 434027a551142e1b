// CheckpointIndex: the content of a checkpoint's JSON file; conversion from and to its text.
// Not the tensors' bytes; no file is read or written here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/io/json.h"
#include "stowage/io/safetensors.h"
#include "stowage/io/tensor_slice.h"

namespace stow {

/// Keys of a configuration with their values as text, in order.
using ConfigText = std::vector<std::pair<std::string, std::string>>;

/// The content of a checkpoint except its tensors.
struct CheckpointMeta {
  int64_t step = 0;           ///< Steps done.
  int64_t data_position = 0;  ///< Position in the training data, in the trainer's own unit.
  uint64_t seed = 0;
  ConfigText config;
  Json extra;  ///< Further state of the trainer; may be null.
};

/// A tensor file, in the folder of the JSON file.
struct CheckpointFile {
  std::string name;
  std::string digest;                 ///< 16 hexadecimal digits.
  std::optional<int64_t> size_bytes;  ///< None in version 1.
};

/// A slice of a tensor that a file holds, in row-major order.
struct StoredPiece {
  size_t file = 0;           ///< Index in CheckpointIndex::files.
  int64_t offset_bytes = 0;  ///< From the start of the file.
  TensorSlice slice;         ///< Slice of the whole tensor.
};

/// A tensor and the pieces in which it is stored.
struct StoredTensor {
  TensorInfo info;  ///< Type of the whole tensor; its offset_bytes is not set.
  std::vector<StoredPiece> pieces;
};

/// The content of a JSON file. Version 1, saved by one process, has one tensor file, whose header
/// lists the tensors, each in one piece. Version 2, saved by several processes, has a tensor file
/// of each, and the JSON file lists the pieces of every tensor.
struct CheckpointIndex {
  CheckpointMeta meta;
  std::vector<CheckpointFile> files;
  /// Version 2: 16 hexadecimal digits that the headers of all files of one save have. Version 1:
  /// "".
  std::string save_id;
  std::map<std::string, StoredTensor, std::less<>> tensors;  ///< By name; version 1: none.

  bool is_sharded() const { return !save_id.empty(); }
};

/// Returns the text of the JSON file: version 2 if the index has a save id, else version 1.
std::string checkpoint_json(const CheckpointIndex& index);

/// Parses the text of a JSON file from outside. For version 2, checks that each tensor's pieces
/// hold every element exactly once and lie within their files, and that the files have the names of
/// this save. Errors: the predicate of a sentence about the file: "is damaged: …", "has version …".
Result<CheckpointIndex> parse_checkpoint_json(std::string_view text);

/// The header of one file of version 2 (safetensors metadata).
struct ShardHeader {
  std::string save_id;
  int64_t step = 0;
  int32_t rank = 0, n_ranks = 0;  ///< Rank of the process that wrote it, and number of processes.
  /// The pieces by name of the whole tensor; `info` is the whole tensor.
  std::vector<std::pair<TensorInfo, StoredPiece>> pieces;
};

/// Returns the safetensors metadata of a file with this header.
std::map<std::string, std::string> shard_metadata(const ShardHeader& header);
/// Returns the name that a piece has in its file.
std::string piece_name(std::string_view tensor, const TensorSlice& slice);

/// Parses the header of a file of version 2. Errors: the predicate of a sentence about the file.
Result<ShardHeader> read_shard_header(const SafetensorsFile& file);

/// Returns none if the pieces of each tensor hold every element exactly once; else a text that
/// names a tensor and its pieces at fault.
std::optional<std::string> find_cover_fault(const CheckpointIndex& index);

}  // namespace stow
