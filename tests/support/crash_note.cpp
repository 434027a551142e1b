#include "tests/support/crash_note.h"

#include <unistd.h>

#include <csignal>

namespace stow::testing {
namespace {

std::string& note() {
  static std::string text;
  return text;
}

void report(int signal) {
  const std::string& text = note();
  if (write(STDERR_FILENO, text.data(), text.size()) < 0) _exit(3);
  std::signal(signal, SIG_DFL);
  raise(signal);
}

}  // namespace

void set_crash_note(std::string text) {
  static const bool installed = [] {
    for (int signal : {SIGABRT, SIGSEGV, SIGFPE, SIGBUS, SIGILL}) std::signal(signal, report);
    return true;
  }();
  (void)installed;
  note() = std::move(text) + "\n";
}

}  // namespace stow::testing
