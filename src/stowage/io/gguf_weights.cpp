#include "stowage/io/gguf_weights.h"

#include <algorithm>
#include <charconv>

#include "stowage/base/error.h"
#include "stowage/io/float_convert.h"
#include "stowage/io/json_fields.h"

namespace stow {
namespace {

constexpr std::pair<std::string_view, std::string_view> kTopNames[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
};
constexpr std::pair<std::string_view, std::string_view> kLayerNames[] = {
    {"attn_norm", "input_layernorm"},    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},      {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"}, {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"}, {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
};

// The Hugging Face name of a tensor; its own where it has none. `layer_part` is the part after the
// number of the layer, "attn_q", empty outside of layers.
std::string hf_name(std::string_view name, std::string_view* layer_part) {
  *layer_part = {};
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return std::string(name);
  const std::string_view stem = name.substr(0, dot), suffix = name.substr(dot);
  if (suffix != ".weight" && suffix != ".bias") return std::string(name);
  for (const auto& [gguf, hf] : kTopNames)
    if (gguf == stem) return std::string(hf) + std::string(suffix);
  constexpr std::string_view kBlock = "blk.";
  if (!stem.starts_with(kBlock)) return std::string(name);
  const std::string_view rest = stem.substr(kBlock.size());
  const size_t end = rest.find('.');
  if (end == std::string_view::npos || end == 0) return std::string(name);
  // One spelling of a number, or two tensors might have one name.
  int64_t layer = 0;
  const auto [stop, error] = std::from_chars(rest.data(), rest.data() + end, layer);
  if (error != std::errc() || stop != rest.data() + end || layer < 0 ||
      std::to_string(layer) != rest.substr(0, end))
    return std::string(name);
  for (const auto& [gguf, hf] : kLayerNames)
    if (gguf == rest.substr(end + 1)) {
      *layer_part = gguf;
      return fmt::format("model.layers.{}.{}{}", layer, hf, suffix);
    }
  return std::string(name);
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

class GgufWeights : public WeightSource {
 public:
  GgufWeights(GgufFile file, HfConfig config)
      : WeightSource(file.path(), std::move(config)), file_(std::move(file)) {}

  Result<void> list_tensors();
  const std::string& file_path(size_t) const override { return file_.path(); }
  Result<void> read_rows(const WeightInfo& tensor, int64_t begin, int64_t end, DType dtype,
                         std::span<std::byte> out) const override;

 private:
  // The storage of a tensor, beside the offset in its WeightInfo.
  struct Stored {
    GgmlType type;
    int64_t heads;  // whose rows are permuted; 0: none are
  };
  const Stored& stored_of(const WeightInfo& tensor) const {
    return stored_.find(tensor.name)->second;
  }
  Result<void> read_elements(const WeightInfo& tensor, GgmlType type, int64_t begin, int64_t end,
                             DType dtype, std::byte* out) const;

  GgufFile file_;
  std::map<std::string, Stored, std::less<>> stored_;
};

DType dtype_of(GgmlType type) {
  return type == GgmlType::kF16    ? DType::kF16
         : type == GgmlType::kBF16 ? DType::kBF16
                                   : DType::kF32;
}

// True if the bytes in the file are elements of the dtype.
bool is_plain(GgmlType type) {
  return block_elements(type) == 1;
}

Result<void> GgufWeights::list_tensors() {
  const bool permuted = config().family == ModelFamily::kLlama;
  std::vector<WeightInfo> tensors;
  for (const GgufTensor& tensor : file_.tensors()) {
    if (tensor.name == "rope_freqs.weight") continue;  // part of the configuration
    std::string_view part;
    const std::string name = hf_name(tensor.name, &part);
    if (tensor.shape.size() == 1 && !is_plain(tensor.type))
      return fail("{}: tensor {}: vectors of {} are not supported", path(), shown_name(tensor.name),
                  ggml_name(tensor.type));
    Stored stored{tensor.type, 0};
    if (permuted && part == "attn_q") stored.heads = config().num_attention_heads;
    if (permuted && part == "attn_k") stored.heads = config().num_key_value_heads;
    stored_.emplace(name, stored);
    tensors.push_back({.name = name,
                       .shape = tensor.shape,
                       .dtype = dtype_of(tensor.type),
                       .stored_type = lower_case(ggml_name(tensor.type)),
                       .offset_bytes = tensor.offset_bytes,
                       .n_bytes = tensor.n_bytes});
  }
  return set_tensors(std::move(tensors));
}

// Elements [begin, end) as stored, which are whole blocks.
Result<void> GgufWeights::read_elements(const WeightInfo& tensor, GgmlType type, int64_t begin,
                                        int64_t end, DType dtype, std::byte* out) const {
  constexpr int64_t kValues = 2048, kStoredBytes = kScratchBytes - kValues * 4;
  const int64_t elements = block_elements(type), bytes = block_bytes(type);
  const int64_t offset = tensor.offset_bytes + begin / elements * bytes;
  const int64_t out_bytes = dtype_bytes(dtype);
  if (is_plain(type) && dtype_of(type) == dtype)
    return file_.read(offset, {out, static_cast<size_t>((end - begin) * out_bytes)});
  std::byte stored[kStoredBytes];
  float values[kValues];
  const int64_t n_blocks = (end - begin) / elements;
  const int64_t blocks_at_once = kStoredBytes / bytes, blocks_decoded = kValues / elements;
  for (int64_t at = 0; at < n_blocks; at += blocks_at_once) {
    const int64_t n = std::min(blocks_at_once, n_blocks - at);
    if (Result<void> read =
            file_.read(offset + at * bytes, {stored, static_cast<size_t>(n * bytes)});
        !read)
      return read;
    for (int64_t i = 0; i < n; i += blocks_decoded) {
      const int64_t part = std::min(blocks_decoded, n - i);
      decode_blocks(type, stored + i * bytes, part, values);
      const auto n_values = static_cast<size_t>(part * elements);
      convert_from_f32(std::span(values, n_values), dtype, out);
      out += static_cast<int64_t>(n_values) * out_bytes;
    }
  }
  return {};
}

Result<void> GgufWeights::read_rows(const WeightInfo& tensor, int64_t begin, int64_t end,
                                    DType dtype, std::span<std::byte> out) const {
  STOW_CHECK(0 <= begin && begin <= end && end <= tensor.n_rows(), "rows {} to {} of {}", begin,
             end, tensor.n_rows());
  const int64_t row = tensor.row_elements();
  STOW_CHECK(static_cast<int64_t>(out.size()) == (end - begin) * row * dtype_bytes(dtype),
             "{} bytes for {} rows of {}", out.size(), end - begin, row);
  const Stored& stored = stored_of(tensor);
  if (stored.heads == 0)
    return read_elements(tensor, stored.type, begin * row, end * row, dtype, out.data());
  // llama.cpp rotates adjacent elements and so has the two halves of a head interleaved: its rows
  // are [head_dim / 2, 2] where Hugging Face has [2, head_dim / 2].
  const int64_t width = tensor.n_rows() / stored.heads, half = width / 2;
  for (int64_t r = begin; r < end; ++r) {
    const int64_t in_head = r % width;
    const int64_t from = r - in_head + in_head % half * 2 + in_head / half;
    if (Result<void> read = read_elements(tensor, stored.type, from * row, (from + 1) * row, dtype,
                                          out.data() + (r - begin) * row * dtype_bytes(dtype));
        !read)
      return read;
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<WeightSource>> open_gguf(const std::string& path) {
  Result<GgufFile> file = GgufFile::open(path);
  if (!file) return file.failure();
  Result<HfConfig> config = gguf_config(*file);
  if (!config) return config.failure();
  auto source = std::make_unique<GgufWeights>(std::move(*file), std::move(*config));
  if (Result<void> listed = source->list_tensors(); !listed) return listed.failure();
  return std::unique_ptr<WeightSource>(std::move(source));
}

}  // namespace stow
