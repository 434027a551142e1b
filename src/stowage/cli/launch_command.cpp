// `launch`: starts a program that was linked with the library as several processes that know each
// other.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "stowage/cli/arguments.h"
#include "stowage/cli/commands.h"
#include "stowage/cli/launch.h"
#include "stowage/runtime/comm/world.h"

namespace stow {
namespace {

bool is_program(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error) && ::access(path.c_str(), X_OK) == 0;
}

// Searches the PATH for a program as a shell does.
Result<std::string> find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    if (is_program(name)) return name;
    return fail("launch: expected a program that can be run, got {}", name);
  }
  const char* const variable = std::getenv("PATH");
  const std::string path = variable == nullptr ? "/usr/bin:/bin" : variable;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    const std::string folder = end == begin ? "." : path.substr(begin, end - begin);
    if (is_program(folder + "/" + name)) return folder + "/" + name;
    begin = end + 1;
  }
  return fail("launch: no program {} in the PATH; one of this folder is ./{}", name, name);
}

}  // namespace

Result<int> run_launch(std::span<const std::string> command_line) {
  // Options of the program that is started are its own.
  size_t at = 0;
  while (at < command_line.size() && command_line[at].starts_with('-') &&
         command_line[at] != "--") {
    const std::string& option = command_line[at];
    const bool is_alone =
        option.find('=') != std::string::npos || option == "-h" || option == "--help";
    at = std::min(at + (is_alone ? 1 : 2), command_line.size());
  }
  std::vector<std::string> own(command_line.begin(),
                               command_line.begin() + static_cast<ptrdiff_t>(at));
  if (at < command_line.size() && command_line[at] == "--") ++at;
  const std::vector<std::string> program(command_line.begin() + static_cast<ptrdiff_t>(at),
                                         command_line.end());

  LaunchOptions shown;
  CLI::App app(
      "Starts PROGRAM as several processes of this host, which meet in distributed::initialize().",
      "./stowage launch");
  app.footer("Behind the options stand PROGRAM and its arguments:\n"
             "  ./stowage launch --processes 2 --devices 2 -- build/release/examples/processes");
  app.set_help_flag("-h,--help", "This text");
  add_launch_options(app, shown);
  const Result<LaunchOptions> options = take_launch_options(own);
  if (!options) return fail("launch: {}", options.error());
  const Result<bool> helped = parse_or_help(app, "launch", own);  // what is left of them
  if (!helped) return helped.failure();
  if (*helped) return kExitDone;
  if (program.empty())
    return fail(
        "launch: expected a program behind the options: ./stowage launch --processes 2 -- ./train");
  const Result<comm::Launch> place = comm::launch_of_environment();
  if (!place) return place.failure();
  if (place->by != comm::Launch::By::kItself)
    return fail(
        "launch: this process is process {} of {} already, which {} has started; leave launch out",
        place->process, place->n_processes,
        place->by == comm::Launch::By::kMpirun ? "mpirun" : "a launcher");
  const Result<std::string> path = find_program(program[0]);
  if (!path) return path.failure();
  return run_in_processes(*options, std::span(program).subspan(1), *path);
}

}  // namespace stow
