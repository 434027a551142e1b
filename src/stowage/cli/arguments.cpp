#include "stowage/cli/arguments.h"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "stowage/base/atomic_file.h"
#include "stowage/cli/launch.h"
#include "stowage/io/checkpoint_file.h"
#include "stowage/tune/devices.h"

namespace stow {

Result<void> check_not_empty(const CLI::App& app, std::string_view command) {
  for (const CLI::Option* option : app.get_options())
    for (const std::string& value : option->results())
      if (value.empty()) return fail("{}{} is empty", command, option->get_name());
  return {};
}

Result<bool> parse_or_help(CLI::App& app, std::string_view command,
                           std::span<const std::string> arguments) {
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  try {
    app.parse(std::move(reversed));
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return true;
  } catch (const CLI::ParseError& e) {
    return fail("{}: {}", command, e.what());
  }
  if (const Result<void> given = check_not_empty(app, fmt::format("{}: ", command)); !given)
    return given.failure();
  return false;
}

Result<void> read_json_lines(std::istream& stream, const std::string& name,
                             const std::function<Result<void>(const Json&)>& take) {
  std::string line;
  errno = 0;
  for (int64_t n = 1; std::getline(stream, line); ++n, errno = 0) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const Result<Json> json = parse_json(line, {.n_values = 1 << 26});
    if (!json) return fail("{}:{}: {}", name, n, json.error());
    if (const Result<void> taken = take(*json); !taken)
      return fail("{}:{}: {}", name, n, taken.error());
  }
  if (stream.bad())
    return fail("{}: {}", name, errno != 0 ? std::strerror(errno) : "cannot be read");
  return {};
}

Result<void> read_json_lines(const std::string& path,
                             const std::function<Result<void>(const Json&)>& take) {
  std::ifstream stream(path);
  if (!stream) return fail("{}: {}", path, std::strerror(errno));
  return read_json_lines(stream, path, take);
}

namespace {

bool is_file(const NamedFile& file) { return !file.path.empty() && file.path != "-"; }

// Links followed; absolute, also where nothing is there yet.
std::filesystem::path real_path(const std::string& path, std::error_code& code) {
  const std::filesystem::path whole = std::filesystem::absolute(path, code);
  return code ? whole : std::filesystem::weakly_canonical(whole, code);
}

bool are_one(const std::string& a, const std::string& b) {
  std::error_code code;
  if (std::filesystem::equivalent(a, b, code) && !code) return true;
  const std::filesystem::path one = real_path(a, code);
  return !code && one == real_path(b, code) && !code;
}

// True if the file, links followed, has the name of a checkpoint in this folder, or in a folder of
// checkpoints set aside there.
bool is_checkpoint_in(const std::string& path, const std::string& folder) {
  std::error_code code;
  const std::string file = real_path(path, code).string();
  if (code || !is_checkpoint_name(file)) return false;
  const std::string parent = parent_directory(file);
  return are_one(parent, folder) || are_one(parent, set_aside_folder(folder));
}

}  // namespace

Result<void> check_distinct(std::string_view command, std::span<const NamedFile> written,
                            std::span<const NamedFile> read) {
  for (size_t i = 0; i < written.size(); ++i) {
    if (!is_file(written[i])) continue;
    for (size_t k = 0; k < i; ++k)
      if (is_file(written[k]) && are_one(written[i].path, written[k].path))
        return fail("{}{} and {} would both write {}", command, written[k].name, written[i].name,
                    written[i].path);
    std::error_code code;
    if (!std::filesystem::is_regular_file(written[i].path, code)) continue;
    for (const NamedFile& file : read)
      if (is_file(file) && are_one(written[i].path, file.path))
        return fail("{}{} would write over {}, which is {}", command, written[i].name,
                    written[i].path, file.name);
  }
  return {};
}

Result<std::optional<JsonLines>> open_json(const std::string& path) {
  if (path.empty()) return std::optional<JsonLines>();
  Result<JsonLines> json = JsonLines::open(path);
  if (!json) return json.failure();
  return std::optional<JsonLines>(std::move(*json));
}

Result<void> write_json(std::optional<JsonLines>& json, const Json& object) {
  return json ? json->write(object) : Result<void>();
}

