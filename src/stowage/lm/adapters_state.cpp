#include <map>
#include <set>

#include "stowage/api/trace.h"
#include "stowage/io/json_fields.h"
#include "stowage/io/peft_files.h"
#include "stowage/io/safetensors.h"
#include "stowage/lm/adapters.h"

// A slot's state as a file. Tensors, f32: "weights/…", and with an optimizer "mu/…" and "nu/…",
// each with the path of a leaf of nn::Lora; "scales/TARGET" of every target, and i32 "ranks/TARGET"
// where ranks differ by layer. Metadata: "format", "steps".

namespace stow::lm {
namespace {

const char* const kFormat = "stowage-adapter-1";

std::vector<std::pair<std::string, nn::LoraTarget*>> targets_of(nn::LoraConfig& config) {
  std::vector<std::pair<std::string, nn::LoraTarget*>> targets;
  for (size_t m = 0; m < nn::kNumLoraMatrices; ++m)
    targets.emplace_back(fmt::format("layers/{}", nn::lora_matrix_name(m)), &config.layers[m]);
  targets.emplace_back("embed", &config.embed);
  targets.emplace_back("head", &config.head);
  return targets;
}

template <typename T>
std::span<const std::byte> raw(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

// Reads a tensor of a dtype and shape, or says that it is not there.
template <typename T>
Result<std::vector<T>> read_tensor(const SafetensorsFile& file, const std::string& name,
                                   const std::vector<int64_t>& shape, std::set<std::string>& used) {
  const DType dtype = dtype_of<T>();
  const TensorInfo* tensor = file.find(name);
  if (!tensor) return fail("{}: the tensor {} is missing", file.path(), name);
  if (tensor->dtype != dtype || tensor->shape != shape)
    return fail("{}: {}: expected {}, got {}", file.path(), name, tensor_type(dtype, shape),
                tensor_type(tensor->dtype, tensor->shape));
  std::vector<T> values(static_cast<size_t>(tensor->n_bytes) / sizeof(T));
  if (Result<void> read = file.read(*tensor, std::as_writable_bytes(std::span(values))); !read)
    return read.failure();
  used.insert(name);
  return values;
}

Result<nn::Lora> read_lora(const SafetensorsFile& file, const std::string& group,
                           const nn::Lora& types, std::set<std::string>& used) {
  std::vector<Array> leaves = tree_leaves(types);
  const std::vector<std::string> paths = tree_paths(types);
  for (size_t i = 0; i < leaves.size(); ++i) {
    const Dims& dims = leaves[i].shape().dims();
    Result<std::vector<float>> values =
        read_tensor<float>(file, group + "/" + paths[i], {dims.begin(), dims.end()}, used);
    if (!values) return values.failure();
    leaves[i] = Array::from(*values, leaves[i].shape());
  }
  return tree_unflatten(types, leaves);
}

}  // namespace

Result<void> SlotState::save(const std::string& path) const {
  nn::LoraConfig fixed = config;
  std::vector<std::pair<TensorBytes, std::vector<float>>> floats;
  std::vector<std::pair<TensorBytes, std::vector<int32_t>>> integers;
  const auto add = [&](std::string name, std::vector<int64_t> shape, std::vector<float> values) {
    floats.push_back({{std::move(name), DType::kF32, std::move(shape), {}, {}}, std::move(values)});
  };
  const auto add_lora = [&](const std::string& group, const nn::Lora& lora) {
    const std::vector<Array> leaves = tree_leaves(lora);
    const std::vector<std::string> paths = tree_paths(lora);
    for (size_t i = 0; i < leaves.size(); ++i) {
      const Dims& dims = leaves[i].shape().dims();
      add(group + "/" + paths[i], {dims.begin(), dims.end()}, leaves[i].to_vector<float>());
    }
  };
  add_lora("weights", weights);
  if (optimizer) {
    add_lora("mu", optimizer->mu);
    add_lora("nu", optimizer->nu);
  }
  for (const auto& [name, target] : targets_of(fixed)) {
    if (target->rank == 0) continue;
    add("scales/" + name, {static_cast<int64_t>(target->scales.size())}, target->scales);
    if (target->ranks.empty()) continue;
    const std::vector<int32_t> ranks(target->ranks.begin(), target->ranks.end());
    integers.push_back(
        {{"ranks/" + name, DType::kI32, {static_cast<int64_t>(ranks.size())}, {}, {}}, ranks});
  }
  std::vector<TensorBytes> tensors;
  for (auto& [tensor, values] : floats) {
    tensor.bytes = raw(values);
    tensors.push_back(tensor);
  }
  for (auto& [tensor, values] : integers) {
    tensor.bytes = raw(values);
    tensors.push_back(tensor);
  }
  std::map<std::string, std::string> metadata = {{"format", kFormat}};
  if (optimizer) metadata["steps"] = std::to_string(optimizer->steps);
  return save_safetensors(path, tensors, metadata);
}

Result<SlotState> SlotState::load(const std::string& path, const HfConfig& config) {
  const Result<SafetensorsFile> file = SafetensorsFile::open(path);
  if (!file) return file.failure();
  const auto& metadata = file->metadata();
  if (const auto format = metadata.find("format");
      format == metadata.end() || format->second != kFormat)
    return fail("{}: expected the state of an adapter, \"format\": \"{}\", got {}", path, kFormat,
                format == metadata.end() ? "no format" : shown_name(format->second));
  const nn::DecoderConfig decoder = decoder_config(config, DType::kF32);
  const DefaultDevice guard(Device::cpu());
  std::set<std::string> used;
  SlotState state;
  for (const auto& [name, target] : targets_of(state.config)) {
    const TensorInfo* a = file->find(fmt::format("weights/{}/a", name));
    if (!a) continue;
    const bool is_of_layers = name.starts_with("layers/");
    const size_t axis = is_of_layers ? 1 : 0;
    if (a->shape.size() != axis + 2 || a->shape[axis] < 1 || a->shape[axis] > kMaxPeftRank)
      return fail("{}: {}: expected a rank of 1 to {}, got {}", path, a->name, kMaxPeftRank,
                  tensor_type(a->dtype, a->shape));
    target->rank = a->shape[axis];
    const int64_t n = is_of_layers ? decoder.layers : 1;
    Result<std::vector<float>> scales = read_tensor<float>(*file, "scales/" + name, {n}, used);
    if (!scales) return scales.failure();
    target->scales = std::move(*scales);
    if (!file->find("ranks/" + name)) continue;
    Result<std::vector<int32_t>> ranks = read_tensor<int32_t>(*file, "ranks/" + name, {n}, used);
    if (!ranks) return ranks.failure();
    for (const int32_t rank : *ranks)
      if (rank < 0 || rank > target->rank)
        return fail("{}: ranks/{}: expected 0 to {}, got {}", path, name, target->rank, rank);
    target->ranks.assign(ranks->begin(), ranks->end());
  }
  const nn::Lora types = nn::lora_abstract(decoder, state.config);
  Result<nn::Lora> weights = read_lora(*file, "weights", types, used);
  if (!weights) return weights.failure();
  state.weights = std::move(*weights);
  if (const auto steps = metadata.find("steps"); steps != metadata.end()) {
    SlotState::Optimizer optimizer;
    const std::string& text = steps->second;
    if (text.empty() || text.size() > 18 ||
        text.find_first_not_of("0123456789") != std::string::npos)
      return fail("{}: steps: expected a number, got {}", path, text.substr(0, 40));
    optimizer.steps = std::stoll(text);
    for (const auto& [group, to] :
         {std::pair("mu", &optimizer.mu), std::pair("nu", &optimizer.nu)}) {
      Result<nn::Lora> moments = read_lora(*file, group, types, used);
      if (!moments) return moments.failure();
      *to = std::move(*moments);
    }
    state.optimizer = std::move(optimizer);
  }
  for (const TensorInfo& tensor : file->tensors())
    if (!used.contains(tensor.name))
      return fail("{}: the tensor {} does not belong to the state of an adapter", path,
                  tensor.name);
  return state;
}

}  // namespace stow::lm
