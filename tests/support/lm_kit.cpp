#include "tests/support/lm_kit.h"

#include <algorithm>
#include <cstddef>

#include "stowage/base/error.h"
#include "stowage/io/float_convert.h"
#include "stowage/io/safetensors.h"
#include "tests/support/source_path.h"
#include "tests/support/temporary_folder.h"

namespace stow {

std::vector<float> uniform_of_name(std::string_view name, int64_t n) {
  uint64_t h = 0xcbf29ce484222325;
  for (const char c : name) h = (h ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  std::vector<float> values;
  for (int64_t i = 1; i <= n; ++i) {
    uint64_t x = h + static_cast<uint64_t>(i) * 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    x ^= x >> 31;
    values.push_back(static_cast<float>(static_cast<int64_t>(x >> 40) - (1 << 23)) * 0x1p-23f);
  }
  return values;
}

std::vector<int32_t> formula_tokens(int64_t n, int64_t vocab) {
  std::vector<int32_t> tokens;
  for (const float u : uniform_of_name("tokens", n))
    tokens.push_back(static_cast<int32_t>((double{u} + 1) / 2 * static_cast<double>(vocab)));
  return tokens;
}

HfConfig lm_config(const std::string& name) {
  Result<HfConfig> config = HfConfig::load(source_path("tests/data/lm/" + name + ".json"));
  STOW_CHECK(config.ok(), "{}", config.error());
  return *config;
}

HfConfig small_lm_config() {
  HfConfig config = lm_config("llama");
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 8;
  return config;
}

void write_lm(const std::string& folder, const HfConfig& config, DType dtype) {
  HfConfig typed = config;
  typed.dtype = dtype;
  write_bytes(folder + "/config.json", typed.to_json().dump());
  std::vector<std::vector<std::byte>> values;
  std::vector<TensorBytes> tensors;
  for (const ModelTensor& tensor : model_tensors(typed)) {
    int64_t n = 1;
    for (const int64_t extent : tensor.shape) n *= extent;
    std::vector<float> of = uniform_of_name(tensor.name, n);
    for (float& x : of) {
      if (tensor.name.find("norm") != std::string::npos) {
        x = 1 + x * 0.25f;
      } else if (!tensor.name.starts_with("model.embed")) {
        x *= 0.25f;
      }
    }
    values.emplace_back(static_cast<size_t>(n * dtype_bytes(dtype)));
    convert_from_f32(of, dtype, values.back().data());
    tensors.push_back({tensor.name, dtype, tensor.shape, values.back(), {}});
  }
  const Result<void> saved =
      save_safetensors(folder + "/model.safetensors", tensors, {{"format", "pt"}});
  STOW_CHECK(saved.ok(), "{}", saved.error());
}

void write_lm_tokenizer(const std::string& folder) {
  write_bytes(folder + "/tokenizer.json",
              read_bytes(source_path("tests/data/tokenizers/gpt2.json")));
  write_bytes(
      folder + "/tokenizer_config.json",
      R"({"bos_token": "<s>", "eos_token": "<|im_end|>", "chat_template": )"
      R"("{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %})"
      R"({% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"})");
  write_bytes(folder + "/generation_config.json", R"({"eos_token_id": 3})");
}

lm::TokenRows whole_rows(const std::vector<std::vector<int32_t>>& rows) {
  lm::TokenRows made{
      static_cast<int64_t>(rows.size()), static_cast<int64_t>(rows[0].size()), {}, {}, {}};
  for (const std::vector<int32_t>& row : rows)
    made.tokens.insert(made.tokens.end(), row.begin(), row.end());
  return made;
}

lm::TokenRows padded_rows(const std::vector<std::vector<int32_t>>& rows, int64_t width, bool left) {
  lm::TokenRows made{static_cast<int64_t>(rows.size()), width, {}, {}, {}};
  for (const std::vector<int32_t>& row : rows) {
    const auto n = static_cast<int64_t>(row.size()), start = left ? width - n : 0;
    made.tokens.resize(made.tokens.size() + static_cast<size_t>(width), 0);
    std::copy(row.begin(), row.end(), made.tokens.end() - width + start);
    made.start.push_back(static_cast<int32_t>(start));
    made.lengths.push_back(static_cast<int32_t>(n));
  }
  return made;
}

BytesByKind measured_peaks(const Device& device) {
  BytesByKind peaks{};
  for (size_t kind = 0; kind < peaks.size(); ++kind)
    peaks[kind] = device.high_water_bytes(static_cast<MemoryKind>(kind));
  return peaks;
}

}  // namespace stow
