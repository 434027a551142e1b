#include "stowage/cli/launch.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstring>
#include <map>
#include <system_error>
#include <thread>

#include "stowage/base/printable.h"
#include "stowage/cli/commands.h"
#include "stowage/runtime/comm/region.h"
#include "stowage/runtime/comm/world.h"

extern char** environ;

namespace stow {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int32_t kMostProcesses = 1024, kMostDevices = 64;
constexpr int kExitNotStarted = 127;  // as a shell has it
// Time that other processes have to end by themselves. After an error all find the same error and
// end. After a signal they have no error to find; they only come to where they wait.
constexpr milliseconds kGraceOfError(1000), kGraceOfSignal(150);
// Bytes that are kept of what a silent process writes to standard error.
constexpr size_t kKeptBytes = 8192;
constexpr std::string_view kErrorBegin = "stowage: error: ";

// The lines that come through a pipe of a process.
struct Stream {
  int fd = -1;
  int32_t process = 0;
  bool is_error = false;  // standard error
  std::string pending;
};

struct Child {
  pid_t pid = -1;
  bool has_ended = false;
  bool was_killed = false;  // by the launcher, after another had failed
  int status = 0;         // of waitpid
  std::string error;      // what stands behind "stowage: error: "
  std::string last_said;  // the end of what it wrote to standard error
  bool in_error = false;  // the last line was of the error
};

class Supervisor {
 public:
  Supervisor(const LaunchOptions& options, std::span<const std::string> arguments,
             std::string program)
      : options_(options),
        arguments_(arguments.begin(), arguments.end()),
        program_(std::move(program)) {}
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  Result<int> run();

 private:
  Result<void> start(int32_t process);
  void watch();
  void read_signals();
  void read_stream(Stream& stream);
  void take_line(const Stream& stream, const std::string& line);
  void reap();
  void find_abandoned();
  void fail_by(int32_t process, milliseconds grace);
  void signal_all(int signal) const;
  bool all_ended() const;
  std::string waiting_text(int32_t failed) const;
  int conclude() const;

  LaunchOptions options_;
  std::vector<std::string> arguments_;
  std::string program_;  // empty: this one
  std::shared_ptr<comm::Region> region_;
  std::vector<Child> children_;
  std::vector<Stream> streams_;
  int signals_ = -1;
  sigset_t old_mask_{};
  bool mask_is_set_ = false;

  int32_t failed_ = -1;  // the first process that failed
  bool was_abandoned_ = false;
  std::string waiting_;  // what the others wait in, as it was found
  Clock::time_point deadline_{};
  int signal_ = 0;  // that the launcher has got
  Clock::time_point signalled_;
  std::map<int32_t, Clock::time_point> abandoned_since_;
};

Failure system_failure(const char* what) {
  return fail("{}: {}", what, std::system_category().message(errno));
}

std::string name_of_signal(int signal) {
  const char* const name = ::strsignal(signal);
  return fmt::format("signal {} ({})", signal, name == nullptr ? "unknown" : name);
}

Supervisor::~Supervisor() {
  signal_all(SIGKILL);
  for (Child& child : children_)
    if (child.pid > 0 && !child.has_ended) ::waitpid(child.pid, nullptr, 0);
  for (const Stream& stream : streams_)
    if (stream.fd >= 0) ::close(stream.fd);
  if (signals_ >= 0) ::close(signals_);
  if (mask_is_set_) ::pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr);
}

// Between fork and exec only system calls: other threads may hold locks.
Result<void> Supervisor::start(int32_t process) {
  const bool is_first = process == 0, takes_output = options_.log_all;
  int error_pipe[2] = {-1, -1}, output_pipe[2] = {-1, -1};
  if (::pipe2(error_pipe, O_CLOEXEC) != 0) return system_failure("a pipe for a process");
  streams_.push_back({error_pipe[0], process, true, {}});
  if (takes_output) {
    if (::pipe2(output_pipe, O_CLOEXEC) != 0) {
      ::close(error_pipe[1]);
      return system_failure("a pipe for a process");
    }
    streams_.push_back({output_pipe[0], process, false, {}});
  }
  const std::string launch =
      fmt::format("STOW_LAUNCH={}/{}:{}", process, options_.processes, region_->fd());
  std::vector<char*> environment, argv;
  for (char** variable = environ; *variable != nullptr; ++variable)
    if (std::strncmp(*variable, "STOW_LAUNCH=", 12) != 0) environment.push_back(*variable);
  environment.push_back(const_cast<char*>(launch.c_str()));
  environment.push_back(nullptr);
  std::string name = program_.empty() ? "stowage" : program_;
  const char* const path = program_.empty() ? "/proc/self/exe" : program_.c_str();
  argv.push_back(name.data());
  for (std::string& argument : arguments_) argv.push_back(argument.data());
  argv.push_back(nullptr);

  const pid_t parent = ::getpid(), pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(kExitError);
    if (!is_first) {
      const int nothing = ::open("/dev/null", O_RDWR);
      ::dup2(nothing, 0);
      if (!takes_output) ::dup2(nothing, 1);
      if (nothing > 2) ::close(nothing);
    }
    if (takes_output) ::dup2(output_pipe[1], 1);
    ::dup2(error_pipe[1], 2);
    ::fcntl(region_->fd(), F_SETFD, 0);
    ::pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr);
    ::execve(path, argv.data(), environment.data());
    ::_exit(kExitNotStarted);
  }
  ::close(error_pipe[1]);
  if (output_pipe[1] >= 0) ::close(output_pipe[1]);
  if (pid < 0) return system_failure("a process could not be started");
  children_[static_cast<size_t>(process)].pid = pid;
  return {};
}

