// fuse: merges an adapter into the weights of its model and writes a Hugging Face folder.
// Not a program; it uses no device.
#pragma once

#include <string>

#include "stowage/base/inside.h"
#include "stowage/lm/adapter.h"
#include "stowage/lm/model.h"

namespace stow::lm {

/// The result of fuse().
struct Fused {
  bool untied = false;        ///< True if a tied head has become a weight of its own.
  DType dtype = DType::kF32;  ///< The dtype of the written weights.
};

/// Writes W + scale B A, summed in f32 and rounded once, and the tokenizer's files. Weights are
/// read, changed and written row by row; only the adapter is held in memory. A tied model whose
/// embedding or head the adapter changes is untied: config.json has tie_word_embeddings false, and
/// lm_head.weight is written. `dtype`: of the written weights, f32 or bf16; none: that of the
/// model's weights if it is f32 or bf16, else f32.
/// Errors: "PATH: …" for the files; the model has no weights; those of write_hf_folder.
Result<Fused> fuse(const ModelFiles& model, const AdapterFiles& adapter, const std::string& folder,
                   std::optional<DType> dtype = {});

}  // namespace stow::lm
