#include "stowage/io/hf_folder.h"

#include <map>

#include "stowage/base/text_file.h"
#include "stowage/io/files.h"
#include "stowage/io/json_fields.h"

namespace stow {
namespace {

Result<void> check_tensors(const HfConfig& config, std::span<const TensorBytes> tensors) {
  std::map<std::string_view, const TensorBytes*> given;
  for (const TensorBytes& tensor : tensors) given[tensor.name] = &tensor;
  const std::vector<ModelTensor> expected = model_tensors(config);
  for (const ModelTensor& tensor : expected) {
    const auto found = given.find(tensor.name);
    if (found == given.end()) return fail("the tensor {} is missing", shown_name(tensor.name));
    const TensorBytes& got = *found->second;
    const DType dtype = tensors[0].dtype;
    if (got.shape != tensor.shape || got.dtype != dtype)
      return fail("tensor {}: expected {}, got {}", shown_name(tensor.name),
                  tensor_type(dtype, tensor.shape), tensor_type(got.dtype, got.shape));
  }
  if (tensors.size() != expected.size())
    return fail("expected the {} tensors of the configuration, got {}", expected.size(),
                tensors.size());
  const DType dtype = tensors[0].dtype;
  if (dtype != DType::kF32 && dtype != DType::kBF16 && dtype != DType::kF16)
    return fail("expected tensors of f32, bf16 or f16, got {}", dtype_name(dtype));
  return {};
}

Result<void> check_expressible(const HfConfig& config) {
  if (!config.rope.divisors.empty())
    return fail("config.json cannot express divisors of rotary frequencies");
  const bool one_flag =
      config.family == ModelFamily::kLlama || config.family == ModelFamily::kQwen3;
  if (one_flag && config.attention_bias_qkv != config.attention_bias_o)
    return fail("config.json of {} cannot express biases of q, k and v and none of o",
                family_name(config.family));
  return {};
}

}  // namespace

Result<void> write_hf_folder(const std::string& folder, HfConfig config,
                             std::span<const TensorBytes> tensors) {
  Result<void> checked = check_expressible(config);
  if (checked) checked = check_tensors(config, tensors);
  if (!checked) return fail("{}: {}", folder, checked.error());
  config.dtype = tensors[0].dtype;
  if (Result<void> made = ensure_directory(folder); !made) return made;
  if (Result<void> saved =
          save_safetensors(folder + "/model.safetensors", tensors, {{"format", "pt"}});
      !saved)
    return saved;
  return write_text_file(folder + "/config.json", config.to_json().dump() + "\n");
}

}  // namespace stow
