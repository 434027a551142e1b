#include "stowage/train/interrupts.h"

#include <unistd.h>

#include "stowage/runtime/comm/world.h"

namespace stow {
namespace {

volatile std::sig_atomic_t interrupted = 0;
volatile std::sig_atomic_t came_from[2] = {0, 0};  // a launcher, others
pid_t launcher = 0;                                // 0 for none
// A signal to a process group may come twice: directly, and forwarded by the launcher.
void on_interrupt(int signal, siginfo_t* info, void*) {
  const bool is_own = launcher != 0 && info->si_code == SI_USER && info->si_pid == launcher;
  volatile std::sig_atomic_t& came = came_from[is_own ? 0 : 1];
  if (came) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  came = 1;
  interrupted = 1;
}

}  // namespace

bool is_asked_to_stop() { return interrupted != 0; }

InterruptGuard::InterruptGuard() {
  interrupted = 0;
  came_from[0] = 0;
  came_from[1] = 0;
  const Result<comm::Launch> launch = comm::launch_of_environment();
  launcher = launch && launch->by == comm::Launch::By::kLauncher ? ::getppid() : 0;
  struct sigaction action {};
  action.sa_sigaction = on_interrupt;
  action.sa_flags = SA_SIGINFO;
  for (size_t k = 0; k < std::size(kSignals); ++k) {
    sigaction(kSignals[k], nullptr, &before_[k]);
    if (before_[k].sa_handler != SIG_IGN) sigaction(kSignals[k], &action, nullptr);
  }
  action = {};
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, &before_pipe_);
}

InterruptGuard::~InterruptGuard() {
  for (size_t k = 0; k < std::size(kSignals); ++k) sigaction(kSignals[k], &before_[k], nullptr);
  sigaction(SIGPIPE, &before_pipe_, nullptr);
}

}  // namespace stow
