// Export: the adapter or the model of a training checkpoint, in the files that other programs open.
// Not a run; no device is used.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/core/dtype.h"

namespace stow {

/// Checkpoint of a run that is exported.
enum class WhichCheckpoint : uint8_t {
  kNamed,  ///< The one that is named, or the newest of a folder.
  kBest    ///< The one that this one names as the best in evaluation (eval.keep_best).
};

/// The files that were written.
struct Exported {
  std::string checkpoint;  ///< The JSON file that it comes from.
  int64_t step = 0;
  bool is_ema = false;     ///< The average of the weights (train.ema), not those of the last step.
  std::string model_path;  ///< The model that the run began with.
};

/// Writes the adapter as a PEFT folder, in f32. `checkpoint`: a folder of checkpoints, of which the newest
/// counts, or the JSON file of one. Errors: "PATH: reason"; a checkpoint of a run without model.path or
/// without an adapter; those of lm::save_adapter.
Result<Exported> export_adapter(const std::string& checkpoint, const std::string& folder,
                                WhichCheckpoint which = WhichCheckpoint::kNamed);

/// Writes the model as a Hugging Face folder with its tokenizer's files; an adapter is merged. Its base
/// must be where model.path was. `dtype`: f32 or bf16; none: that of the weights, or with an adapter that
/// of the base.
/// Errors: as above, and those of write_hf_folder and lm::fuse.
Result<Exported> export_model(const std::string& checkpoint, const std::string& folder,
                              std::optional<DType> dtype = {},
                              WhichCheckpoint which = WhichCheckpoint::kNamed);

}  // namespace stow
