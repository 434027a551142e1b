#include "stowage/lm/model.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "stowage/api/memory.h"
#include "stowage/api/trace.h"
#include "stowage/io/hf_folder.h"
#include "stowage/io/rope.h"
#include "stowage/lm/adapter.h"
#include "stowage/runtime/host_address.h"
#include "stowage/text/tokenizer_export.h"

namespace stow::lm {
namespace {

namespace fs = std::filesystem;

// The tensor of a leaf: its name, or the part behind "model.layers.N.".
struct TensorName {
  std::string name;
  bool is_of_layer = false;
};

TensorName tensor_name(const std::string& leaf) {
  static const std::map<std::string, std::string> kNames = {
      {"embed", "model.embed_tokens.weight"},
      {"norm", "model.norm.weight"},
      {"head", "lm_head.weight"},
      {"layers/wq", "self_attn.q_proj.weight"},
      {"layers/wk", "self_attn.k_proj.weight"},
      {"layers/wv", "self_attn.v_proj.weight"},
      {"layers/wo", "self_attn.o_proj.weight"},
      {"layers/w1", "mlp.gate_proj.weight"},
      {"layers/w3", "mlp.up_proj.weight"},
      {"layers/w2", "mlp.down_proj.weight"},
      {"layers/norm1", "input_layernorm.weight"},
      {"layers/norm2", "post_attention_layernorm.weight"},
      {"layers/bq", "self_attn.q_proj.bias"},
      {"layers/bk", "self_attn.k_proj.bias"},
      {"layers/bv", "self_attn.v_proj.bias"},
      {"layers/bo", "self_attn.o_proj.bias"},
      {"layers/b1", "mlp.gate_proj.bias"},
      {"layers/b3", "mlp.up_proj.bias"},
      {"layers/b2", "mlp.down_proj.bias"},
      {"layers/q_norm", "self_attn.q_norm.weight"},
      {"layers/k_norm", "self_attn.k_norm.weight"}};
  return {kNames.at(leaf), leaf.starts_with("layers/")};
}

std::string full_name(const TensorName& tensor, int64_t layer) {
  return tensor.is_of_layer ? fmt::format("model.layers.{}.{}", layer, tensor.name) : tensor.name;
}

// Gives take(offset in bytes, bytes) all of a leaf in its dtype, in order, a piece at a time: each
// is read to where place(offset, size) has room for it.
template <typename Place, typename Take>
Result<void> each_piece(const WeightSource& source, const std::string& leaf, const ArrayType& type,
                        const Place& place, const Take& take) {
  const TensorName name = tensor_name(leaf);
  const int64_t n = name.is_of_layer ? type.shape[0] : 1;
  for (int64_t l = 0; l < n; ++l) {
    const WeightInfo* tensor = source.find(full_name(name, l));
    if (!tensor) return fail("{}: no tensor '{}'", source.path(), full_name(name, l));
    const int64_t begin = l * (type.bytes() / n);
    const int64_t row_bytes = tensor->row_elements() * dtype_bytes(type.dtype);
    const int64_t rows = std::max<int64_t>(1, kLoadPieceBytes / std::max<int64_t>(row_bytes, 1));
    for (int64_t at = 0; at < tensor->n_rows(); at += rows) {
      const int64_t end = std::min(at + rows, tensor->n_rows());
      const int64_t to = begin + at * row_bytes;
      const std::span<std::byte> out = place(to, static_cast<size_t>((end - at) * row_bytes));
      if (Result<void> read = source.read_rows(*tensor, at, end, type.dtype, out); !read)
        return read;
      take(to, out);
    }
  }
  return {};
}

}  // namespace

nn::DecoderConfig decoder_config(const HfConfig& config, DType compute) {
  nn::DecoderConfig c;
  c.vocab = config.vocab_size;
  c.dim = config.hidden_size;
  c.layers = config.num_hidden_layers;
  c.heads = config.num_attention_heads;
  c.kv_heads = config.num_key_value_heads;
  c.ffn = config.intermediate_size;
  c.tied = config.tie_word_embeddings;
  c.norm_eps = config.rms_norm_eps;
  c.compute = compute;
  c.head_size = config.head_dim;
  c.qkv_bias = config.attention_bias_qkv;
  c.out_bias = config.attention_bias_o;
  c.mlp_bias = config.mlp_bias;
  c.qk_norm = config.qk_norm;
  const RopeFrequencies rope = rope_frequencies(config.rope, config.head_dim);
  c.rotary = {config.rope.theta, rope.inv_freq, rope.attention_scaling};
  c.windows = config.sliding_windows;
  c.out_in = true;
  return c;
}

namespace {

// True if a folder has files of weights, readable or not.
bool has_weights(const fs::path& folder) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json") ||
        name.ends_with(".bin") || name.ends_with(".pth"))
      return true;
  }
  return false;
}

}  // namespace

