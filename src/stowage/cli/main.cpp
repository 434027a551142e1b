#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstdio>
#include <exception>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "stowage/base/error.h"
#include "stowage/base/nearest.h"
#include "stowage/base/printable.h"
#include "stowage/base/version.h"
#include "stowage/cli/allocate.h"
#include "stowage/cli/commands.h"
#include "stowage/cli/launch.h"
#include "stowage/cli/process_group.h"
#include "stowage/base/slow_work.h"
#include "stowage/runtime/comm/world.h"
#include "stowage/runtime/target.h"

namespace {

using namespace stow;

struct Row {
  const char* name;
  const char* help;
  Command run;
};

Result<int> run_allocate(std::span<const std::string> arguments) {
  std::string name = "allocate";
  std::vector<std::string> copies(arguments.begin(), arguments.end());
  std::vector<char*> argv = {name.data()};
  for (std::string& a : copies) argv.push_back(a.data());
  return cli::run_allocate(static_cast<int>(argv.size()), argv.data());
}

const std::vector<Row> kCommands = {
    {"train", "trains a language model under a memory budget", run_train},
    {"plan", "says what a run would need, without running it", run_plan},
    {"sweep", "plans a job over the meshes of a number of devices, as a table", run_sweep},
    {"profile", "says where the time of a step goes", run_profile},
    {"calibrate", "measures this machine, for the step times of plans", run_calibrate},
    {"config", "checks a configuration and prints it whole", run_config},
    {"tokenize", "turns texts into ids of a tokenizer, and back", run_tokenize},
    {"score", "scores tokens under a model: log-probabilities, perplexity", run_score},
    {"generate", "continues prompts with a model", run_generate},
    {"export", "writes the model or the adapter of a training checkpoint", run_export},
    {"fuse", "merges an adapter into its model", run_fuse},
    {"launch", "starts a program of yours as several processes", run_launch},
    {"run", "runs a printed graph on inputs from a file", run_graph_file},
    {"bench", "measures programs and collectives: step, program1, collectives, placement",
     run_bench},
    {"allocate", "packs the buffers of a CSV file", run_allocate},
};

// Only process 0 reports that work takes long.
Result<int> run_train_noticed(std::span<const std::string> arguments) {
  const Result<comm::Launch> place = comm::launch_of_environment();
  std::optional<SlowWorkNotice> notice;
  if (!place || place->process == 0) notice.emplace();
  return run_train(arguments);
}

// The function of a command that may run as several processes; null for another command.
Command launched_command(std::span<const std::string> arguments) {
  constexpr std::string_view kBenches[] = {"collectives", "placement"};
  if (arguments[0] == "train") return run_train_noticed;
  if (arguments[0] == "bench" && arguments.size() > 1 &&
      std::find(std::begin(kBenches), std::end(kBenches), arguments[1]) != std::end(kBenches))
    return run_bench;
  return nullptr;
}

void print_help() {
  fmt::print("Stowage trains neural networks under a memory budget, exactly.\n\n");
  for (const Row& row : kCommands) fmt::print("  {:<12}{}\n", row.name, row.help);
  fmt::print(
      "\n./stowage COMMAND --help lists the options of a command; --version tells the version.\n"
      "STOW_ISA=avx512 in the environment limits kernels to AVX-512 (no tiles), =avx2 to AVX2, "
      "=baseline to plain code without vectors.\n");
}

// Lines that go on are indented; a line break that stands in a name is none.
std::string in_lines(std::string text) {
  for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos; ++at)
    if (text.compare(at + 1, 2, "  ") != 0) text[at] = '?';
  return text;
}

int error(const std::string& message, int status = kExitError) {
  std::fflush(stdout);
  defer_to_first_process();
  const std::string text = fmt::format("stowage: error: {}\n", printable(in_lines(message)));
  std::fputs(text.c_str(), stderr);  // fmt::print would throw where nobody can hear it
  return status;
}

// Files that are opened later must not become the standard streams: what the program says would go
// into them. Input and standard output that are not there fail when they are used.
void hold_standard_streams() {
  constexpr int kFlags[] = {O_WRONLY, O_RDONLY, O_WRONLY};
  for (int fd = 0; fd < 3; ++fd)
    if (::fcntl(fd, F_GETFD) < 0) (void)::open("/dev/null", kFlags[fd]);
}

int dispatch(const std::vector<std::string>& arguments) {
  const std::string name = arguments.empty() ? "help" : arguments[0];
  if (name == "help" || name == "-h" || name == "--help") {
    print_help();
    return kExitDone;
  }
  if (name == "version" || name == "--version") {
    fmt::print("stowage {}.{}.{}\n", STOW_VERSION_MAJOR, STOW_VERSION_MINOR, STOW_VERSION_PATCH);
    return kExitDone;
  }
  if (const Result<void> limited = check_instruction_set(); !limited)
    return error(limited.error());
  // Before any thread: the launcher forks.
  if (const Command command = launched_command(arguments); command || name == "launch") {
    std::vector<std::string> own(arguments.begin() + 1, arguments.end());
    if (name == "train") add_devices_of_mesh(own);
    const Result<int> status =
        command ? launch(name, std::move(own), command) : run_launch(own);
    return status ? *status : error(status.error());
  }
  const SlowWorkNotice notice;
  std::vector<std::string> names;
  for (const Row& row : kCommands) {
    names.push_back(row.name);
    if (name != row.name) continue;
    const Result<int> status = row.run(std::span(arguments).subspan(1));
    return status ? *status : error(status.error());
  }
  return error(fmt::format("no command '{}'; did you mean '{}'?", name, nearest_name(name, names)));
}

}  // namespace

int main(int argc, char** argv) {
  // Threads that wait must not spin for long: on a shared machine a spinning thread keeps the one
  // it waits for off its core. The OpenMP runtime reads this before main, hence the second start.
  if (!std::getenv("GOMP_SPINCOUNT") && !std::getenv("OMP_WAIT_POLICY")) {
    setenv("GOMP_SPINCOUNT", "2000", 1);
    execv("/proc/self/exe", argv);
  }
  hold_standard_streams();
  // A limit on file sizes is then an error of the write, which has a message.
  std::signal(SIGXFSZ, SIG_IGN);
  int status = kExitError;
  try {
    status = dispatch({argv + 1, argv + argc});
  } catch (const CapacityError& e) {
    status = error(e.what(), kExitOverBudget);
  } catch (const std::bad_alloc&) {
    status = error("the machine has no memory left");
  } catch (const std::system_error& e) {
    status = error(std::ferror(stdout) ? "standard output: " + e.code().message() : e.what());
  } catch (const std::exception& e) {
    status = error(e.what());
  }
  // Output that did not arrive is no success.
  if (std::fflush(stdout) != 0 && status == kExitDone)
    return error("standard output: " + std::system_category().message(errno));
  if (std::ferror(stdout) && status == kExitDone)
    return error("standard output: what was printed did not arrive");
  return status;
}
