// Interrupts: Ctrl-C and SIGTERM ask a run to stop after its step.
// Not the stop, which all processes of a run must agree on; trainer.cpp has that.
#pragma once

#include <csignal>
#include <iterator>

#include "stowage/base/inside.h"

namespace stow {

/// While a guard lives, Ctrl-C or SIGTERM sets is_asked_to_stop(); a second signal kills the
/// process. A signal that was ignored before stays ignored, because a shell ignores SIGINT for
/// background jobs. SIGPIPE is ignored: a write to a closed pipe fails instead, and the run can
/// still save a checkpoint. Only one guard may live at a time.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

 private:
  static constexpr int kSignals[] = {SIGINT, SIGTERM};
  struct sigaction before_[std::size(kSignals)], before_pipe_;
};

/// True if this process got Ctrl-C or SIGTERM since the last guard was made.
bool is_asked_to_stop();

}  // namespace stow
