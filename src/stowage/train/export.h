// Export: the adapter or the model of a training checkpoint, in the files that other programs open.
// Not a run; no device is used.
#pragma once

#include <optional>
#include <string>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/core/dtype.h"

namespace stow {

/// What was written.
struct Exported {
  std::string checkpoint;  ///< The JSON file that it comes from.
  int64_t step = 0;
  bool is_ema = false;     ///< The average of the weights (train.ema), not those of the last step.
};

/// Writes the adapter as a PEFT folder. `checkpoint`: a folder of checkpoints, of which the newest
/// counts, or the JSON file of one. Errors: "PATH: reason"; a checkpoint of a run without model.path or
/// without an adapter; those of lm::save_adapter.
Result<Exported> export_adapter(const std::string& checkpoint, const std::string& folder);

/// Writes the model as a Hugging Face folder with its tokenizer's files; an adapter is merged. Its base
/// must be where model.path was. `dtype`: f32 or bf16; none: f32, or with an adapter that of the base.
/// Errors: as above, and those of write_hf_folder and lm::fuse.
Result<Exported> export_model(const std::string& checkpoint, const std::string& folder,
                              std::optional<DType> dtype = {});

}  // namespace stow
