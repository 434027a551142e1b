// GgufFile: the container format of llama.cpp's models: metadata, and types and offsets of tensors.
// Not their meaning for a model (gguf_weights.cpp), and not decoding of blocks (gguf_blocks.h).
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
  std::vector<int64_t> shape;  ///< Outermost axis first; the file has the reverse order.
  int64_t offset_bytes = 0;    ///< From the start of the file.
  int64_t n_bytes = 0;
};

/// A GGUF file of version 2 or 3, little-endian, open for reading. Opening checks everything except
/// the data: tensors lie within the file, are aligned and do not overlap; extents are at least 1;
/// the innermost extent of a quantized tensor is a whole number of blocks.
/// Layout: "GGUF"; u32 version; u64 tensors; u64 entries; the entries; the tensors' names, shapes,
///         types and offsets; padding; the data.
/// Source: the specification in ggml's repository, docs/gguf.md.
class GgufFile {
 public:
  /// Opens and checks a file. Errors: "PATH: reason" or "PATH: KEY: reason" for a missing file, a
  /// malformed one, duplicate keys or names, counts, lengths or depths beyond the limits, and
  /// tensor types that are not in GgmlType, by name.
  static Result<GgufFile> open(const std::string& path);
  /// True if the file begins with GGUF's magic number.
  static bool is_gguf(const std::string& path);

  const std::string& path() const { return file_.path(); }
  int64_t size_bytes() const { return file_.size_bytes(); }
  /// The metadata entries as an object, in the order of the file. Arrays become JSON arrays, and
  /// numbers of all types JSON numbers.
  const Json& metadata() const { return metadata_; }
  /// The tensors, by offset.
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  /// The tensor of that name, or null.
  const GgufTensor* find(std::string_view name) const;
  /// Fills `out` with the bytes of the file from an offset on. Errors: the file is too short; those
  /// of the system.
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
