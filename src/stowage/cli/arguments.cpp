#include "stowage/cli/arguments.h"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <vector>

#include "stowage/tune/devices.h"

namespace stow {

Result<void> check_not_empty(const CLI::App& app, std::string_view command) {
  for (const CLI::Option* option : app.get_options())
    for (const std::string& value : option->results())
      if (value.empty()) return fail("{}{} is empty", command, option->get_name());
  return {};
}

Result<CommandLine> parse_train_arguments(const std::string& command,
                                          const std::string& description,
                                          std::span<const std::string> arguments) {
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
  app.add_flag("--resume", line.resume, "Goes on from the last checkpoint in train.out");
  if (command == "plan" || command == "train" || command == "profile") {
    app.add_option("--device-description", line.device,
                   fmt::format("The device of the step time: {}, or a file (default: this machine as "
                               "./stowage calibrate measured it)",
                               fmt::join(device_names(), ", ")))
        ->type_name("NAME");
    app.add_option("--trace", line.trace_path,
                   fmt::format("Writes {} for Perfetto (ui.perfetto.dev)",
                               command == "plan"    ? "the simulated step"
                               : command == "train" ? "the third step"
                                                    : "a step"))
        ->type_name("FILE");
  }
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
  sources.memory = line.memory_text;
  Result<TrainConfig> config = load_train_config(sources);
  if (!config) return config.failure();
  line.config = std::move(*config);
  return line;
}

}  // namespace stow
