#include "tests/conformance/rank_runners.h"

#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "stowage/base/error.h"
#include "stowage/runtime/comm/window.h"

namespace stow {
namespace {

std::string say(const RankBody& body, comm::Communicator& communicator) {
  try {
    return body(communicator);
  } catch (const std::exception& e) {
    return e.what();
  }
}

std::string joined(const std::vector<std::string>& texts) {
  std::string result;
  for (const std::string& text : texts)
    if (!text.empty()) result += text + "\n";
  return result;
}

std::string run_all(const std::vector<comm::Communicator*>& communicators, const RankBody& body) {
  std::vector<std::string> texts(communicators.size());
  std::vector<std::thread> threads;
  for (size_t i = 1; i < communicators.size(); ++i)
    threads.emplace_back([&, i] { texts[i] = say(body, *communicators[i]); });
  texts[0] = say(body, *communicators[0]);
  for (std::thread& thread : threads) thread.join();
  return joined(texts);
}

}  // namespace

std::string run_threads(int32_t n_ranks, const RankBody& body, const comm::ThreadOptions& options) {
  const auto communicators = comm::communicators_of_threads(n_ranks, options);
  std::vector<comm::Communicator*> all;
  for (const auto& communicator : communicators) all.push_back(communicator.get());
  return run_all(all, body);
}

std::string run_processes(int32_t n_processes, int32_t devices, const RankBody& body,
                          double timeout_s) {
  const auto region = comm::Region::create(n_processes * devices, devices, true);
  if (!region) return region.error();
  std::vector<pid_t> pids;
  std::vector<int> pipes;
  for (int32_t process = 0; process < n_processes; ++process) {
    int ends[2];
    STOW_CHECK(::pipe(ends) == 0);
    const pid_t pid = ::fork();
    STOW_CHECK(pid >= 0);
    if (pid == 0) {
      std::vector<std::unique_ptr<comm::WindowCommunicator>> own;
      std::vector<comm::Communicator*> all;
      for (int32_t device = 0; device < devices; ++device) {
        own.push_back(std::make_unique<comm::WindowCommunicator>(
            *region, process * devices + device, timeout_s));
        all.push_back(own.back().get());
      }
      const std::string text = run_all(all, body);
      (void)!::write(ends[1], text.data(), text.size());
      ::_exit(0);
    }
    ::close(ends[1]);
    pids.push_back(pid);
    pipes.push_back(ends[0]);
  }
  std::vector<std::string> texts;
  for (const int pipe : pipes) {
    std::string text;
    char buffer[4096];
    for (ssize_t n; (n = ::read(pipe, buffer, sizeof buffer)) > 0;)
      text.append(buffer, static_cast<size_t>(n));
    ::close(pipe);
    if (!text.empty() && text.back() == '\n') text.pop_back();
    texts.push_back(text);
  }
  for (const pid_t pid : pids) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    if (status != 0) texts.push_back(fmt::format("a process ended with status {}", status));
  }
  return joined(texts);
}

}  // namespace stow
