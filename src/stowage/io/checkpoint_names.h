// The names of checkpoint files: parsing and formatting.
// Not the files' content or existence.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace stow {

/// The parts of a file name: step-000123.json; step-000123.safetensors for the tensors, or
/// step-000123.rank-4.safetensors for those that process 4 wrote. If the save replaces a checkpoint
/// of the same step, its tensor files have a tag: step-000123-0123456789abcdef.safetensors.
struct CheckpointFileName {
  int64_t step = 0;
  bool is_json = false;
  std::string tag;              ///< 16 hexadecimal digits, or "".
  std::optional<int32_t> rank;  ///< Number of the process that wrote the file.
  /// True for the temporary name of an unfinished file (AtomicFile), which a killed run may leave.
  bool is_temporary = false;

  /// Returns the file name, without the suffix of a temporary one.
  std::string text() const;
};

/// Parses a file name; none if it does not have the form of a checkpoint's file.
std::optional<CheckpointFileName> parse_checkpoint_file_name(std::string_view name);

}  // namespace stow