Result<ModelFiles> ModelFiles::open(const std::string& path) {
  ModelFiles files;
  files.path = path;
  std::error_code error;
  if (!fs::exists(path, error)) return fail("{}: no such file or folder", path);
  const fs::path folder(path);
  const bool is_folder = fs::is_directory(folder, error);
  if (!is_folder || has_weights(folder)) {
    Result<std::unique_ptr<WeightSource>> source = WeightSource::open(path);
    if (!source) return source.failure();
    files.weights = std::move(*source);
    files.config = files.weights->config();
  } else {
    Result<HfConfig> config = HfConfig::load((folder / "config.json").string());
    if (!config) return config.failure();
    files.config = std::move(*config);
  }
  if (const fs::path file = folder / "generation_config.json";
      is_folder && fs::exists(file, error)) {
    Result<GenerationConfig> generation = GenerationConfig::load(file.string());
    if (!generation) return generation.failure();
    files.generation = std::move(*generation);
  }
  if (is_folder && !fs::exists(folder / "tokenizer.json", error)) {
    files.no_text = fmt::format("{}: there is no tokenizer.json", path);
  } else if (Result<text::TokenizerFolder> text = text::TokenizerFolder::load(path); text) {
    files.text = std::move(*text);
  } else {
    files.no_text = text.error();
  }
  return files;
}

const std::vector<int64_t>& ModelFiles::eos_token_ids() const {
  return generation.eos_token_ids.empty() ? config.eos_token_ids : generation.eos_token_ids;
}

DType weight_dtype(const HfConfig& config, const WeightOptions& options) {
  return options.dtype ? *options.dtype : config.dtype.value_or(DType::kF32);
}

DType compute_dtype(const HfConfig& config, const WeightOptions& options) {
  if (options.compute) return *options.compute;
  return weight_dtype(config, options) == DType::kBF16 ? DType::kBF16 : DType::kF32;
}

nn::Decoder abstract_weights(const HfConfig& config, const WeightOptions& options) {
  const DType dtype = weight_dtype(config, options);
  return tree_map(
      [&](const Array& leaf) { return stow::device_put(leaf, options.memory); },
      nn::decoder_abstract(decoder_config(config, compute_dtype(config, options)), dtype));
}

BytesByKind weight_bytes(const HfConfig& config, const WeightOptions& options) {
  BytesByKind bytes{};
  for (const Array& leaf : tree_leaves(abstract_weights(config, options)))
    bytes[static_cast<size_t>(options.memory)] += leaf.type().bytes();
  for (const Array& leaf : tree_leaves(abstract_adapter(config, options)))
    bytes[static_cast<size_t>(MemoryKind::kDevice)] += leaf.type().bytes();
  return bytes;
}

std::optional<nn::Lora> abstract_adapter(const HfConfig& config, const WeightOptions& options) {
  if (!options.adapter) return std::nullopt;
  return options.adapter->types(config);
}

