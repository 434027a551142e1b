// Arguments that `train`, `plan` and similar commands share, and checks for all commands.
// Not the commands; each has its own file.
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

/// Parses the arguments after a command's name into the options of an app. Returns true if they ask
/// for the help, which it then prints. Errors: "COMMAND: reason".
Result<bool> parse_or_help(CLI::App& app, std::string_view command,
                           std::span<const std::string> arguments);

/// Checks that no given option or file is empty. An empty value is usually an unset variable of a
/// script. Errors: begin with `command` ("run: ").
Result<void> check_not_empty(const CLI::App& app, std::string_view command);

/// A file argument: its option ("--json") and path. The paths "-" and "" name no file.
struct NamedFile {
  std::string_view name;
  std::string path;
};

/// Checks that no file that is written is also read or written twice, even by different paths.
/// Errors: begin with `command` ("run: ").
Result<void> check_distinct(std::string_view command, std::span<const NamedFile> written,
                            std::span<const NamedFile> read);

/// Parses every nonblank line of a stream as JSON and passes it to `take`. Errors: "NAME:LINE:
/// reason" for a line that is not JSON or that `take` refuses; a stream that fails.
Result<void> read_json_lines(std::istream& stream, const std::string& name,
                             const std::function<Result<void>(const Json&)>& take);
/// read_json_lines of a file. Errors: also a file that cannot be opened.
Result<void> read_json_lines(const std::string& path,
                             const std::function<Result<void>(const Json&)>& take);

/// Opens the file of --json; none for an empty path. Called before the work, so that errors of the
/// file are reported at once.
Result<std::optional<JsonLines>> open_json(const std::string& path);
/// Writes a line, if there is a file.
Result<void> write_json(std::optional<JsonLines>& json, const Json& object);

/// The parsed and checked arguments `[CONFIG.toml] [--set key=value]… [--memory SIZE] [--json FILE]
/// [--resume]`. `plan`, `train` and `profile` also have `[--device-description NAME] [--trace
/// FILE]`, `plan` also `[--html FILE]`, and `sweep` `[--device-description NAME] [--html FILE]`.
struct CommandLine {
  TrainConfig config;
  std::string json_path;    ///< For JsonLines::open; empty for none, "-" for standard output.
  std::string memory_text;  ///< The text of --memory; empty if not given.
  bool resume = false;
  std::string device;      ///< Name or file of a device description; empty if not given.
  std::string trace_path;  ///< The file of a trace; empty for none.
  std::string html_path;   ///< The file of --html; empty for none.
  int32_t devices = 0;     ///< Devices of each process that trains; 0: not given.
  int32_t processes = 0;   ///< Processes that `plan` plans for; 0: not given.
  ConfigSources sources;   ///< The sources of `config`.
  std::string help;  ///< Help text. If not empty, the command prints it and does nothing else.
};

/// Parses the arguments after the command's name. `add_options`: adds the command's own options.
/// For `sweep`, which chooses the mesh, the configuration is that of one device.
/// Errors: those of load_train_config, one line; an unknown option.
Result<CommandLine> parse_train_arguments(const std::string& command,
                                          const std::string& description,
                                          std::span<const std::string> arguments,
                                          const std::function<void(CLI::App&)>& add_options = {});

}  // namespace stow
