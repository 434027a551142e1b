// WeightSource: the tensors of a model in files, read slice by slice into the caller's memory.
// Not a cache and not a loader: it holds no tensor data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/core/dtype.h"
#include "stowage/io/hf_config.h"
#include "stowage/io/tensor_slice.h"

namespace stow {

/// A tensor in a file.
struct WeightInfo {
  std::string name;  ///< Hugging Face's, as "model.layers.0.mlp.up_proj.weight"
  std::vector<int64_t> shape;
  /// As stored; f32 for a quantized tensor.
  DType dtype = DType::kF32;
  std::string stored_type;   ///< "f32", "bf16", "q4_1"
  size_t file = 0;           ///< Index of the file in the source.
  int64_t offset_bytes = 0;  ///< From the start of the file.
  int64_t n_bytes = 0;       ///< As stored.

  /// Extent of the first axis; 1 for a scalar.
  int64_t n_rows() const { return shape.empty() ? 1 : shape[0]; }
  /// Product of all extents but the first.
  int64_t row_elements() const;
};

/// The weights of a model: a Hugging Face folder or a GGUF file. Opening checks all headers and
/// reads no values, except to compare a stored head with a tied embedding. Thread-safe.
class WeightSource {
 public:
  /// Stack memory that a call of read_rows uses besides `out`.
  static constexpr int64_t kScratchBytes = int64_t{1} << 16;

  /// Opens a folder (config.json and *.safetensors) or a GGUF file, and checks that it has exactly
  /// the tensors that its configuration asks for. Errors: "PATH: reason" or "PATH: KEY: reason".
  static Result<std::unique_ptr<WeightSource>> open(const std::string& path);
  virtual ~WeightSource() = default;

  const std::string& path() const { return path_; }
  const HfConfig& config() const { return config_; }
  /// The tensors, by file and offset.
  const std::vector<WeightInfo>& tensors() const { return tensors_; }
  /// The tensor of that name, or null.
  const WeightInfo* find(std::string_view name) const;
  /// The path of a WeightInfo::file.
  virtual const std::string& file_path(size_t file) const = 0;

  /// Fills `out` with rows [begin, end) of a tensor of this source, converted to `dtype`: f32, bf16
  /// or f16, to nearest even. Elements stored as `dtype` are read directly into `out`.
  /// Shapes: `out` has (end - begin) * row_elements() elements of `dtype`.
  /// Errors: "PATH: reason" of the system, or if the file has become shorter.
  virtual Result<void> read_rows(const WeightInfo& tensor, int64_t begin, int64_t end, DType dtype,
                                 std::span<std::byte> out) const = 0;
  /// Fills `out` with a slice of a tensor of this source, row-major, converted as by read_rows.
  /// Reads only the ranges that hold the slice, or whole rows if the tensor is stored in blocks.
  /// Uses up to kSlicePieceBytes of memory besides `out`, or one row if a row is larger.
  virtual Result<void> read_slice(const WeightInfo& tensor, const TensorSlice& slice, DType dtype,
                                  std::span<std::byte> out) const;

 protected:
  WeightSource(std::string path, HfConfig config)
      : path_(std::move(path)), config_(std::move(config)) {}
  /// Sets tensors(). Errors: a name that occurs twice; a tensor of config() that is missing, has
  /// another shape or no float type; a tensor that config() does not have.
  Result<void> set_tensors(std::vector<WeightInfo> tensors);
  /// Handles a tied model that stores lm_head.weight nevertheless. If the head differs from the
  /// embedding, unties it, as transformers 5 does; else drops it from tensors().
  Result<void> resolve_tied_head();

 private:
  std::string path_;
  HfConfig config_;
  std::vector<WeightInfo> tensors_;
  std::map<std::string, size_t, std::less<>> index_;
};

/// Reads the configuration of a folder, whose weights may be absent, or of a GGUF file.
/// Errors: as HfConfig::load and gguf_config.
Result<HfConfig> read_model_config(const std::string& path);

/// Opens the safetensors files of a Hugging Face folder: model.safetensors, else the shards that
/// model.safetensors.index.json names, else the only *.safetensors file of the folder.
/// Errors: besides those of the files: a shard that is missing or outside the folder, by its path
/// or by a link (except a link to the blobs of a Hugging Face cache); a tensor that is missing from
/// its shard, occurs in two shards, or is not in the index; a folder with pickle files only.
Result<std::unique_ptr<WeightSource>> open_safetensors_folder(const std::string& folder);

}  // namespace stow
