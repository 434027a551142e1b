// Interrupts: Ctrl-C and SIGTERM ask a run to stop after its step.
// Not the stop itself, on which all processes of a run agree; trainer.cpp has that.
#pragma once

#include <csignal>
#include <iterator>

#include "stowage/base/inside.h"

namespace stow {

/// While one lives, Ctrl-C or SIGTERM sets is_asked_to_stop(); a second one kills the process. A signal that
/// was ignored before stays ignored: a shell ignores SIGINT for what it runs in the background. SIGPIPE is
/// ignored, so that a write fails when its reader ends, and a checkpoint can follow. One lives at a time.
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

/// True if this process was asked to stop since the last guard was made.
bool is_asked_to_stop();

}  // namespace stow
