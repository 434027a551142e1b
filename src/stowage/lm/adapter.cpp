#include "stowage/lm/adapter.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>

#include "stowage/api/trace.h"
#include "stowage/base/text_file.h"
#include "stowage/io/files.h"
#include "stowage/io/float_convert.h"
#include "stowage/io/json_fields.h"
#include "stowage/lm/model.h"

namespace stow::lm {
namespace {

using Kind = PeftTarget::Kind;
constexpr int64_t kPieceBytes = int64_t{1} << 20;

// A tensor of the folder and where its rows go in a leaf of the adapter.
struct Piece {
  std::string name;
  std::vector<int64_t> shape;
  std::string leaf;
  int64_t at = 0;      ///< The element of the leaf where it begins.
  int64_t stride = 0;  ///< Elements of the leaf from row to row.
};

std::string full_name(std::string_view module, std::string_view part) {
  return fmt::format("{}{}.{}", kPeftPrefix, module, part);
}

const nn::LoraTarget& group_of(const nn::LoraConfig& lora, const PeftTarget& target) {
  switch (target.kind) {
    case Kind::kEmbed:
      return lora.embed;
    case Kind::kHead:
      return lora.head;
    case Kind::kMatrix:
      break;
  }
  return lora.layers[target.matrix];
}

// The tensors of an adapter, in the order of the targets.
std::vector<Piece> pieces_of(const std::vector<PeftTarget>& targets, const nn::LoraConfig& lora,
                             const HfConfig& config) {
  std::vector<Piece> pieces;
  for (const PeftTarget& t : targets) {
    const int64_t widest = group_of(lora, t).rank;
    const bool is_embed = t.kind == Kind::kEmbed;
    std::string leaf = is_embed ? "embed" : "head";
    if (t.kind == Kind::kMatrix) leaf = fmt::format("layers/{}", nn::lora_matrix_name(t.matrix));
    pieces.push_back({full_name(t.name, is_embed ? "lora_embedding_A" : "lora_A.weight"),
                      {t.rank, t.in},
                      leaf + "/a",
                      t.layer * widest * t.in,
                      t.in});
    pieces.push_back({full_name(t.name, is_embed ? "lora_embedding_B" : "lora_B.weight"),
                      {t.out, t.rank},
                      leaf + "/b",
                      t.layer * widest * t.out,
                      widest});
  }
  const int64_t d = config.hidden_size;
  if (lora.saved_embed)
    pieces.push_back(
        {full_name("model.embed_tokens", "weight"), {config.vocab_size, d}, "saved_embed", 0, d});
  if (lora.saved_head)
    pieces.push_back({full_name("lm_head", "weight"), {config.vocab_size, d}, "saved_head", 0, d});
  if (lora.saved_norm)
    pieces.push_back({full_name("model.norm", "weight"), {d}, "saved_norm", 0, d});
  return pieces;
}

bool is_stored_float(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

Result<void> check_tensor(const TensorInfo& tensor, const std::vector<int64_t>& shape) {
  if (tensor.shape == shape && is_stored_float(tensor.dtype)) return {};
  return fail("{}: expected {} or bf16 or f16, got {}", shown_name(tensor.name),
              tensor_type(DType::kF32, shape), tensor_type(tensor.dtype, tensor.shape));
}

// Calls take(first row, f32 values of whole rows) piece by piece. A vector is one row.
template <typename Take>
Result<void> each_rows(const SafetensorsFile& file, const TensorInfo& tensor, Take take) {
  const int64_t row = tensor.shape.empty() ? 1 : tensor.shape.back();
  const int64_t n = tensor.shape.size() < 2 ? 1 : tensor.shape[0];
  const int64_t width = dtype_bytes(tensor.dtype);
  const int64_t most = std::max<int64_t>(1, kPieceBytes / std::max<int64_t>(1, row * 4));
  std::vector<std::byte> raw;
  std::vector<float> values;
  for (int64_t at = 0; at < n; at += most) {
    const int64_t count = std::min(most, n - at) * row;
    raw.resize(static_cast<size_t>(count * width));
    values.resize(static_cast<size_t>(count));
    if (Result<void> read = file.read_part(tensor, at * row * width, raw); !read) return read;
    convert_floats(tensor.dtype, raw, DType::kF32, std::as_writable_bytes(std::span(values)));
    if (Result<void> taken = take(at, std::span<const float>(values)); !taken) return taken;
  }
  return {};
}

// A weight of the base that PEFT stored beside the adapter must be the base's.
Result<void> check_base_weight(const SafetensorsFile& file, const TensorInfo& tensor,
                               std::string name, const WeightSource* base) {
  if (!base) return {};
  const WeightInfo* weight = base->find(name);
  // In a tied model the head is the embedding.
  if (!weight && name == "lm_head.weight") weight = base->find("model.embed_tokens.weight");
  if (!weight) return fail("{}: the model has no such weight", shown_name(tensor.name));
  if (Result<void> good = check_tensor(tensor, weight->shape); !good) return good;
  std::vector<float> own;
  return each_rows(file, tensor, [&](int64_t row, std::span<const float> values) -> Result<void> {
    own.resize(values.size());
    const int64_t n = static_cast<int64_t>(values.size()) / weight->row_elements();
    if (Result<void> read = base->read_rows(*weight, row, row + n, DType::kF32,
                                            std::as_writable_bytes(std::span(own)));
        !read)
      return read;
    // Adapters of a base of bf16 may hold it rounded or not.
    for (size_t i = 0; i < own.size(); ++i)
      if (own[i] != values[i] &&
          bf16_to_f32(f32_to_bf16(own[i])) != bf16_to_f32(f32_to_bf16(values[i])))
        return fail("{}: differs from the model's weight in row {}", shown_name(tensor.name),
                    row + static_cast<int64_t>(i) / weight->row_elements());
    return {};
  });
}

}  // namespace

Result<AdapterFiles> AdapterFiles::open(const std::string& path, const HfConfig& config,
                                        const WeightSource* base) {
  AdapterFiles files;
  files.path = path;
  Result<PeftConfig> peft = PeftConfig::load(path);
  if (!peft) return peft.failure();
  files.peft = std::move(*peft);
  Result<PeftPlan> plan = plan_targets(files.peft, config);
  if (!plan) return fail("{}/adapter_config.json: {}", path, plan.error());
  files.plan = std::move(*plan);
  const std::string tensors_path = path + "/adapter_model.safetensors";
  if (!file_exists(tensors_path) && file_exists(path + "/adapter_model.bin"))
    return fail("{}/adapter_model.bin: pickles are not read; save the adapter as safetensors",
                path);
  Result<SafetensorsFile> opened = SafetensorsFile::open(tensors_path);
  if (!opened) return opened.failure();
  const auto file = std::make_shared<const SafetensorsFile>(std::move(*opened));

  std::set<std::string, std::less<>> used;
  for (const Piece& piece : pieces_of(files.plan.targets, files.lora(), config)) {
    const TensorInfo* tensor = file->find(piece.name);
    if (!tensor) return fail("{}: the tensor {} is missing", tensors_path, shown_name(piece.name));
    if (Result<void> good = check_tensor(*tensor, piece.shape); !good)
      return fail("{}: {}", tensors_path, good.error());
    used.insert(piece.name);
  }
  for (const std::string_view module : {"model.embed_tokens", "lm_head"}) {
    for (const std::string_view part : {"base_layer.weight", "weight"}) {
      const TensorInfo* tensor = file->find(full_name(module, part));
      if (!tensor || used.contains(tensor->name)) continue;
      const std::string name = fmt::format("{}.weight", module);
      if (Result<void> good = check_base_weight(*file, *tensor, name, base); !good)
        return fail("{}: {}", tensors_path, good.error());
      used.insert(tensor->name);
    }
  }
  for (const TensorInfo& tensor : file->tensors())
    if (!used.contains(tensor.name))
      return fail("{}: the tensor {} is of no module that adapter_config.json targets",
                  tensors_path, shown_name(tensor.name));
  files.tensors = file;
  return files;
}

nn::Lora AdapterFiles::types(const HfConfig& config) const {
  return nn::lora_abstract(decoder_config(config, DType::kF32), lora());
}

Result<void> read_adapter_slice(const AdapterFiles& files, const HfConfig& config,
                                const std::string& leaf, const ArrayType& type,
                                const TensorSlice& slice, DeviceBuffer& buffer) {
  // Layers, rows and columns of the leaf, and of the slice; axes that it lacks have one element.
  const auto three = [](std::vector<int64_t> of, int64_t lacking) {
    of.insert(of.begin(), 3 - of.size(), lacking);
    return of;
  };
  const std::vector<int64_t> all = three(type.shape.dims(), 1), starts = three(slice.starts, 0),
                             sizes = three(slice.sizes, 1);
  std::map<int64_t, Piece> pieces;  // by layer
  for (Piece& piece : pieces_of(files.plan.targets, files.lora(), config))
    if (piece.leaf == leaf) {
      const int64_t layer = piece.at / (all[1] * all[2]);
      pieces.emplace(layer, std::move(piece));
    }
  const int64_t elem_bytes = dtype_bytes(type.dtype);
  constexpr auto kFloat = static_cast<int64_t>(sizeof(float));
  const int64_t most = std::max<int64_t>(1, kPieceBytes / std::max<int64_t>(1, all[2] * kFloat));
  std::vector<std::byte> raw, out;
  std::vector<float> stored, rows;
  int64_t offset = 0;
  for (int64_t l = starts[0]; l < starts[0] + sizes[0]; ++l) {
    const auto found = pieces.find(l);
    for (int64_t at = starts[1]; at < starts[1] + sizes[1]; at += most) {
      const int64_t n = std::min(most, starts[1] + sizes[1] - at);
      rows.assign(static_cast<size_t>(n * sizes[2]), 0);  // zeros beyond the layer's own rank
      if (found != pieces.end()) {
        const Piece& piece = found->second;
        const TensorInfo& tensor = *files.tensors->find(piece.name);
        const int64_t width = piece.shape.back();
        const int64_t there = piece.shape.size() < 2 ? 1 : piece.shape[0];
        const int64_t n_stored = std::clamp<int64_t>(there - at, 0, n);
        const int64_t n_columns = std::clamp<int64_t>(width - starts[2], 0, sizes[2]);
        const int64_t row_bytes = width * dtype_bytes(tensor.dtype);
        raw.resize(static_cast<size_t>(n_stored * row_bytes));
        stored.resize(static_cast<size_t>(n_stored * width));
        if (n_stored > 0)
          if (Result<void> read = files.tensors->read_part(tensor, at * row_bytes, raw); !read)
            return read;
        convert_floats(tensor.dtype, raw, DType::kF32, std::as_writable_bytes(std::span(stored)));
        for (int64_t r = 0; r < n_stored; ++r)
          std::copy_n(stored.begin() + r * width + starts[2], n_columns,
                      rows.begin() + r * sizes[2]);
      }
      out.resize(static_cast<size_t>(n * sizes[2] * elem_bytes));
      convert_floats(DType::kF32, std::as_bytes(std::span(rows)), type.dtype, out);
      buffer.write(offset, out);
      offset += static_cast<int64_t>(out.size());
    }
  }
  return {};
}

Result<Adapter> load_adapter(const AdapterFiles& files, const HfConfig& config, DevicePtr device) {
  if (!device) device = default_device();
  const nn::Lora types = files.types(config);
  std::vector<Array> leaves = tree_leaves(types);
  const std::vector<std::string> paths = tree_paths(types);
  Adapter adapter;
  adapter.config = files.lora();
  for (size_t i = 0; i < leaves.size(); ++i) {
    const ArrayType type = leaves[i].type();
    DeviceBufferPtr buffer = device->allocate(type.bytes(), type.kind);
    if (Result<void> read = read_adapter_slice(files, config, paths[i], type,
                                               whole_slice(type.shape.dims()), *buffer);
        !read)
      return read.failure();
    leaves[i] = make_concrete(type, buffer);
    adapter.buffers.push_back(std::move(buffer));
  }
  adapter.arrays = tree_unflatten(types, leaves);
  return adapter;
}

namespace {

// Targets with their ranks and scales.
std::vector<PeftTarget> targets_of(const nn::LoraConfig& lora, const HfConfig& config) {
  std::vector<PeftTarget> targets;
  for (PeftTarget target : all_targets(config)) {
    const nn::LoraTarget& group = group_of(lora, target);
    if (group.rank == 0 || group.rank_of(target.layer) == 0) continue;
    target.rank = group.rank_of(target.layer);
    target.scale = group.scales[static_cast<size_t>(target.layer)];
    targets.push_back(std::move(target));
  }
  return targets;
}

// The alpha that gives a scale of f32; a whole number where one does.
double alpha_of(const PeftTarget& target, bool use_rslora) {
  const auto r = static_cast<double>(target.rank);
  const double divisor = use_rslora ? std::sqrt(r) : r;
  const double alpha = target.scale * divisor, whole = std::round(alpha);
  return static_cast<float>(whole / divisor) == static_cast<float>(target.scale) ? whole : alpha;
}

}  // namespace

PeftConfig peft_config(const nn::LoraConfig& lora, const HfConfig& config,
                       const AdapterExport& options) {
  PeftConfig peft;
  peft.lora_dropout = lora.dropout;
  peft.use_rslora = options.use_rslora;
  peft.base_model_name_or_path = options.base_model;
  const std::vector<PeftTarget> targets = targets_of(lora, config);
  if (targets.empty()) return peft;
  peft.r = targets[0].rank;
  peft.lora_alpha = alpha_of(targets[0], options.use_rslora);
  // A module of all layers goes by its last name, another by its whole one.
  std::map<size_t, int64_t> layers;
  for (const PeftTarget& target : targets)
    if (target.kind == Kind::kMatrix) ++layers[target.matrix];
  std::set<std::string> names;
  for (const PeftTarget& target : targets) {
    const std::string last = target.name.substr(target.name.rfind('.') + 1);
    const bool all =
        target.kind != Kind::kMatrix || layers[target.matrix] == config.num_hidden_layers;
    const std::string& name = all ? last : target.name;
    if (names.insert(name).second) peft.target_modules.names.push_back(name);
    if (target.rank != peft.r) peft.rank_pattern.emplace_back(target.name, target.rank);
    if (const double alpha = alpha_of(target, options.use_rslora); alpha != peft.lora_alpha)
      peft.alpha_pattern.emplace_back(target.name, alpha);
  }
  if (lora.saved_embed) peft.modules_to_save.emplace_back("embed_tokens");
  if (lora.saved_head) peft.modules_to_save.emplace_back("lm_head");
  if (lora.saved_norm) peft.modules_to_save.emplace_back("model.norm");
  return peft;
}

Result<void> save_adapter(const nn::Lora& arrays, const nn::LoraConfig& lora,
                          const HfConfig& config, const std::string& folder,
                          const AdapterExport& options) {
  const std::vector<PeftTarget> targets = targets_of(lora, config);
  if (targets.empty()) return fail("{}: expected an adapter with a matrix, got none", folder);
  const std::vector<std::string> paths = tree_paths(arrays);
  const std::vector<Array> leaves = tree_leaves(arrays);
  std::map<std::string, std::shared_ptr<const std::vector<float>>, std::less<>> values;
  for (size_t i = 0; i < leaves.size(); ++i)
    values[paths[i]] = std::make_shared<const std::vector<float>>(leaves[i].to_vector<float>());
  std::vector<TensorBytes> tensors;
  for (const Piece& piece : pieces_of(targets, lora, config)) {
    TensorBytes tensor{piece.name, DType::kF32, piece.shape, {}, {}};
    tensor.read = [piece, of = values.at(piece.leaf)](int64_t offset, std::span<std::byte> out) {
      constexpr auto kFloat = static_cast<int64_t>(sizeof(float));
      const int64_t row_bytes = piece.shape.back() * kFloat;
      const std::byte* from = std::as_bytes(std::span(*of)).data() + piece.at * kFloat;
      for (size_t done = 0; done < out.size();) {
        const int64_t at = offset + static_cast<int64_t>(done), row = at / row_bytes,
                      in_row = at % row_bytes;
        const size_t n = std::min(out.size() - done, static_cast<size_t>(row_bytes - in_row));
        std::memcpy(out.data() + done, from + row * piece.stride * kFloat + in_row, n);
        done += n;
      }
    };
    tensors.push_back(std::move(tensor));
  }
  if (Result<void> made = ensure_directory(folder); !made) return made;
  if (Result<void> saved =
          save_safetensors(folder + "/adapter_model.safetensors", tensors, {{"format", "pt"}});
      !saved)
    return saved;
  return write_text_file(folder + "/adapter_config.json",
                         peft_config(lora, config, options).to_json().dump() + "\n");
}

}  // namespace stow::lm
