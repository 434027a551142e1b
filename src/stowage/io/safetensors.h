// Safetensors: named tensors in one file, read with suspicion and written in one piece.
// Not a loader of models; names and shapes are the caller's to judge.
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

/// A tensor to be written, or where one lies in a file.
struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  int64_t offset_bytes = 0;  ///< From the start of the file.
  int64_t n_bytes = 0;
};

/// A tensor to be written: the bytes in row-major order, little-endian, in memory, or where `read` is
/// set what that gives: it fills `out` from an offset on, and may throw.
struct TensorBytes {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
  std::function<void(int64_t offset_bytes, std::span<std::byte> out)> read;
};

/// "f32[8,64]".
std::string tensor_type(DType dtype, std::span<const int64_t> shape);
/// Bytes of a tensor; none for a negative extent or a size beyond any file's.
std::optional<int64_t> tensor_bytes(DType dtype, std::span<const int64_t> shape);

/// A safetensors file open for reading. Opening checks the whole header: after it every tensor's
/// bytes lie in the file, none overlap, none are missing, and each has the size of its type.
/// Layout: u64 length of the header, little-endian; the header, a JSON object that gives each name
///         {"dtype", "shape", "data_offsets"} and may be padded with spaces; the data without
///         holes.
/// Source: the format's specification in the safetensors repository, README, "Format".
class SafetensorsFile {
 public:
  /// Errors: "PATH: reason" for a missing file or any breach of the format; a dtype that Stowage
  /// has not; duplicate names; sizes that overflow; bytes before, between or behind the tensors.
  static Result<SafetensorsFile> open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  int64_t size_bytes() const { return file_.size_bytes(); }
  /// In the order of the data.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// The tensor of that name, or null.
  const TensorInfo* find(std::string_view name) const;

  /// Reads a tensor of this file; `out` has its size.
  Result<void> read(const TensorInfo& tensor, std::span<std::byte> out) const;
  /// Fills `out` with the bytes of a tensor from an offset on.
  Result<void> read_part(const TensorInfo& tensor, int64_t offset_bytes,
                         std::span<std::byte> out) const;
  /// The digest of the whole file, read piece by piece.
  Result<Digest> digest() const;
  /// Gives up the open file, which tensors()' offsets are of.
  InputFile release() && { return std::move(file_); }

 private:
  explicit SafetensorsFile(InputFile file) : file_(std::move(file)) {}
  Result<void> read_header();

  InputFile file_;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, size_t> index_;
  std::map<std::string, std::string> metadata_;
};

/// Writes a file under a temporary name, synced; the caller commits it. Streams: no copy of the
/// data is made. The bytes depend on names, types, data and metadata alone, not on the order given:
/// tensors lie by element size, largest first, then by name, so that each is aligned to its type.
/// Errors: the system's; a name twice or reserved, or bytes that are not the size of the type.
/// `digest` where given receives the digest of the file.
Result<AtomicFile> write_safetensors(const std::string& path, std::span<const TensorBytes> tensors,
                                     const std::map<std::string, std::string>& metadata = {},
                                     Digest* digest = nullptr);

/// write_safetensors, committed.
Result<void> save_safetensors(const std::string& path, std::span<const TensorBytes> tensors,
                              const std::map<std::string, std::string>& metadata = {});

}  // namespace stow
