// ProgressEvents: the curves of a run for TensorBoard.
// Not the JSON lines of a run, which have the same values; trainer.cpp writes both.
#pragma once

#include <optional>
#include <string>

#include "stowage/base/inside.h"
#include "stowage/io/event_file.h"

namespace stow {

/// Writes train/loss, train/grad_norm, train/lr, train/tokens_per_s and validation/loss. Before begin(),
/// and where that was given no folder, nothing is written.
class ProgressEvents {
 public:
  /// Opens a new event file in the folder (`train.tensorboard`; empty for none) for steps from
  /// `first_step` on. What earlier files of the folder have of these, TensorBoard drops.
  /// Errors: "train.tensorboard: PATH: reason".
  Result<void> begin(const std::string& folder, int64_t first_step);
  /// The values of a step, written before this returns. Errors: "PATH: reason".
  Result<void> step(int64_t step, float loss, float grad_norm, float lr, double tokens_per_s);
  /// The loss on the data held out, after a step. Errors: "PATH: reason".
  Result<void> evaluation(int64_t step, double loss);

 private:
  std::optional<EventFile> file_;
};

}  // namespace stow