Result<int> Supervisor::run() {
  Result<std::shared_ptr<comm::Region>> region =
      comm::Region::create(options_.processes * options_.devices, options_.devices, true);
  if (!region) return region.failure();
  region_ = *region;
  sigset_t mask;
  sigemptyset(&mask);
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) {
    // A signal that was ignored before stays ignored: a shell ignores SIGINT for jobs in the
    // background.
    struct sigaction before {};
    ::sigaction(signal, nullptr, &before);
    if (signal == SIGCHLD || before.sa_handler != SIG_IGN) sigaddset(&mask, signal);
  }
  ::pthread_sigmask(SIG_BLOCK, &mask, &old_mask_);
  mask_is_set_ = true;
  signals_ = ::signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
  if (signals_ < 0) return system_failure("signals");
  std::fflush(stdout);
  children_.resize(static_cast<size_t>(options_.processes));
  for (int32_t process = 0; process < options_.processes; ++process)
    if (const Result<void> started = start(process); !started)
      return fail("process {} of {}: {}", process, options_.processes, started.error());
  while (!all_ended()) watch();
  // The last output of the processes may still be in the pipes. Nobody else holds their ends.
  for (Stream& stream : streams_)
    while (stream.fd >= 0) read_stream(stream);
  return conclude();
}

bool Supervisor::all_ended() const {
  return std::all_of(children_.begin(), children_.end(),
                     [](const Child& c) { return c.has_ended; });
}

void Supervisor::signal_all(int signal) const {
  for (const Child& child : children_)
    if (child.pid > 0 && !child.has_ended) ::kill(child.pid, signal);
}

void Supervisor::watch() {
  constexpr int kTickMs = 250;
  std::vector<pollfd> polled = {{signals_, POLLIN, 0}};
  std::vector<size_t> of_stream;
  for (size_t i = 0; i < streams_.size(); ++i) {
    if (streams_[i].fd < 0) continue;
    polled.push_back({streams_[i].fd, POLLIN, 0});
    of_stream.push_back(i);
  }
  int timeout = kTickMs;
  if (failed_ >= 0) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline_ - Clock::now()).count();
    timeout = static_cast<int>(std::clamp<int64_t>(left + 1, 0, kTickMs));
  }
  if (::poll(polled.data(), polled.size(), timeout) > 0) {
    if (polled[0].revents != 0) read_signals();
    for (size_t i = 1; i < polled.size(); ++i)
      if (polled[i].revents != 0) read_stream(streams_[of_stream[i - 1]]);
  }
  reap();
  find_abandoned();
  if (failed_ >= 0 && Clock::now() >= deadline_ && !all_ended()) {
    if (waiting_.empty()) waiting_ = waiting_text(failed_);
    for (Child& child : children_) child.was_killed = child.was_killed || !child.has_ended;
    signal_all(SIGKILL);
  }
}

void Supervisor::read_signals() {
  signalfd_siginfo info;
  while (::read(signals_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    const auto signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) continue;
    // Who signals a process and then its group means it once.
    constexpr auto kSameSignal = milliseconds(100);
    if (signal == signal_ && Clock::now() - signalled_ < kSameSignal) continue;
    // One that a terminal sent has reached the processes too: they are of the launcher's group.
    if (signal_ != 0)
      signal_all(SIGKILL);
    else if (info.ssi_code != SI_KERNEL)
      signal_all(signal);
    if (signal_ == 0) {
      signal_ = signal;
      signalled_ = Clock::now();
    }
  }
}

