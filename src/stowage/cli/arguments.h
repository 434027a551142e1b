// The arguments that `train`, `plan` and their kin share, and what all commands check of theirs.
// Not the commands; each has a file of its own.
#pragma once

#include <functional>
#include <iosfwd>
#include <optional>
#include <span>
#include <string>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/io/json.h"
#include "stowage/train/config.h"

namespace CLI {
class App;
}

namespace stow {

/// Parses the arguments behind a command's name into the options of an app. True if the help was asked
/// for, and printed. Errors: "COMMAND: reason".
Result<bool> parse_or_help(CLI::App& app, std::string_view command,
                           std::span<const std::string> arguments);

/// Errors: an option or a file that was given, and is empty. Such a one is what a script has lost
/// the value for, and not one left out. The message begins with `command` ("run: ").
Result<void> check_not_empty(const CLI::App& app, std::string_view command);

/// A file as the command line names it: "--json", and its path; "-" and an empty one are none.
struct NamedFile {
  std::string_view name;
  std::string path;
};

/// Errors: a file that is to be written is one that is read, or two are the same, by whatever paths.
/// The message begins with `command`, as above.
Result<void> check_distinct(std::string_view command, std::span<const NamedFile> written,
                            std::span<const NamedFile> read);

/// Gives every line of JSON that is not blank to `take`. Errors: "NAME:LINE: reason" of a line that is
/// no JSON and of what `take` refuses; a stream that fails.
Result<void> read_json_lines(std::istream& stream, const std::string& name,
                             const std::function<Result<void>(const Json&)>& take);
/// The same of a file. Errors: also a file that cannot be opened.
Result<void> read_json_lines(const std::string& path,
                             const std::function<Result<void>(const Json&)>& take);

/// The file of --json, opened; none for an empty path. Before the work, so that what cannot be
/// written is said at once.
Result<std::optional<JsonLines>> open_json(const std::string& path);
/// Writes a line where there is a file.
Result<void> write_json(std::optional<JsonLines>& json, const Json& object);

/// `[CONFIG.toml] [--set key=value]… [--memory SIZE] [--json FILE] [--resume]`, read and checked; of
/// `plan`, `train` and `profile` also `[--device-description NAME] [--trace FILE]`,
/// and of `plan` `[--html FILE]`; of `sweep` `[--device-description NAME] [--html FILE]`.
struct CommandLine {
  TrainConfig config;
  std::string json_path;    ///< For JsonLines::open; empty for none, "-" for standard output.
  std::string memory_text;  ///< The budget as it was given to --memory; empty where it was not.
  bool resume = false;
  std::string device;      ///< A device description's name or file; empty where none was given.
  std::string trace_path;  ///< The file of a trace; empty for none.
  std::string html_path;   ///< The file of the page of `plan`; empty for none.
  int32_t devices = 0;     ///< Devices of each process that trains; 0 if it was not said.
  int32_t processes = 0;   ///< Processes that `plan` plans for; 0: not given.
  ConfigSources sources;   ///< The sources of `config`.
  std::string help;  ///< The text to print, and nothing else to do, where help was asked for.
};

/// Parses the arguments behind the command's name. `add_options`: adds those that the command has
/// alone. Of `sweep`, which chooses the mesh, the configuration is that of one device.
/// Errors: one line, as load_train_config gives them; an option that does not exist.
Result<CommandLine> parse_train_arguments(const std::string& command,
                                          const std::string& description,
                                          std::span<const std::string> arguments,
                                          const std::function<void(CLI::App&)>& add_options = {});

}  // namespace stow
