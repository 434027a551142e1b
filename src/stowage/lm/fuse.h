// Fusing: an adapter added to the weights of its model, written as a folder of Hugging Face.
// Not a run of anything; no device is used.
#pragma once

#include <string>

#include "stowage/base/inside.h"
#include "stowage/lm/adapter.h"
#include "stowage/lm/model.h"

namespace stow::lm {

/// The result of fuse().
struct Fused {
  bool untied = false;  ///< The model's head was its embedding, and is a weight of its own now.
  DType dtype = DType::kF32;
};

/// Writes W + scale B A, summed in f32 and rounded once, with the tokenizer's files. Weights are
/// read, changed and written row by row; the adapter alone is in memory. A tied model whose
/// embedding or head the adapter changes is untied: config.json says tie_word_embeddings false, and
/// lm_head.weight is there. `dtype`: of the files, f32 or bf16; none: that of the weights where it
/// is one of these, else f32. Errors: "PATH: …" of the files; the model has no weights; those of
/// write_hf_folder.
Result<Fused> fuse(const ModelFiles& model, const AdapterFiles& adapter, const std::string& folder,
                   std::optional<DType> dtype = {});

}  // namespace stow::lm