nn::ForwardOptions with_adapter(const std::optional<nn::Lora>& arrays,
                                const WeightOptions& options) {
  nn::ForwardOptions made;
  if (!arrays) return made;
  made.lora = arrays;
  made.lora_config = &options.adapter->lora();
  return made;
}

std::vector<DeviceBufferPtr> Model::arguments() const {
  std::vector<DeviceBufferPtr> all = weights_;
  if (adapter_) all.insert(all.end(), adapter_->buffers.begin(), adapter_->buffers.end());
  return all;
}

nn::Decoder Model::arrays() const {
  const nn::Decoder types = abstract_weights(config(), options_);
  std::vector<Array> leaves = tree_leaves(types);
  for (size_t i = 0; i < leaves.size(); ++i)
    leaves[i] = make_concrete(leaves[i].type(), weights_[i]);
  return tree_unflatten(types, leaves);
}

Result<void> read_weight(const WeightSource& source, const std::string& leaf, const ArrayType& type,
                         DeviceBuffer& buffer, Digest* digest) {
  std::byte* const data = host_address(buffer);
  std::vector<std::byte> piece;
  const auto place = [&](int64_t offset, size_t bytes) -> std::span<std::byte> {
    if (data) return {data + offset, bytes};
    piece.resize(std::max(piece.size(), bytes));
    return {piece.data(), bytes};
  };
  const auto take = [&](int64_t offset, std::span<std::byte> bytes) {
    if (digest) digest->update(bytes);
    if (!data) buffer.write(offset, bytes);
  };
  return each_piece(source, leaf, type, place, take);
}

Result<void> read_weight_slice(const WeightSource& source, const std::string& leaf,
                               const ArrayType& type, const TensorSlice& slice,
                               DeviceBuffer& buffer) {
  if (slice == whole_slice(type.shape.dims())) return read_weight(source, leaf, type, buffer);
  const TensorName name = tensor_name(leaf);
  const int64_t elem_bytes = dtype_bytes(type.dtype);
  std::byte* const data = host_address(buffer);
  std::vector<std::byte> piece;
  // The part of the slice that one layer, or the only tensor, has.
  TensorSlice of_layer = slice;
  int64_t first = 0, n = 1;
  if (name.is_of_layer) {
    first = slice.starts[0];
    n = slice.sizes[0];
    of_layer.starts.erase(of_layer.starts.begin());
    of_layer.sizes.erase(of_layer.sizes.begin());
  }
  const int64_t layer_elems = of_layer.elems();
  const int64_t most = data ? layer_elems : std::max<int64_t>(1, kLoadPieceBytes / elem_bytes);
  for (int64_t l = 0; l < n; ++l) {
    const WeightInfo* tensor = source.find(full_name(name, first + l));
    if (!tensor) return fail("{}: no tensor '{}'", source.path(), full_name(name, first + l));
    for (int64_t at = 0; at < layer_elems; at += most) {
      const int64_t end = std::min(at + most, layer_elems);
      const int64_t to = (l * layer_elems + at) * elem_bytes;
      const auto bytes = static_cast<size_t>((end - at) * elem_bytes);
      if (!data) piece.resize(std::max(piece.size(), bytes));
      const std::span<std::byte> out(data ? data + to : piece.data(), bytes);
      std::span<std::byte> rest = out;
      for (const TensorSlice& part : slices_of_range(of_layer, at, end)) {
        const auto size = static_cast<size_t>(part.elems() * elem_bytes);
        if (Result<void> read = source.read_slice(*tensor, part, type.dtype, rest.first(size));
            !read)
          return read;
        rest = rest.subspan(size);
      }
      if (!data) buffer.write(to, out);
    }
  }
  return {};
}

Result<void> digest_weight(const WeightSource& source, const std::string& leaf,
                           const ArrayType& type, Digest& digest) {
  std::vector<std::byte> piece;
  const auto place = [&](int64_t, size_t bytes) -> std::span<std::byte> {
    piece.resize(std::max(piece.size(), bytes));
    return {piece.data(), bytes};
  };
  const auto take = [&](int64_t, std::span<std::byte> bytes) { digest.update(bytes); };
  return each_piece(source, leaf, type, place, take);
}

