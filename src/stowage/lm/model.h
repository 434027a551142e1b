// Model: a language model from a Hugging Face folder or a GGUF file, its weights in place.
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

/// The decoder that a configuration describes, computing in `compute`; its matrices are [out, in].
nn::DecoderConfig decoder_config(const HfConfig& config, DType compute);

struct Adapter;
struct AdapterFiles;

/// How weights are held, and the adapter that stands beside them.
struct WeightOptions {
  /// The dtype of weights: f32, bf16 or f16. None: that of the configuration, else f32.
  std::optional<DType> dtype = {};
  MemoryKind memory = MemoryKind::kDevice;  ///< Their memory.
  /// An adapter of the model, on the device in f32; none: the model alone.
  std::shared_ptr<const AdapterFiles> adapter = {};
  /// The dtype of activations and products, f32 or bf16. None: bf16 for weights of bf16, else
  /// f32. Norms, attention scores and logits are summed in f32 all the same.
  std::optional<DType> compute = {};
};

/// The content of a model folder or file, without its weights.
struct ModelFiles {
  std::string path;
  HfConfig config;
  GenerationConfig generation;
  std::optional<text::TokenizerFolder> text;
  std::string no_text;  ///< The reason if `text` is none, as "FILE: reason".
  /// The tensors, unread. Null for a folder with config.json and no weights, which can be planned.
  std::shared_ptr<const WeightSource> weights;

  /// Reads everything but weights. Errors: "PATH: KEY: reason".
  static Result<ModelFiles> open(const std::string& path);
  /// The ids that end a text: generation_config.json's, else those of config.json.
  const std::vector<int64_t>& eos_token_ids() const;
};

/// The type of the weights under these options.
DType weight_dtype(const HfConfig& config, const WeightOptions& options);
/// The type of activations under these options.
DType compute_dtype(const HfConfig& config, const WeightOptions& options);
/// Types of all weights, abstract.
nn::Decoder abstract_weights(const HfConfig& config, const WeightOptions& options);
/// Types of the adapter's arrays; none where there is none.
std::optional<nn::Lora> abstract_adapter(const HfConfig& config, const WeightOptions& options);
/// Options of a forward pass with these arrays, of the adapter that `options` name.
nn::ForwardOptions with_adapter(const std::optional<nn::Lora>& arrays, const WeightOptions& options);
/// Bytes of all weights, of their memory kind, and of the adapter.
BytesByKind weight_bytes(const HfConfig& config, const WeightOptions& options);

/// Reads one leaf of abstract_weights() by its path ("layers/wq") into a buffer of `type`, slice by
/// slice; adds its bytes to `digest` where there is one. What goes to a disk passes through one piece of
/// kLoadPieceBytes of the process's own memory. Errors: "PATH: …"; DiskError.
Result<void> read_weight(const WeightSource& source, const std::string& leaf, const ArrayType& type,
                         DeviceBuffer& buffer, Digest* digest = nullptr);
/// Reads a slice of a leaf into a buffer of its bytes, row-major: the ranges of the files that hold it
/// (WeightSource::read_slice). `type` is the whole leaf's. Uses two pieces of memory beside the buffer.
/// Errors: "PATH: …"; DiskError.
Result<void> read_weight_slice(const WeightSource& source, const std::string& leaf,
                               const ArrayType& type, const TensorSlice& slice,
                               DeviceBuffer& buffer);
/// Adds the bytes of a leaf to a digest, as read_weight() does, without a buffer. Errors: "PATH: …".
Result<void> digest_weight(const WeightSource& source, const std::string& leaf,
                           const ArrayType& type, Digest& digest);
/// The digest that read_weight() gives of all leaves of these types, read in order, without a buffer for
/// any. Errors: "PATH: …".
Result<std::string> weights_digest(const WeightSource& source, const nn::Decoder& types);
/// The same leaf as tensors of files, one a layer; `read(offset, out)` gives its bytes.
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
  /// The first arguments of programs of the model: weights, then the adapter's arrays.
  std::vector<DeviceBufferPtr> arguments() const;
  /// The weights as arrays, for programs of one's own.
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

/// Reads the weights slice by slice to where they lie, then the adapter. The peak is the weights' bytes; what goes to
/// a disk passes through one piece of kLoadPieceBytes of the process's own memory.
/// Errors: "PATH: …" for damaged files, before anything large is allocated; CapacityError.
Result<Model> load(ModelFiles files, const WeightOptions& options = {}, DevicePtr device = {});
/// The same from a path.
Result<Model> load(const std::string& path, const WeightOptions& options = {},
                   DevicePtr device = {});
/// Writes the model as a Hugging Face folder that transformers opens: config.json, model.safetensors in
/// the dtype of the weights, and the tokenizer's files. Reads the weights piece by piece, wherever
/// they lie; an adapter is not written (fuse() merges it). Errors: those of write_hf_folder and of the files' copies; DiskError.
Result<void> save(const Model& model, const std::string& folder);
inline constexpr int64_t kLoadPieceBytes = int64_t{1} << 20;  ///< See load().

}  // namespace stow::lm