Result<CommandLine> parse_train_arguments(const std::string& command,
                                          const std::string& description,
                                          std::span<const std::string> arguments,
                                          const std::function<void(CLI::App&)>& add_options) {
  CommandLine line;
  ConfigSources sources;
  CLI::App app(description, "./stowage " + command);
  app.set_help_flag("-h,--help", "This text");
  app.add_option("CONFIG.toml", sources.toml_path, "The configuration (default: the default job)");
  app.add_option("--set", sources.settings, "One key of the configuration, over the file")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  app.add_option("--memory", line.memory_text, "The budget: 64MiB, 1.5GB or a number of bytes")
      ->type_name("SIZE");
  app.add_option("--json", line.json_path, "Writes one JSON object a line to FILE, - for stdout")
      ->type_name("FILE");
  CLI::Option* const resume =
      app.add_flag("--resume", line.resume, "Goes on from the last checkpoint in train.out");
  if (command != "train")
    resume->group("");  // known, to say that it has no effect; not in the help
  if (command == "plan" || command == "train" || command == "profile" || command == "sweep")
    app.add_option(
           "--device-description", line.device,
           fmt::format("The device of the step time: {}, or a file (default: this machine as "
                       "./stowage calibrate measured it)",
                       fmt::join(device_names(), ", ")))
        ->type_name("NAME");
  if (command == "plan" || command == "train" || command == "profile")
    app.add_option("--trace", line.trace_path,
                   fmt::format("Writes {} for Perfetto (ui.perfetto.dev)",
                               command == "plan"    ? "the simulated step"
                               : command == "train" ? "the third step"
                                                    : "a step"))
        ->type_name("FILE");
  LaunchOptions launch;
  if (command == "train") {
    add_launch_options(app, launch);
    app.get_option("--devices")
        ->description(
            "Devices of each process, as threads (default: all of the mesh that its processes share)");
  }
  if (command == "plan") {
    app.add_option("--processes", line.processes,
                   "Processes of this host that the run would have (default 1)")
        ->check(CLI::PositiveNumber);
    app.add_option("--devices", line.devices,
                   "Devices of each of them (default: all of the mesh that they share)")
        ->check(CLI::PositiveNumber);
  }
  if (add_options) add_options(app);
  if (command == "plan" || command == "sweep")
    app.add_option("--html", line.html_path,
                   command == "plan" ? "Writes the plan, or a refusal, as a page for a browser"
                                     : "Writes the best plan and the table as a page for a browser")
        ->type_name("FILE");
  app.footer("\n" + config_help());

  // CLI11 takes the arguments last first.
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  try {
    app.parse(std::move(reversed));
  } catch (const CLI::CallForHelp&) {
    line.help = app.help();
    return line;
  } catch (const CLI::ParseError& error) {
    return fail("{}: {} (see ./stowage {} --help)", command, error.what(), command);
  }
  if (Result<void> given = check_not_empty(app, command + ": "); !given) return given.failure();
  if (command == "train" && app.count("--devices") > 0) line.devices = launch.devices;
  sources.memory = line.memory_text;
  line.sources = sources;
  if (command == "sweep")
    for (const char* setting :
         {"mesh.replica=1", "mesh.data=1", "mesh.model=1", "mesh.parameters=auto",
          "mesh.optimizer=auto", "mesh.sequence=false"})
      sources.settings.emplace_back(setting);
  Result<TrainConfig> config = load_train_config(sources);
  if (!config) return config.failure();
  line.config = std::move(*config);
  const std::array<NamedFile, 3> written = {
      {{"--json", line.json_path}, {"--trace", line.trace_path}, {"--html", line.html_path}}};
  for (const NamedFile& file : written)
    if (is_file(file) && is_checkpoint_in(file.path, line.config.train.out))
      return fail("{}: {} {} has the name of a checkpoint in train.out", command, file.name,
                  file.path);
  const Result<void> distinct =
      check_distinct(command + ": ", written,
                     std::array<NamedFile, 3>{{{"CONFIG.toml", sources.toml_path},
                                               {"data.path", line.config.data.path},
                                               {"the device's description", line.device}}});
  if (!distinct) return distinct.failure();
  return line;
}

}  // namespace stow
