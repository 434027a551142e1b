#include <omp.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <optional>

#include "stowage/base/atomic_file.h"
#include "stowage/cli/arguments.h"
#include "stowage/cli/commands.h"
#include "stowage/io/files.h"
#include "stowage/runtime/disk/disk.h"
#include "stowage/tune/calibrate.h"
#include "stowage/tune/devices.h"

namespace stow {

Result<int> run_calibrate(std::span<const std::string> arguments) {
  std::string output, folder = default_disk_folder();
  CLI::App app(
      "Measures this machine. The description it writes gives `plan` and `train` their step times.",
      "./stowage calibrate");
  app.set_help_flag("-h,--help", "This text");
  app.add_option("--output", output, "File to write (default: in the user's cache)")
      ->type_name("FILE.toml");
  app.add_option("--folder", folder,
                 "Folder to measure the disk in (default: $TMPDIR or /tmp, as of runs)")
      ->type_name("FOLDER");
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  try {
    app.parse(std::move(reversed));
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return kExitDone;
  } catch (const CLI::ParseError& error) {
    return fail("calibrate: {} (see ./stowage calibrate --help)", error.what());
  }
  if (Result<void> given = check_not_empty(app, "calibrate: "); !given) return given.failure();
  if (output.empty()) {
    output = calibrated_path();
    if (output.empty())
      return fail("calibrate: neither XDG_CACHE_HOME nor HOME is set: give --output FILE.toml");
    if (Result<void> made = ensure_directory(parent_directory(output)); !made)
      return made.failure();
  }
  std::optional<AtomicFile> file;
  const auto open = [&]() -> Result<void> {
    Result<AtomicFile> created = AtomicFile::create(output);
    if (!created) return created.failure();
    file.emplace(std::move(*created));
    return {};
  };
  // A file that cannot be written is reported before the measurements, not after them. A run that
  // is stopped during the measurements leaves no file.
  if (Result<void> opened = open(); !opened) return opened.failure();
  if (!file->in_place()) file.reset();
  double load = 0;
  if (::getloadavg(&load, 1) == 1 && load > 0.5)
    fmt::print(stderr,
               "stowage: warning: the machine is busy (load {:.1f}): what is measured now is what "
               "its other work leaves\n",
               load);
  CalibrateOptions options;
  options.threads = omp_get_max_threads();
  options.folder = folder;
  options.report = [](const std::string& line) {
    fmt::print("{}\n", line);
    std::fflush(stdout);
  };
  const Result<DeviceDescription> description = calibrate(options);
  if (!description) return description.failure();
  const std::string text =
      "# Written by ./stowage calibrate: medians of what it measured on this machine.\n" +
      device_description_toml(*description);
  if (Result<void> opened = file ? Result<void>() : open(); !opened) return opened.failure();
  if (Result<void> written = file->write(as_bytes(text)); !written) return written.failure();
  if (Result<void> written = file->commit(); !written) return written.failure();
  fmt::print("wrote {}\n", output);
  return kExitDone;
}

}  // namespace stow
