// CheckpointIndex: what the JSON file of a checkpoint says, and its text.
// Not the tensors' bytes, and no file is read or written here.
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

/// Keys of a configuration and their values as text, in order.
using ConfigText = std::vector<std::pair<std::string, std::string>>;

/// All of a checkpoint but its tensors.
struct CheckpointMeta {
  int64_t step = 0;           ///< Steps done.
  int64_t data_position = 0;  ///< The place where the data go on, in the trainer's own unit.
  uint64_t seed = 0;
  ConfigText config;
  Json extra;  ///< Whatever else the trainer wants back; null for nothing.
};

/// A file of tensors, in the folder of the JSON file.
struct CheckpointFile {
  std::string name;
  std::string digest;                 ///< 16 hexadecimal digits.
  std::optional<int64_t> size_bytes;  ///< None in version 1.
};

/// A piece of a tensor in a file, in row-major order.
struct StoredPiece {
  size_t file = 0;           ///< Index in CheckpointIndex::files.
  int64_t offset_bytes = 0;  ///< From the start of the file.
  TensorSlice slice;         ///< Slice of the whole tensor.
};

/// A whole tensor, by its pieces.
struct StoredTensor {
  TensorInfo info;  ///< The whole one; its offset means nothing.
  std::vector<StoredPiece> pieces;
};

/// The content of a JSON file. Version 1 has one file, whose own header lists its tensors, each in one
/// piece. Version 2 is of several processes: a file of each, and the pieces of every tensor here.
struct CheckpointIndex {
  CheckpointMeta meta;
  std::vector<CheckpointFile> files;
  /// Version 2: 16 hexadecimal digits that all files of one save have in their headers; else "".
  std::string save_id;
  std::map<std::string, StoredTensor, std::less<>> tensors;  ///< By name; version 1: none.

  bool is_sharded() const { return !save_id.empty(); }
};

/// The text of the JSON file: version 2 where there is a save id, else version 1.
std::string checkpoint_json(const CheckpointIndex& index);

/// Reads such a text from outside. Of version 2, each tensor's pieces have every element exactly
/// once and lie within their files, and the files have the names of this save. Errors: "is damaged:
/// …", "has version …", as the rest of a sentence about the file.
Result<CheckpointIndex> parse_checkpoint_json(std::string_view text);

/// The header of one file of version 2 (safetensors metadata).
struct ShardHeader {
  std::string save_id;
  int64_t step = 0;
  int32_t rank = 0, n_ranks = 0;  ///< Rank of the process that wrote it, and number of processes.
  /// The pieces by name of the whole tensor; `info` is the whole tensor.
  std::vector<std::pair<TensorInfo, StoredPiece>> pieces;
};

/// The metadata that a file of these pieces gets, and the name in the file of each piece.
std::map<std::string, std::string> shard_metadata(const ShardHeader& header);
std::string piece_name(std::string_view tensor, const TensorSlice& slice);

/// Errors: the rest of a sentence about the file.
Result<ShardHeader> read_shard_header(const SafetensorsFile& file);

/// None if the pieces of each tensor have every element exactly once; else which tensor and pieces.
std::optional<std::string> find_cover_fault(const CheckpointIndex& index);

}  // namespace stow
