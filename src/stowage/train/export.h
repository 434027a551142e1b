// Export of the adapter or the model of a training checkpoint to PEFT and Hugging Face folders.
// Not a training run; it uses no device.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/core/dtype.h"

namespace stow {

/// The checkpoint of a run to export.
enum class WhichCheckpoint : uint8_t {
  kNamed,  ///< The given checkpoint, or the newest of the given folder.
  kBest    ///< The best in evaluation (eval.keep_best), which the kNamed checkpoint refers to.
};

/// The files that were written.
struct Exported {
  std::string checkpoint;  ///< Path of the checkpoint's JSON file.
  int64_t step = 0;
  bool is_ema = false;     ///< True: the average of the weights (train.ema); false: the weights.
  std::string model_path;  ///< The model that the run began with.
};

/// Writes the adapter as a PEFT folder, in f32. `checkpoint`: a folder, for its newest checkpoint,
/// or the JSON file of a checkpoint.
/// Errors: "PATH: reason"; a checkpoint of a run without model.path or without an adapter; those of
/// lm::save_adapter.
Result<Exported> export_adapter(const std::string& checkpoint, const std::string& folder,
                                WhichCheckpoint which = WhichCheckpoint::kNamed);

/// Writes the model as a Hugging Face folder with its tokenizer's files; an adapter is merged. The
/// base model must still be at model.path. `dtype`: f32 or bf16; none: that of the weights, or with
/// an adapter that of the base.
/// Errors: those of export_adapter(), write_hf_folder and lm::fuse.
Result<Exported> export_model(const std::string& checkpoint, const std::string& folder,
                              std::optional<DType> dtype = {},
                              WhichCheckpoint which = WhichCheckpoint::kNamed);

}  // namespace stow
