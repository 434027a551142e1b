// SlowWorkNotice: one line on standard error about work that takes more than a second.
// Not a progress bar: the duration of a search is not known.
#pragma once

#include <chrono>
#include <memory>

#include "stowage/base/progress.h"

namespace stow {

/// The process's progress listener during its lifetime. For each outermost piece of work that takes
/// longer than `after`, such as the planning of a large program, it writes "stowage: WHAT takes
/// longer than a second" once. As for set_progress_listener(), no ProgressScope may exist while it
/// is constructed or destroyed.
class SlowWorkNotice : public ProgressListener {
 public:
  explicit SlowWorkNotice(std::chrono::milliseconds after = std::chrono::seconds(1));
  ~SlowWorkNotice() override;

  void begin(const std::string& what) override;
  void end() override;

 private:
  class Clock;
  std::unique_ptr<Clock> clock_;
};

}  // namespace stow