Result<std::string> weights_digest(const WeightSource& source, const nn::Decoder& types) {
  Digest digest;
  const std::vector<Array> leaves = tree_leaves(types);
  const std::vector<std::string> paths = tree_paths(types);
  for (size_t i = 0; i < leaves.size(); ++i)
    if (Result<void> read = digest_weight(source, paths[i], leaves[i].type(), digest); !read)
      return read.failure();
  return digest.hex();
}

std::vector<TensorBytes> weight_tensors(
    const std::string& leaf, const ArrayType& type,
    const std::function<void(int64_t, std::span<std::byte>)>& read) {
  const TensorName tensor = tensor_name(leaf);
  const int64_t n = tensor.is_of_layer ? type.shape[0] : 1;
  std::vector<int64_t> shape = type.shape.dims();
  if (tensor.is_of_layer) shape.erase(shape.begin());
  std::vector<TensorBytes> tensors;
  for (int64_t l = 0; l < n; ++l) {
    TensorBytes bytes{full_name(tensor, l), type.dtype, shape, {}, {}};
    bytes.read = [read, begin = l * (type.bytes() / n)](int64_t offset, std::span<std::byte> out) {
      read(begin + offset, out);
    };
    tensors.push_back(std::move(bytes));
  }
  return tensors;
}

Result<Model> load(ModelFiles files, const WeightOptions& options, DevicePtr device) {
  if (!device) device = default_device();
  if (!files.weights)
    return fail("{}: there are no weights: expected model.safetensors, its index or a GGUF file",
                files.path);
  Model model;
  model.options_ = options;
  model.options_.dtype = weight_dtype(files.config, options);
  model.options_.compute = compute_dtype(files.config, options);
  model.decoder_ = decoder_config(files.config, *model.options_.compute);
  model.device_ = device;
  const nn::Decoder types = abstract_weights(files.config, model.options_);
  const std::vector<Array> leaves = tree_leaves(types);
  const std::vector<std::string> paths = tree_paths(types);
  for (size_t i = 0; i < leaves.size(); ++i) {
    const ArrayType& type = leaves[i].type();
    DeviceBufferPtr buffer = device->allocate_unfilled(type.bytes(), type.kind);
    if (Result<void> read = read_weight(*files.weights, paths[i], type, *buffer); !read)
      return read.failure();
    model.weights_.push_back(std::move(buffer));
  }
  if (options.adapter) {
    Result<Adapter> adapter = load_adapter(*options.adapter, files.config, device);
    if (!adapter) return adapter.failure();
    model.adapter_ = std::make_shared<const Adapter>(std::move(*adapter));
  }
  model.files_ = std::move(files);
  return model;
}

Result<void> save(const Model& model, const std::string& folder) {
  const nn::Decoder types = abstract_weights(model.config(), model.options());
  const std::vector<Array> leaves = tree_leaves(types);
  const std::vector<std::string> paths = tree_paths(types);
  std::vector<TensorBytes> tensors;
  for (size_t i = 0; i < leaves.size(); ++i)
    for (TensorBytes& bytes :
         weight_tensors(paths[i], leaves[i].type(),
                        [buffer = model.weights()[i]](int64_t offset, std::span<std::byte> out) {
                          buffer->read(offset, out);
                        }))
      tensors.push_back(std::move(bytes));
  if (Result<void> written = write_hf_folder(folder, model.config(), tensors); !written)
    return written;
  return text::write_tokenizer_files(model.files().path, folder);
}

Result<Model> load(const std::string& path, const WeightOptions& options, DevicePtr device) {
  Result<ModelFiles> files = ModelFiles::open(path);
  if (!files) return files.failure();
  return load(std::move(*files), options, std::move(device));
}

}  // namespace stow::lm
