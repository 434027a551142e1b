// A line on standard error about work that takes more than a second.
// Not a progress bar: how long a search will take is not known.
#pragma once

#include <chrono>
#include <memory>

#include "stowage/base/progress.h"

namespace stow {

/// Listens while it lives. Of each piece of work that takes longer than `after`, such as the planning of a
/// large program, it writes "stowage: WHAT takes longer than a second" once. It is made and ends while no
/// such work runs, as a set_progress_listener() asks.
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
