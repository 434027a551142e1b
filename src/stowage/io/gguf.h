// GgufFile: the container of llama.cpp's models: metadata, and where quantized tensors lie.
// Not their meaning for a model (gguf_weights.cpp) and not the arithmetic of blocks
// (gguf_blocks.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/io/files.h"
#include "stowage/io/gguf_blocks.h"
#include "stowage/io/json.h"

namespace stow {

/// A tensor of a GGUF file.
struct GgufTensor {
  std::string name;
  GgmlType type = GgmlType::kF32;
  std::vector<int64_t> shape;  ///< Row-major as everywhere here: the file has it reversed.
  int64_t offset_bytes = 0;    ///< From the start of the file.
  int64_t n_bytes = 0;
};

/// A GGUF file of version 2 or 3, little-endian, open for reading. Opening checks everything but
/// the data: after it each tensor lies in the file, aligned, and none overlap; each extent is at
/// least 1; the innermost extent of a quantized tensor is a whole number of blocks.
/// Layout: "GGUF"; u32 version; u64 tensors; u64 entries; the entries; the tensors' names, shapes,
///         types and offsets; padding; the data.
/// Source: the specification in ggml's repository, docs/gguf.md.
class GgufFile {
 public:
  /// Errors: "PATH: reason" or "PATH: KEY: reason" for a missing file or any breach of the format;
  /// duplicate keys or names; counts, lengths or depths beyond the limits; types of tensors that
  /// are not in GgmlType, by name.
  static Result<GgufFile> open(const std::string& path);
  /// True if the file begins as a GGUF file does.
  static bool is_gguf(const std::string& path);

  const std::string& path() const { return file_.path(); }
  int64_t size_bytes() const { return file_.size_bytes(); }
  /// An object of all entries in the order of the file; arrays are arrays, all numbers numbers.
  const Json& metadata() const { return metadata_; }
  /// In the order of the data.
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  /// The tensor of that name, or null.
  const GgufTensor* find(std::string_view name) const;
  /// Fills `out` with bytes of the file from an offset on. Errors: the system's; the file ends.
  Result<void> read(int64_t offset_bytes, std::span<std::byte> out) const {
    return file_.read(offset_bytes, out);
  }

 private:
  explicit GgufFile(InputFile file) : file_(std::move(file)) {}
  Result<void> read_header();

  InputFile file_;
  Json metadata_;
  std::vector<GgufTensor> tensors_;
};

}  // namespace stow