void Supervisor::read_stream(Stream& stream) {
  char buffer[4096];
  const ssize_t n = ::read(stream.fd, buffer, sizeof buffer);
  if (n < 0 && errno == EINTR) return;
  if (n > 0) stream.pending.append(buffer, static_cast<size_t>(n));
  const bool is_over = n <= 0;
  // A line without an end is taken as it is when it gets long.
  for (size_t end; (end = stream.pending.find('\n')) != std::string::npos ||
                   (!stream.pending.empty() && (is_over || stream.pending.size() > 1 << 16));) {
    const size_t length = std::min(end, stream.pending.size());
    take_line(stream, stream.pending.substr(0, length));
    stream.pending.erase(0, length + (end == std::string::npos ? 0 : 1));
  }
  if (!is_over) return;
  ::close(stream.fd);
  stream.fd = -1;
}

void Supervisor::take_line(const Stream& stream, const std::string& line) {
  Child& child = children_[static_cast<size_t>(stream.process)];
  if (options_.log_all) {
    std::FILE* const to = stream.is_error ? stderr : stdout;
    fmt::print(to, "[{}] {}\n", stream.process, line);
    std::fflush(to);
    if (!stream.is_error) return;
  }
  child.in_error = line.starts_with(kErrorBegin) || (child.in_error && line.starts_with("  "));
  if (child.in_error) {
    child.error += (child.error.empty() ? "" : "\n") +
                   (line.starts_with(kErrorBegin) ? line.substr(kErrorBegin.size()) : line);
    if (child.error.size() > kKeptBytes) child.error.resize(kKeptBytes);
    return;
  }
  child.last_said += line + "\n";
  if (child.last_said.size() > kKeptBytes)
    child.last_said.erase(0, child.last_said.size() - kKeptBytes);
  if (stream.process == 0 && !options_.log_all) fmt::print(stderr, "{}\n", line);
}

void Supervisor::reap() {
  for (size_t i = 0; i < children_.size(); ++i) {
    Child& child = children_[i];
    if (child.has_ended || ::waitpid(child.pid, &child.status, WNOHANG) != child.pid) continue;
    child.has_ended = true;
    if (child.status == 0 || failed_ >= 0) continue;
    fail_by(static_cast<int32_t>(i), WIFSIGNALED(child.status) ? kGraceOfSignal : kGraceOfError);
  }
}

void Supervisor::fail_by(int32_t process, milliseconds grace) {
  failed_ = process;
  deadline_ = Clock::now() + grace;
}

// A process that has ended well, and that another waits for, is lost as well.
void Supervisor::find_abandoned() {
  if (failed_ >= 0) return;
  for (int32_t rank = 0; rank < region_->n_ranks(); ++rank) {
    if (children_[static_cast<size_t>(rank / options_.devices)].has_ended) continue;
    const comm::RankState& state = region_->state(rank);
    const int32_t awaited = state.waits_for.load();
    const bool is_lost =
        awaited >= 0 && awaited < region_->n_ranks() &&
        children_[static_cast<size_t>(awaited / options_.devices)].has_ended &&
        !(state.awaits_read.load() != 0
              ? region_->is_chunk_done(rank, awaited, state.awaited_number.load(), true)
              : region_->is_chunk_done(awaited, rank, state.awaited_number.load(), false));
    if (!is_lost) continue;
    was_abandoned_ = true;
    return fail_by(awaited / options_.devices, kGraceOfSignal);
  }
}

std::string Supervisor::waiting_text(int32_t failed) const {
  for (int32_t rank = 0; rank < region_->n_ranks(); ++rank) {
    if (rank / options_.devices == failed) continue;
    if (children_[static_cast<size_t>(rank / options_.devices)].has_ended) continue;
    const comm::RankState& state = region_->state(rank);
    if (state.inside.load() == 0 || state.waits_for.load() < 0) continue;
    const uint64_t call = state.call.load();
    return fmt::format("process {} waits in {} (its collective {})", rank / options_.devices,
                       comm::record_name(state, call), call);
  }
  return "no other waits in a collective";
}

