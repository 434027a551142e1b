// Safetensors: reading of files from outside, with all checks, and atomic writing.
// Not a loader of models; the caller checks names and shapes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/core/dtype.h"
#include "stowage/io/digest.h"
#include "stowage/io/files.h"

namespace stow {

/// Name and type of a tensor, and its location if it is in a file.
struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  int64_t offset_bytes = 0;  ///< From the start of the file.
  int64_t n_bytes = 0;
};

/// A tensor to be written, in row-major order and little-endian: either `bytes` in memory, or, if
/// `read` is set, the bytes that it returns. `read` fills `out` with the bytes from `offset_bytes`
/// on; it may throw.
struct TensorBytes {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
  std::function<void(int64_t offset_bytes, std::span<std::byte> out)> read;
};

/// Returns a tensor type as text: "f32[8,64]".
std::string tensor_type(DType dtype, std::span<const int64_t> shape);
/// Returns the size of a tensor in bytes; none for a negative extent or a size that overflows.
std::optional<int64_t> tensor_bytes(DType dtype, std::span<const int64_t> shape);

/// A safetensors file open for reading. Opening checks the whole header: the tensors lie within the
/// file, do not overlap, leave no bytes unused, and each has the size of its type.
/// Layout: u64 length of the header, little-endian; the header, a JSON object that gives each name
///         {"dtype", "shape", "data_offsets"} and may be padded with spaces; the data without
///         holes.
/// Source: the format's specification in the safetensors repository, README, "Format".
class SafetensorsFile {
 public:
  /// Opens and checks a file. Errors: "PATH: reason" for a missing or malformed file; a dtype that
  /// Stowage lacks; duplicate names; sizes that overflow; bytes before, between or after the
  /// tensors.
  static Result<SafetensorsFile> open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  int64_t size_bytes() const { return file_.size_bytes(); }
  /// The tensors, by offset.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// The tensor of that name, or null.
  const TensorInfo* find(std::string_view name) const;

  /// Reads a tensor of this file; `out` has its size.
  Result<void> read(const TensorInfo& tensor, std::span<std::byte> out) const;
  /// Fills `out` with the bytes of a tensor from `offset_bytes` on.
  Result<void> read_part(const TensorInfo& tensor, int64_t offset_bytes,
                         std::span<std::byte> out) const;
  /// Returns the digest of the whole file, which it reads piece by piece.
  Result<Digest> digest() const;
  /// Moves the open file out of this object. The offsets of tensors() are offsets in it.
  InputFile release() && { return std::move(file_); }

 private:
  explicit SafetensorsFile(InputFile file) : file_(std::move(file)) {}
  Result<void> read_header();

  InputFile file_;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, size_t> index_;
  std::map<std::string, std::string> metadata_;
};

/// Writes a file under a temporary name and syncs it; the caller commits it. The data are streamed,
/// not copied as a whole. The file depends only on names, types, data and metadata, not on the
/// order of `tensors`: they are stored by element size, largest first, then by name, so that each
/// is aligned to its dtype. `digest`: if not null, receives the digest of the file.
/// Errors: those of the system; a name that occurs twice or is reserved; bytes whose number is not
/// that of the type.
Result<AtomicFile> write_safetensors(const std::string& path, std::span<const TensorBytes> tensors,
                                     const std::map<std::string, std::string>& metadata = {},
                                     Digest* digest = nullptr);

/// Writes a file with write_safetensors and commits it.
Result<void> save_safetensors(const std::string& path, std::span<const TensorBytes> tensors,
                              const std::map<std::string, std::string>& metadata = {});

}  // namespace stow
