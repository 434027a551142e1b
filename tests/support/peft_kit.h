// PeftKit: tiny models and adapters of peft.json, written as folders from a formula.
// Not the reader under test; the formula is that of make_peft.py.
#pragma once

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "stowage/base/text_file.h"
#include "stowage/io/hf_config.h"
#include "stowage/io/hf_folder.h"
#include "stowage/io/safetensors.h"
#include "stowage/lm/adapter.h"
#include "stowage/lm/score.h"
#include "tests/support/source_path.h"
#include "tests/support/temporary_folder.h"

namespace stow::testing {

inline std::vector<float> peft_values(const std::string& name, const std::vector<int64_t>& shape) {
  uint64_t seed = 0, n = 1;
  for (size_t i = 0; i < name.size(); ++i) seed += (i + 1) * static_cast<unsigned char>(name[i]);
  for (const int64_t extent : shape) n *= static_cast<uint64_t>(extent);
  std::vector<float> values;
  for (uint64_t i = 0; i < n; ++i) {
    uint64_t u = (i * 2654435761u + seed * 40503u) & 0xffffffffu;
    u ^= u >> 15;
    u = (u * 2246822519u) & 0xffffffffu;
    u ^= u >> 13;
    double x = (static_cast<double>(u) / 2147483648.0 - 1.0) * 0.25;
    if (name.ends_with("norm.weight")) x += 1.0;
    values.push_back(static_cast<float>(x));
  }
  return values;
}

/// Tensors that are written from the formula, or from values of a test's own.
class TensorSet {
 public:
  void add(const std::string& name, std::vector<int64_t> shape, std::vector<float> values) {
    entries_[name] = {std::move(shape), std::move(values)};
  }
  void add(const std::string& name, const std::vector<int64_t>& shape, std::string formula = "") {
    add(name, shape, peft_values(formula.empty() ? name : formula, shape));
  }
  void remove(const std::string& name) { entries_.erase(name); }
  std::vector<TensorBytes> bytes() const {
    std::vector<TensorBytes> all;
    for (const auto& [name, entry] : entries_)
      all.push_back({name, DType::kF32, entry.first, std::as_bytes(std::span(entry.second)), {}});
    return all;
  }

 private:
  std::map<std::string, std::pair<std::vector<int64_t>, std::vector<float>>> entries_;
};

inline HfConfig peft_base_config(bool tied) {
  HfConfig c;
  c.vocab_size = 24;
  c.hidden_size = 16;
  c.intermediate_size = 20;
  c.num_hidden_layers = 3;
  c.num_attention_heads = 4;
  c.num_key_value_heads = 2;
  c.head_dim = 4;
  c.max_position_embeddings = 64;
  c.tie_word_embeddings = tied;
  c.sliding_windows.assign(3, 0);
  return c;
}

/// The base model of the cases.
inline void write_base(const std::string& folder, bool tied) {
  TensorSet tensors;
  const HfConfig config = peft_base_config(tied);
  for (const ModelTensor& t : model_tensors(config)) tensors.add(t.name, t.shape);
  const Result<void> written = write_hf_folder(folder, config, tensors.bytes());
  STOW_CHECK(written.ok(), "{}", written.error());
}

inline nlohmann::json peft_cases() {
  return nlohmann::json::parse(std::ifstream(source_path("tests/data/peft.json")));
}

inline TensorSet peft_tensors(const nlohmann::json& one) {
  TensorSet tensors;
  for (const auto& [name, shape] : one["tensors"].items()) {
    std::string formula = name;
    if (const size_t at = name.find(".base_layer"); at != std::string::npos) {
      formula.erase(at, std::string(".base_layer").size());
      formula.erase(0, kPeftPrefix.size());
      if (one["tied"].get<bool>() && formula == "lm_head.weight")
        formula = "model.embed_tokens.weight";
    }
    tensors.add(name, shape.get<std::vector<int64_t>>(), formula);
  }
  return tensors;
}

inline void write_adapter(const std::string& folder, const nlohmann::json& config,
                          const TensorSet& tensors) {
  STOW_CHECK(ensure_directory(folder).ok());
  STOW_CHECK(write_text_file(folder + "/adapter_config.json", config.dump()).ok());
  const Result<void> saved =
      save_safetensors(folder + "/adapter_model.safetensors", tensors.bytes(), {{"format", "pt"}});
  STOW_CHECK(saved.ok(), "{}", saved.error());
}

inline lm::TokenRows peft_tokens(const nlohmann::json& file) {
  lm::TokenRows rows;
  rows.n = static_cast<int64_t>(file["tokens"].size());
  rows.length = static_cast<int64_t>(file["tokens"][0].size());
  for (const auto& row : file["tokens"])
    for (const auto& token : row) rows.tokens.push_back(token.get<int32_t>());
  return rows;
}

}  // namespace stow::testing
