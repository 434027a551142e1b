// killed_at_call: runs work in a child process that is killed at one of its system calls.
// Not for a process with other threads: the child has only the calling thread.
#pragma once

#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>

#include "stowage/base/error.h"

namespace stow {

/// kEndedBefore: the child made fewer calls. kCannotTrace: the system does not allow ptrace.
enum class Killed { kYes, kEndedBefore, kCannotTrace };

/// Runs `work` in a child and kills it at stop number `n`. Each system call has two stops: before
/// the call and after it.
inline Killed killed_at_call(int n, const std::function<void()>& work) {
  const pid_t child = ::fork();
  STOW_CHECK(child >= 0);
  if (child == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(3);
    std::raise(SIGSTOP);
    work();
    ::_exit(0);
  }
  int status = 0;
  const auto wait = [&] { STOW_CHECK(::waitpid(child, &status, 0) == child); };
  wait();
  if (WIFEXITED(status)) return Killed::kCannotTrace;
  for (int stop = 0;; ++stop) {
    if (stop == n) {
      ::kill(child, SIGKILL);
      wait();
      return Killed::kYes;
    }
    if (::ptrace(PTRACE_SYSCALL, child, nullptr, nullptr) != 0) {
      ::kill(child, SIGKILL);
      wait();
      return Killed::kCannotTrace;
    }
    wait();
    if (WIFEXITED(status)) {
      STOW_CHECK(WEXITSTATUS(status) == 0, "the child ended with {}", WEXITSTATUS(status));
      return Killed::kEndedBefore;
    }
    STOW_CHECK(WIFSTOPPED(status), "status {}", status);
  }
}

}  // namespace stow
