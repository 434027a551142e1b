#include "stowage/lm/fuse.h"

#include <algorithm>
#include <map>

#include "stowage/api/trace.h"
#include "stowage/base/error.h"
#include "stowage/io/float_convert.h"
#include "stowage/io/hf_folder.h"
#include "stowage/text/tokenizer_export.h"

namespace stow::lm {
namespace {

// A tensor of the base, and what is added to it: scale * left right, left [rows, r], right [r,
// columns].
struct Sum {
  std::string name;  // of the base's tensor
  std::vector<float> left, right;
  int64_t rank = 0;
  float scale = 0;
};

std::vector<float> read_all(const SafetensorsFile& file, std::string_view name) {
  const TensorInfo* tensor = file.find(name);
  STOW_CHECK(tensor, "{}", name);
  std::vector<std::byte> raw(static_cast<size_t>(tensor->n_bytes));
  if (Result<void> read = file.read(*tensor, raw); !read) throw TraceError(read.error());
  std::vector<float> values(raw.size() / static_cast<size_t>(dtype_bytes(tensor->dtype)));
  convert_floats(tensor->dtype, raw, DType::kF32, std::as_writable_bytes(std::span(values)));
  return values;
}

std::vector<float> transposed(const std::vector<float>& x, int64_t rows, int64_t columns) {
  std::vector<float> made(x.size());
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      made[static_cast<size_t>(j * rows + i)] = x[static_cast<size_t>(i * columns + j)];
  return made;
}

// The sums that the targets add, by the name of the model's tensor.
std::map<std::string, Sum> sums_of(const AdapterFiles& adapter) {
  std::map<std::string, Sum> sums;
  for (const PeftTarget& t : adapter.plan.targets) {
    const std::string prefix = fmt::format("{}{}.", kPeftPrefix, t.name);
    Sum sum{t.name + ".weight", {}, {}, t.rank, static_cast<float>(t.scale)};
    if (t.kind == PeftTarget::Kind::kEmbed) {
      // Rows of the embedding are columns of A.
      sum.left = transposed(read_all(*adapter.tensors, prefix + "lora_embedding_A"), t.rank, t.in);
      sum.right =
          transposed(read_all(*adapter.tensors, prefix + "lora_embedding_B"), t.out, t.rank);
    } else {
      sum.left = read_all(*adapter.tensors, prefix + "lora_B.weight");
      sum.right = read_all(*adapter.tensors, prefix + "lora_A.weight");
    }
    sums.emplace(sum.name, std::move(sum));
  }
  return sums;
}

// Adds the product to rows [begin, ..) of `columns` elements.
void add(const Sum& sum, int64_t begin, int64_t columns, std::span<float> rows) {
  const auto n = static_cast<int64_t>(rows.size()) / columns;
  for (int64_t i = 0; i < n; ++i) {
    float* const out = rows.data() + i * columns;
    std::vector<float> delta(static_cast<size_t>(columns), 0.0f);
    for (int64_t r = 0; r < sum.rank; ++r) {
      const float left = sum.left[static_cast<size_t>((begin + i) * sum.rank + r)];
      const float* const right = sum.right.data() + r * columns;
      for (int64_t j = 0; j < columns; ++j) delta[static_cast<size_t>(j)] += left * right[j];
    }
    for (int64_t j = 0; j < columns; ++j) out[j] += sum.scale * delta[static_cast<size_t>(j)];
  }
}

// Gives whole rows as f32 from a source.
using ReadRows = std::function<Result<void>(int64_t begin, int64_t end, std::span<float> out)>;

// A tensor to be written, in `dtype`, from rows that are made when they are asked for.
TensorBytes tensor_of(const ModelTensor& tensor, DType dtype, ReadRows read) {
  TensorBytes made{tensor.name, dtype, tensor.shape, {}, {}};
  const int64_t columns = tensor.shape.back();
  made.read = [columns, dtype, read = std::move(read)](int64_t offset, std::span<std::byte> out) {
    const int64_t row_bytes = columns * dtype_bytes(dtype);
    constexpr int64_t kPieceRows = 64;
    std::vector<float> rows;
    std::vector<std::byte> converted;
    for (size_t done = 0; done < out.size();) {
      const int64_t at = offset + static_cast<int64_t>(done), begin = at / row_bytes;
      const int64_t last = (offset + static_cast<int64_t>(out.size()) + row_bytes - 1) / row_bytes;
      const int64_t end = std::min(last, begin + kPieceRows);
      rows.resize(static_cast<size_t>((end - begin) * columns));
      if (Result<void> got = read(begin, end, rows); !got) throw std::runtime_error(got.error());
      converted.resize(static_cast<size_t>((end - begin) * row_bytes));
      convert_from_f32(rows, dtype, converted.data());
      const size_t from = static_cast<size_t>(at - begin * row_bytes);
      const size_t n = std::min(out.size() - done, converted.size() - from);
      std::copy_n(converted.begin() + static_cast<std::ptrdiff_t>(from), n,
                  out.begin() + static_cast<std::ptrdiff_t>(done));
      done += n;
    }
  };
  return made;
}

}  // namespace

Result<Fused> fuse(const ModelFiles& model, const AdapterFiles& adapter, const std::string& folder,
                   std::optional<DType> dtype) {
  if (!model.weights)
    return fail("{}: expected weights to add an adapter to, got none", model.path);
  Fused fused;
  fused.dtype = weight_dtype(model.config, {.dtype = dtype});
  HfConfig config = model.config;
  const nn::LoraConfig& lora = adapter.lora();
  if (config.tie_word_embeddings &&
      (lora.embed.rank > 0 || lora.head.rank > 0 || lora.saved_embed || lora.saved_head)) {
    config.tie_word_embeddings = false;
    fused.untied = true;
  }
  const std::map<std::string, Sum> sums = sums_of(adapter);
  const auto is_saved = [&](const std::string& name) {
    return (lora.saved_embed && name == "model.embed_tokens.weight") ||
           (lora.saved_head && name == "lm_head.weight") ||
           (lora.saved_norm && name == "model.norm.weight");
  };
  std::vector<TensorBytes> tensors;
  for (const ModelTensor& tensor : model_tensors(config)) {
    const int64_t columns = tensor.shape.size() < 2 ? 1 : tensor.shape.back();
    ReadRows read;
    if (is_saved(tensor.name)) {
      const TensorInfo* saved = adapter.tensors->find(std::string(kPeftPrefix) + tensor.name);
      read = [&adapter, saved, columns](int64_t begin, int64_t end,
                                        std::span<float> out) -> Result<void> {
        const int64_t width = columns * dtype_bytes(saved->dtype);
        std::vector<std::byte> raw(static_cast<size_t>((end - begin) * width));
        if (Result<void> got = adapter.tensors->read_part(*saved, begin * width, raw); !got)
          return got;
        convert_floats(saved->dtype, raw, DType::kF32, std::as_writable_bytes(out));
        return {};
      };
    } else {
      const WeightInfo* weight = model.weights->find(tensor.name);
      if (!weight) weight = model.weights->find("model.embed_tokens.weight");  // a tied head
      const auto sum = sums.find(tensor.name);
      const Sum* const added = sum == sums.end() ? nullptr : &sum->second;
      read = [&model, weight, added, columns](int64_t begin, int64_t end,
                                              std::span<float> out) -> Result<void> {
        if (Result<void> got = model.weights->read_rows(*weight, begin, end, DType::kF32,
                                                        std::as_writable_bytes(out));
            !got)
          return got;
        if (added) add(*added, begin, columns, out);
        return {};
      };
    }
    // A vector is a column of numbers.
    ModelTensor shape = tensor;
    if (shape.shape.size() < 2) shape.shape = {tensor.shape[0], 1};
    TensorBytes made = tensor_of(shape, fused.dtype, std::move(read));
    made.shape = tensor.shape;
    tensors.push_back(std::move(made));
  }
  if (Result<void> written = write_hf_folder(folder, config, tensors); !written)
    return written.failure();
  if (Result<void> text = text::write_tokenizer_files(model.path, folder); !text)
    return text.failure();
  return fused;
}

}  // namespace stow::lm
