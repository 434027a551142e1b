// ProgressEvents: the curves of a run for TensorBoard.
// Not the JSON lines of a run, which have the same values; trainer.cpp writes both.
#pragma once

#include <optional>
#include <string>

#include "stowage/base/inside.h"
#include "stowage/io/event_file.h"

namespace stow {

/// Writes train/loss, train/grad_norm, train/lr, train/tokens_per_s and validation/loss. Writes
/// nothing before begin(), and nothing if begin() was given no folder.
class ProgressEvents {
 public:
  /// Opens a new event file in `folder` (`train.tensorboard`; "" for none) for steps from
  /// `first_step` on. TensorBoard drops events of these steps from earlier files of the folder.
  /// Errors: "train.tensorboard: PATH: reason".
  Result<void> begin(const std::string& folder, int64_t first_step);
  /// Writes the values of a step. They are in the file on return. Errors: "PATH: reason".
  Result<void> step(int64_t step, float loss, float grad_norm, float lr, double tokens_per_s);
  /// Writes the validation loss after a step. Errors: "PATH: reason".
  Result<void> evaluation(int64_t step, double loss);

 private:
  std::optional<EventFile> file_;
};

}  // namespace stow
