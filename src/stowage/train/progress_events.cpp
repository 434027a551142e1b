#include "stowage/train/progress_events.h"

#include <array>

namespace stow {

Result<void> ProgressEvents::begin(const std::string& folder, int64_t first_step) {
  if (folder.empty()) return {};
  Result<EventFile> file = EventFile::create(folder, first_step);
  if (!file) return fail("train.tensorboard: {}", file.error());
  file_.emplace(std::move(*file));
  return {};
}

Result<void> ProgressEvents::step(int64_t step, float loss, float grad_norm, float lr,
                                  double tokens_per_s) {
  if (!file_) return {};
  return file_->write(step, std::array<EventScalar, 4>{
                                {{"train/loss", loss},
                                 {"train/grad_norm", grad_norm},
                                 {"train/lr", lr},
                                 {"train/tokens_per_s", static_cast<float>(tokens_per_s)}}});
}

Result<void> ProgressEvents::evaluation(int64_t step, double loss) {
  if (!file_) return {};
  return file_->write(step,
                      std::array<EventScalar, 1>{{{"validation/loss", static_cast<float>(loss)}}});
}

}  // namespace stow
