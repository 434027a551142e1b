// Model: a language model loaded from a Hugging Face folder or a GGUF file.
// Not its programs; score.h and generate.h have them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/io/digest.h"
#include "stowage/io/hf_config.h"
#include "stowage/io/safetensors.h"
#include "stowage/io/weights.h"
#include "stowage/nn/decoder.h"
#include "stowage/plan/analysis.h"
#include "stowage/runtime/device.h"
#include "stowage/text/tokenizer_folder.h"

namespace stow::lm {

/// Returns the decoder that a configuration describes, computing in `compute`; its matrices are
/// [out, in].
nn::DecoderConfig decoder_config(const HfConfig& config, DType compute);

struct Adapter;
struct AdapterFiles;

/// The dtypes and memory kind of weights, and the adapter.
struct WeightOptions {
  /// The dtype of weights: f32, bf16 or f16. None: that of the configuration, else f32.
  std::optional<DType> dtype = {};
  MemoryKind memory = MemoryKind::kDevice;  ///< Memory kind of the weights.
  /// An adapter of the model, on the device in f32; none: the model alone.
  std::shared_ptr<const AdapterFiles> adapter = {};
  /// The dtype of activations and products, f32 or bf16. None: bf16 for weights of bf16, else
  /// f32. Norms, attention scores and logits are always summed in f32.
  std::optional<DType> compute = {};
};

/// The content of a model folder or file, without its weights.
struct ModelFiles {
  std::string path;
  HfConfig config;
  GenerationConfig generation;
  std::optional<text::TokenizerFolder> text;
  std::string no_text;  ///< The reason if `text` is none: "FILE: reason".
  /// The tensors, not read yet. Null for a folder without weights, which can be planned but not
  /// loaded.
  std::shared_ptr<const WeightSource> weights;

  /// Reads everything except weights. Errors: "PATH: KEY: reason".
  static Result<ModelFiles> open(const std::string& path);
  /// The ids that end a text: those of generation_config.json, else those of config.json.
  const std::vector<int64_t>& eos_token_ids() const;
};

/// Returns the dtype of the weights under these options.
DType weight_dtype(const HfConfig& config, const WeightOptions& options);
/// Returns the dtype of activations under these options.
DType compute_dtype(const HfConfig& config, const WeightOptions& options);
/// Returns abstract arrays with the types of all weights.
nn::Decoder abstract_weights(const HfConfig& config, const WeightOptions& options);
/// Returns abstract arrays with the types of the adapter's arrays; none if there is no adapter.
std::optional<nn::Lora> abstract_adapter(const HfConfig& config, const WeightOptions& options);
/// Returns options of a forward pass with `arrays`, the arrays of the adapter that `options` names.
nn::ForwardOptions with_adapter(const std::optional<nn::Lora>& arrays,
                                const WeightOptions& options);
/// Returns the bytes of all weights, in their memory kind, and of the adapter, on the device.
BytesByKind weight_bytes(const HfConfig& config, const WeightOptions& options);

/// Reads one leaf of abstract_weights() by its path ("layers/wq") into a buffer of `type`, slice by
/// slice, and adds its bytes to `digest` unless that is null. Data for a disk passes through
/// kLoadPieceBytes of the process's memory. Errors: "PATH: …"; DiskError.
Result<void> read_weight(const WeightSource& source, const std::string& leaf, const ArrayType& type,
                         DeviceBuffer& buffer, Digest* digest = nullptr);
/// Reads a slice of a leaf into a buffer of the slice's size, row-major. Reads only the ranges of
/// the files that hold the slice (WeightSource::read_slice). `type`: type of the whole leaf. Uses 2
/// * kLoadPieceBytes of memory in addition to the buffer.
/// Errors: "PATH: …"; DiskError.
Result<void> read_weight_slice(const WeightSource& source, const std::string& leaf,
                               const ArrayType& type, const TensorSlice& slice,
                               DeviceBuffer& buffer);
/// Adds the bytes of a leaf to a digest, like read_weight(), without a buffer. Errors: "PATH: …".
Result<void> digest_weight(const WeightSource& source, const std::string& leaf,
                           const ArrayType& type, Digest& digest);
/// Returns the digest of all leaves of `types` in order, equal to that of read_weight() for each
/// leaf.
/// Errors: "PATH: …".
Result<std::string> weights_digest(const WeightSource& source, const nn::Decoder& types);
/// Returns a leaf as tensors of a Hugging Face file, one for each layer. `read(offset, out)`: fills
/// `out` with the leaf's bytes from `offset` on.
std::vector<TensorBytes> weight_tensors(
    const std::string& leaf, const ArrayType& type,
    const std::function<void(int64_t, std::span<std::byte>)>& read);

/// A model ready to run. Copies share the weights.
class Model {
 public:
  const ModelFiles& files() const { return files_; }
  const HfConfig& config() const { return files_.config; }
  const WeightOptions& options() const { return options_; }
  const nn::DecoderConfig& decoder() const { return decoder_; }
  const DevicePtr& device() const { return device_; }
  /// Buffers of the weights in the order of tree_leaves(abstract_weights()).
  const std::vector<DeviceBufferPtr>& weights() const { return weights_; }
  /// The adapter, or null.
  const std::shared_ptr<const Adapter>& adapter() const { return adapter_; }
  /// Returns the first arguments of all programs of the model: weights, then the adapter's arrays.
  std::vector<DeviceBufferPtr> arguments() const;
  /// Returns the weights as arrays, for user-defined functions.
  nn::Decoder arrays() const;

 private:
  friend Result<Model> load(ModelFiles files, const WeightOptions& options, DevicePtr device);
  ModelFiles files_;
  WeightOptions options_;
  nn::DecoderConfig decoder_;
  DevicePtr device_;
  std::vector<DeviceBufferPtr> weights_;
  std::shared_ptr<const Adapter> adapter_;
};

/// Reads the weights slice by slice into their memory kind, then the adapter. The peak is the
/// weights' bytes; data for a disk passes through kLoadPieceBytes of the process's memory.
/// Errors: "PATH: …" for damaged files, before anything large is allocated; CapacityError.
Result<Model> load(ModelFiles files, const WeightOptions& options = {}, DevicePtr device = {});
/// Opens the files at `path` and loads the model.
Result<Model> load(const std::string& path, const WeightOptions& options = {},
                   DevicePtr device = {});
/// Writes the model as a Hugging Face folder that transformers opens: config.json,
/// model.safetensors in the dtype of the weights, and the tokenizer's files. Reads weights of any
/// memory kind piece by piece. An adapter is not written (fuse() merges it).
/// Errors: those of write_hf_folder and write_tokenizer_files; DiskError.
Result<void> save(const Model& model, const std::string& folder);
/// Bytes that loading and saving move at a time.
inline constexpr int64_t kLoadPieceBytes = int64_t{1} << 20;

}  // namespace stow::lm
