// How a fuzz test is told what to run, and how it outlives a check that aborts.
// Not what is checked.
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

inline uint64_t environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text && *text ? std::strtoull(text, nullptr, 10) : otherwise;
}
/// Whether each check runs in a process of its own, so that one that aborts is shrunk as well.
inline bool forks() {
  return environment("STOW_FUZZ_FORK", 0) != 0;
}

/// What `check` says, in a process of its own; and a signal, if that ended it.
inline std::string check_apart(const std::function<std::string()>& check) {
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

/// A fault without its numbers: what stays when a failing case is made smaller.
inline std::string kind_of(const std::string& fault) {
  std::string kind;
  for (const char c : fault.substr(0, fault.find('\n')))
    if (!std::isdigit(static_cast<unsigned char>(c))) kind += c;
  return kind.substr(0, kind.starts_with("signal") || kind.starts_with("exception")
                            ? kind.size()
                            : std::min(kind.find(" of type"), kind.size()));
}

}  // namespace stow::testing
