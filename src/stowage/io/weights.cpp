#include "stowage/io/weights.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>

#include "stowage/io/gguf_weights.h"
#include "stowage/io/json.h"
#include "stowage/io/json_fields.h"

namespace stow {
namespace {

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t extent : shape) text += (text.size() > 1 ? "," : "") + std::to_string(extent);
  return text + "]";
}

// Buffers that old versions of transformers stored and that follow from the configuration.
bool is_buffer(std::string_view name) {
  return name.ends_with(".rotary_emb.inv_freq");
}

constexpr std::string_view kHead = "lm_head.weight";
constexpr std::string_view kEmbedding = "model.embed_tokens.weight";

}  // namespace

int64_t WeightInfo::row_elements() const {
  int64_t n = 1;
  for (size_t i = 1; i < shape.size(); ++i) n *= shape[i];
  return n;
}

Result<HfConfig> read_model_config(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return HfConfig::load(path + "/config.json");
  const Result<GgufFile> file = GgufFile::open(path);
  if (!file) return file.failure();
  return gguf_config(*file);
}

Result<std::unique_ptr<WeightSource>> WeightSource::open(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored) ? open_safetensors_folder(path)
                                                      : open_gguf(path);
}

const WeightInfo* WeightSource::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

Result<void> WeightSource::read_slice(const WeightInfo& tensor, const TensorSlice& slice,
                                      DType dtype, std::span<std::byte> out) const {
  STOW_CHECK(lies_within(slice, tensor.shape), "{} of {} {}", to_string(slice), tensor.name,
             shape_text(tensor.shape));
  if (slice.elems() == 0) return {};
  const int64_t begin = slice.starts.empty() ? 0 : slice.starts[0];
  const int64_t end = slice.starts.empty() ? 1 : begin + slice.sizes[0];
  if (slice.elems() == (end - begin) * tensor.row_elements())
    return read_rows(tensor, begin, end, dtype, out);
  const int64_t elem_bytes = dtype_bytes(dtype);
  const int64_t row_bytes = tensor.row_elements() * elem_bytes;
  const int64_t n_rows = std::max<int64_t>(1, kSlicePieceBytes / row_bytes);
  std::vector<std::byte> piece(static_cast<size_t>(std::min(n_rows, end - begin) * row_bytes));
  const auto from_piece = [&](int64_t offset, std::span<std::byte> to) -> Result<void> {
    std::memcpy(to.data(), piece.data() + offset, to.size());
    return {};
  };
  for (int64_t row = begin; row < end; row += n_rows) {
    TensorSlice rows = whole_slice(tensor.shape);
    rows.starts[0] = row;
    rows.sizes[0] = std::min(n_rows, end - row);
    const auto bytes = static_cast<size_t>(rows.sizes[0] * row_bytes);
    if (Result<void> read = read_rows(tensor, row, row + rows.sizes[0], dtype,
                                      std::span(piece).first(bytes));
        !read)
      return read;
    if (Result<void> copied = read_common(from_piece, rows, 0, slice, elem_bytes, out); !copied)
      return copied;
  }
  return {};
}

Result<void> WeightSource::set_tensors(std::vector<WeightInfo> tensors) {
  std::erase_if(tensors, [](const WeightInfo& tensor) { return is_buffer(tensor.name); });
  tensors_ = std::move(tensors);
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const auto [other, fresh] = index_.emplace(tensors_[i].name, i);
    if (!fresh)
      return fail("{}: the tensor {} stands in {} too", file_path(tensors_[i].file),
                  shown_name(tensors_[i].name), file_path(tensors_[other->second].file));
  }
  std::set<std::string_view> known;
  const std::vector<ModelTensor> expected = model_tensors(config_);
  for (const ModelTensor& tensor : expected) {
    const WeightInfo* found = find(tensor.name);
    if (!found) return fail("{}: the tensor {} is missing", path_, shown_name(tensor.name));
    if (found->shape != tensor.shape)
      return fail("{}: tensor {}: expected {}, as the configuration has it, got {}",
                  file_path(found->file), shown_name(tensor.name), shape_text(tensor.shape),
                  shape_text(found->shape));
    known.insert(found->name);
  }
  for (const WeightInfo& tensor : tensors_) {
    const bool is_tied_head = config_.tie_word_embeddings && tensor.name == kHead;
    if (is_tied_head && tensor.shape != find(kEmbedding)->shape)
      return fail("{}: tensor {}: expected {}, the shape of the embedding, got {}",
                  file_path(tensor.file), shown_name(tensor.name),
                  shape_text(find(kEmbedding)->shape), shape_text(tensor.shape));
    if (!is_tied_head && !known.contains(tensor.name))
      return fail("{}: the tensor {} is not part of the model that the configuration has",
                  file_path(tensor.file), shown_name(tensor.name));
    if (tensor.dtype != DType::kF32 && tensor.dtype != DType::kBF16 && tensor.dtype != DType::kF16)
      return fail("{}: tensor {}: expected f32, bf16 or f16, got {}", file_path(tensor.file),
                  shown_name(tensor.name), tensor.stored_type);
  }
  return {};
}

Result<void> WeightSource::resolve_tied_head() {
  const WeightInfo* head = find(kHead);
  if (!config_.tie_word_embeddings || !head) return {};
  const WeightInfo& embedding = *find(kEmbedding);
  const int64_t row = head->row_elements();
  const int64_t rows_at_once = std::max<int64_t>(1, (int64_t{1} << 18) / row);
  std::vector<float> a, b;
  for (int64_t at = 0; at < head->n_rows(); at += rows_at_once) {
    const int64_t end = std::min(at + rows_at_once, head->n_rows());
    a.resize(static_cast<size_t>((end - at) * row));
    b.resize(a.size());
    const auto read = [&](const WeightInfo& tensor, std::vector<float>& out) {
      return read_rows(tensor, at, end, DType::kF32, std::as_writable_bytes(std::span(out)));
    };
    if (Result<void> done = read(*head, a); !done) return done;
    if (Result<void> done = read(embedding, b); !done) return done;
    if (a != b) {
      config_.tie_word_embeddings = false;
      return {};
    }
  }
  tensors_.erase(tensors_.begin() + (head - tensors_.data()));
  index_.clear();
  for (size_t i = 0; i < tensors_.size(); ++i) index_.emplace(tensors_[i].name, i);
  return {};
}

}  // namespace stow