// One line about what has happened, and the status of the command.
int Supervisor::conclude() const {
  if (failed_ < 0) return kExitDone;
  const Child& first = children_[static_cast<size_t>(failed_)];
  const auto say = [](const std::string& text) {
    fmt::print(stderr, "{}{}\n", kErrorBegin, printable(text));
  };
  const bool by_signal = WIFSIGNALED(first.status);
  if (signal_ != 0 && (by_signal || WEXITSTATUS(first.status) == 128 + signal_))
    return 128 + signal_;
  if (was_abandoned_) {
    say(fmt::format("process {} has ended; {}", failed_, waiting_));
    return kExitError;
  }
  if (by_signal) {
    if (failed_ != 0 || options_.log_all)
      std::fputs(first.last_said.c_str(), options_.log_all ? stdout : stderr);
    say(fmt::format("process {} was ended by {}; {}", failed_,
                    name_of_signal(WTERMSIG(first.status)), waiting_));
    return kExitError;
  }
  // All say the same, or the first says it for all.
  const int status = WEXITSTATUS(first.status);
  if (status == kExitNotStarted && first.error.empty() && first.last_said.empty()) {
    say(fmt::format("{} could not be started", program_.empty() ? "this program" : program_));
    return status;
  }
  bool alike = true, same_status = true;
  for (const Child& child : children_) {
    if (child.was_killed) continue;
    alike = alike && child.error == first.error;
    same_status = same_status && child.status == first.status;
  }
  if (options_.log_all) return status;
  if (first.error.empty() && same_status) {
    for (const Child& child : children_)
      if (!child.was_killed && !child.error.empty()) {
        say(child.error);
        return status;
      }
  }
  if (!first.error.empty()) {
    const bool names_process = first.error.starts_with("process ");
    say(alike || names_process ? first.error : fmt::format("process {}: {}", failed_, first.error));
  } else if (!same_status) {
    if (failed_ != 0) std::fputs(first.last_said.c_str(), stderr);
    say(fmt::format("process {} ended with status {}; {}", failed_, status,
                    waiting_.empty() ? "no other waits in a collective" : waiting_));
  }
  return status;
}

Result<int32_t> number_of(const std::string& option, const std::string& text, int32_t most) {
  int32_t number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code != std::errc() || end != text.data() + text.size() || number < 1 || number > most)
    return fail("{} {}: expected a number from 1 to {}", option, text, most);
  return number;
}

}  // namespace

Result<LaunchOptions> take_launch_options(std::vector<std::string>& arguments) {
  LaunchOptions options;
  std::vector<std::string> left;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    const bool is_taken = name == "--processes" || name == "--log-ranks";
    if (!is_taken && name != "--devices") {
      left.push_back(argument);
      continue;
    }
    if (equals == std::string::npos && i + 1 == arguments.size())
      return fail("{}: expected a value behind it", name);
    const std::string value =
        equals == std::string::npos ? arguments[++i] : argument.substr(equals + 1);
    if (name == "--log-ranks") {
      if (value != "all" && value != "first")
        return fail("--log-ranks {}: expected all or first", value);
      options.log_ranks = value;
      options.log_all = value == "all";
      continue;
    }
    const Result<int32_t> number =
        number_of(name, value, is_taken ? kMostProcesses : kMostDevices);
    if (!number) return number.failure();
    (is_taken ? options.processes : options.devices) = *number;
    options.has_processes = options.has_processes || is_taken;
    if (!is_taken) left.insert(left.end(), {name, value});
  }
  if (options.processes > 4096 / options.devices)
    return fail("{} processes with {} devices each: expected at most 4096 ranks on a host",
                options.processes, options.devices);
  arguments = std::move(left);
  return options;
}

void add_launch_options(CLI::App& app, LaunchOptions& options) {
  app.add_option("--processes", options.processes, "Processes to start on this host (default 1)");
  app.add_option("--devices", options.devices, "Devices of each process (default 1)");
  app.add_option(
      "--log-ranks", options.log_ranks,
      "Processes that print: first (the default), or all, with [PROCESS] before each line");
}

Result<int> run_in_processes(const LaunchOptions& options, std::span<const std::string> arguments,
                             const std::string& program) {
  return Supervisor(options, arguments, program).run();
}

void defer_to_first_process() {
  constexpr milliseconds kFirst(3000), kEach(40), kMost(6000);
  const Result<comm::Launch> place = comm::launch_of_environment();
  if (!place || place->by != comm::Launch::By::kMpirun || place->process == 0) return;
  // A training step answers it by going on to its end.
  std::signal(SIGTERM, SIG_DFL);
  std::this_thread::sleep_for(std::min(kFirst + place->process * kEach, kMost));
}

Result<int> launch(const std::string& name, std::vector<std::string> arguments,
                   Result<int> (*run)(std::span<const std::string>)) {
  const Result<LaunchOptions> options = take_launch_options(arguments);
  if (!options) return fail("{}: {}", name, options.error());
  const Result<comm::Launch> place = comm::launch_of_environment();
  if (!place) return place.failure();
  using By = comm::Launch::By;
  if (place->by == By::kItself && options->processes > 1) {
    arguments.insert(arguments.begin(), name);
    return run_in_processes(*options, arguments);
  }
  if (place->by == By::kMpirun) {
    if (options->has_processes)
      return fail(
          "{}: --processes {} has no effect under mpirun, which has started {}; leave it out", name,
          options->processes, place->n_processes);
    if (place->process > 0 && !options->log_all &&
        std::freopen("/dev/null", "w", stdout) == nullptr)
      return system_failure("/dev/null");
  }
  return run(arguments);
}

}  // namespace stow
