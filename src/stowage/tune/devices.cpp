#include "stowage/tune/devices.h"

#include <fmt/ranges.h>

#include <cstdlib>
#include <fstream>

#include "stowage/base/nearest.h"
#include "stowage/base/text_file.h"
#include "stowage/io/files.h"
#include "stowage/runtime/null/built_in_devices.h"
#include "stowage/runtime/target.h"

namespace stow {
namespace {

constexpr int64_t kMaxBytes = 1 << 20;

Result<DeviceDescription> read_description(const std::string& path) {
  const Result<std::string> text = read_text_file(path, kMaxBytes);
  if (!text) return text.failure();
  return parse_device_description(*text, path);
}

}  // namespace

std::vector<std::string> device_names() {
  std::vector<std::string> names;
  for (const BuiltInDevice& device : built_in_devices()) names.emplace_back(device.name);
  return names;
}

Result<DeviceDescription> load_device_description(const std::string& name_or_path) {
  for (const BuiltInDevice& device : built_in_devices())
    if (device.name == name_or_path)
      return parse_device_description(device.toml, fmt::format("{}.toml", device.name));
  if (name_or_path.ends_with(".toml") || name_or_path.find('/') != std::string::npos)
    return read_description(name_or_path);
  const std::vector<std::string> names = device_names();
  return fail("no device '{}'; did you mean '{}'? There are {}, or give a file: mine.toml",
              name_or_path, nearest_name(name_or_path, names), fmt::join(names, ", "));
}

std::string machine_name(int threads) {
  std::string processor = "CPU", line;
  std::ifstream file("/proc/cpuinfo");
  while (std::getline(file, line))
    if (line.starts_with("model name") && line.find(": ") != std::string::npos) {
      processor = line.substr(line.find(": ") + 2);
      break;
    }
  std::string name;
  for (const char c : processor)
    if (c >= ' ' && c < 127 && c != '"' && c != '\\') name += c;
  if (const std::string limit = host_target(threads)->instruction_set(); !limit.empty())
    name += fmt::format(" held to {}", limit);
  return fmt::format("{}, {} thread{}", name, threads, threads == 1 ? "" : "s");
}

std::string calibrated_path() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value ? value : "");
  };
  if (const std::string cache = variable("XDG_CACHE_HOME"); cache.starts_with('/'))
    return cache + "/stowage/device.toml";
  const std::string home = variable("HOME");
  return home.empty() ? "" : home + "/.cache/stowage/device.toml";
}

Result<std::optional<DeviceDescription>> calibrated_description(int threads) {
  const std::string path = calibrated_path();
  if (path.empty() || !file_exists(path)) return std::optional<DeviceDescription>();
  Result<DeviceDescription> description = read_description(path);
  if (!description)
    return fail("{}; ./stowage calibrate writes it anew", description.error());
  if (description->name != machine_name(threads)) return std::optional<DeviceDescription>();
  return std::optional<DeviceDescription>(std::move(*description));
}

}  // namespace stow
