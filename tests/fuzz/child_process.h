// Settings of fuzz tests from the environment, and checks in child processes that may abort.
// Not the checks.
#pragma once

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <functional>
#include <string>

#include <fmt/format.h>

#include "tests/support/crash_note.h"

namespace stow::testing {

/// Returns a number from an environment variable; `otherwise` if it is unset or empty.
inline uint64_t environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text && *text ? std::strtoull(text, nullptr, 10) : otherwise;
}
/// True if each check runs in a child process: programs whose check aborts can then be shrunk, too.
inline bool forks_checks() {
  return environment("STOW_FUZZ_FORK", 0) != 0;
}

/// Runs `check` in a child process and returns its result, or the signal that ended the child.
inline std::string check_in_child_process(const std::function<std::string()>& check) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    set_crash_note("");
    // Of its own time, so that a busy machine fails nobody.
    const rlimit limit{60, 60};
    setrlimit(RLIMIT_CPU, &limit);
    const std::string fault = check();
    const bool written = write(STDERR_FILENO, fault.data(), fault.size()) >= 0;
    _exit(fault.empty() && written ? 0 : 1);
  }
  close(ends[1]);
  std::string text;
  char part[4096];
  for (ssize_t n; (n = read(ends[0], part, sizeof part)) > 0;)
    text.append(part, static_cast<size_t>(n));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) return fmt::format("signal {}: {}", WTERMSIG(status), text);
  return text;
}

/// Returns a fault's text without its numbers, which stays the same while a failing case is shrunk.
inline std::string kind_of(const std::string& fault) {
  std::string kind;
  for (const char c : fault.substr(0, fault.find('\n')))
    if (!std::isdigit(static_cast<unsigned char>(c))) kind += c;
  return kind.substr(0, kind.starts_with("signal") || kind.starts_with("exception")
                            ? kind.size()
                            : std::min(kind.find(" of type"), kind.size()));
}

}  // namespace stow::testing
