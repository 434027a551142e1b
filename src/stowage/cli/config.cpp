#include <fmt/core.h>

#include "stowage/cli/arguments.h"
#include "stowage/cli/commands.h"

namespace stow {

Result<int> run_config(std::span<const std::string> arguments) {
  const Result<CommandLine> line = parse_train_arguments(
      "config", "Checks a configuration and prints it whole, as TOML", arguments);
  if (!line) return line.failure();
  if (line->resume) return fail("config: --resume has no effect: nothing is run; leave it out");
  if (!line->json_path.empty())
    return fail("config: --json has no effect: it prints TOML; leave it out");
  fmt::print("{}", line->help.empty() ? config_toml(line->config) : line->help);
  return kExitDone;
}

}  // namespace stow
