// The names of the files that checkpoints are made of.
// Not their content, nor which of them are there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace stow {

/// The parts of a name: step-000123.json; step-000123.safetensors, or .rank-4.safetensors for the part
/// that process 4 wrote. Where a checkpoint of that step was there before, a tag stands behind the
/// step of the tensors' files: step-000123-0123456789abcdef.safetensors.
struct CheckpointFileName {
  int64_t step = 0;
  bool is_json = false;
  std::string tag;              ///< 16 hexadecimal digits, or none.
  std::optional<int32_t> rank;  ///< Rank of a part.
  /// The name of a file that is being written (AtomicFile) or that a killed run left.
  bool is_temporary = false;

  /// The name; a temporary one's without what makes it one.
  std::string text() const;
};

/// None for a name that no checkpoint has.
std::optional<CheckpointFileName> parse_checkpoint_file_name(std::string_view name);

}  // namespace stow
