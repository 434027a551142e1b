#include "stowage/runtime/null/device_description.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <variant>
#include <vector>

#include "stowage/base/bytes.h"
#include "stowage/base/nearest.h"
#include "stowage/base/toml_entries.h"
#include "stowage/ir/schedule.h"

namespace stow {
namespace {

using D = DeviceDescription;

struct RateField {
  double& (*get)(D&);
};
struct ShareField {
  double& (*get)(D&);
  bool may_be_zero = false;
};
struct SecondsField {
  double& (*get)(D&);
};
struct SizeField {
  int64_t& (*get)(D&);
};
struct DevicesField {
  int64_t& (*get)(D&);
};
struct TextField {
  std::string& (*get)(D&);
  std::vector<std::string> choices;
};

struct Key {
  std::string name;
  std::variant<RateField, ShareField, SecondsField, SizeField, DevicesField, TextField> field;
  bool required = true;
};

#define STOW_FIELD(path) [](D& d) -> decltype((d.path)) { return d.path; }

const std::vector<Key>& keys() {
  static const std::vector<Key> rows = {
      {"name", TextField{STOW_FIELD(name), {}}},
      {"compute.f32_flops", RateField{STOW_FIELD(compute.f32_flops)}},
      {"compute.f32_as", TextField{STOW_FIELD(compute.f32_as), {"f32", "tf32"}}},
      {"compute.bf16_flops", RateField{STOW_FIELD(compute.bf16_flops)}},
      {"compute.f64_flops", RateField{STOW_FIELD(compute.f64_flops)}},
      {"compute.achievable", ShareField{STOW_FIELD(compute.achievable)}},
      {"compute.attention_achievable", ShareField{STOW_FIELD(compute.attention_achievable)}},
      {"compute.vector_flops", RateField{STOW_FIELD(compute.vector_flops)}},
      {"compute.special_flops", RateField{STOW_FIELD(compute.special_flops)}},
      {"compute.launch_s", SecondsField{STOW_FIELD(compute.launch_s)}},
      {"memory.bandwidth", RateField{STOW_FIELD(memory.bandwidth)}},
      {"memory.achievable", ShareField{STOW_FIELD(memory.achievable)}},
      {"memory.cache_bandwidth", RateField{STOW_FIELD(memory.cache_bandwidth)}, false},
      {"memory.cache", SizeField{STOW_FIELD(memory.cache)}, false},
      {"memory.device", SizeField{STOW_FIELD(memory.device)}},
      {"memory.pinned_host", SizeField{STOW_FIELD(memory.pinned_host)}},
      {"memory.disk", SizeField{STOW_FIELD(memory.disk)}},
      {"link.to_device", RateField{STOW_FIELD(link.to_device)}},
      {"link.to_host", RateField{STOW_FIELD(link.to_host)}},
      {"link.latency_s", SecondsField{STOW_FIELD(link.latency_s)}},
      {"link.slows_compute", ShareField{STOW_FIELD(link.slows_compute), true}, false},
      {"disk.read", RateField{STOW_FIELD(disk.read)}},
      {"disk.write", RateField{STOW_FIELD(disk.write)}},
      {"disk.latency_s", SecondsField{STOW_FIELD(disk.latency_s)}},
      {"disk.slows_compute", ShareField{STOW_FIELD(disk.slows_compute), true}, false},
  };
  return rows;
}

// The keys of the last level of the network; all are required.
const std::vector<Key>& network_keys() {
  static const std::vector<Key> rows = {
      {"network.devices", DevicesField{STOW_FIELD(network.back().devices)}},
      {"network.bandwidth", RateField{STOW_FIELD(network.back().bandwidth)}},
      {"network.latency_s", SecondsField{STOW_FIELD(network.back().latency_s)}},
      {"network.achievable", ShareField{STOW_FIELD(network.back().achievable)}},
  };
  return rows;
}

#undef STOW_FIELD

constexpr int64_t kMaxDevices = 1 << 20;

const Key* find_key(const std::string& name) {
  for (const Key& key : keys())
    if (key.name == name) return &key;
  for (const Key& key : network_keys())
    if (key.name == name) return &key;
  return nullptr;
}

bool is_section(const std::string& name) {
  return std::any_of(keys().begin(), keys().end(),
                     [&](const Key& key) { return key.name.starts_with(name + "."); });
}

using Value = decltype(TomlEntry::value);

// The number under a key; NaN, which no range holds, where it is none.
double number_of(const Value& value) {
  if (const auto* integer = std::get_if<int64_t>(&value)) return static_cast<double>(*integer);
  if (const auto* number = std::get_if<double>(&value)) return *number;
  return std::nan("");
}

// Sets a field; what the field takes where the value is none of it.
struct Setter {
  const Value& value;
  D& d;

  std::string operator()(const RateField& field) const {
    const double x = number_of(value);
    if (!(x >= 1) || std::isinf(x)) return "a rate a second, at least 1";
    field.get(d) = x;
    return "";
  }
  std::string operator()(const ShareField& field) const {
    const double x = number_of(value);
    if (field.may_be_zero && !(x >= 0 && x < 1)) return "a share, from 0 to below 1";
    if (!field.may_be_zero && !(x >= 1e-6 && x <= 1)) return "a share, from 1e-6 to 1";
    field.get(d) = x;
    return "";
  }
  std::string operator()(const SecondsField& field) const {
    const double x = number_of(value);
    if (!(x >= 0 && x <= 1)) return "seconds, from 0 to 1";
    field.get(d) = x;
    return "";
  }
  std::string operator()(const SizeField& field) const {
    int64_t bytes = -1;
    if (const auto* integer = std::get_if<int64_t>(&value)) bytes = *integer;
    if (const auto* text = std::get_if<std::string>(&value))
      if (const Result<int64_t> parsed = parse_bytes(*text)) bytes = *parsed;
    if (bytes < 0) return "a size such as \"141GB\" or a number of bytes";
    field.get(d) = bytes;
    return "";
  }
  std::string operator()(const DevicesField& field) const {
    const auto* integer = std::get_if<int64_t>(&value);
    if (!integer || *integer < 2 || *integer > kMaxDevices)
      return fmt::format("a number of devices, from 2 to {}", kMaxDevices);
    field.get(d) = *integer;
    return "";
  }
  std::string operator()(const TextField& field) const {
    const auto* text = std::get_if<std::string>(&value);
    const auto& choices = field.choices;
    if (!choices.empty() &&
        (!text || std::find(choices.begin(), choices.end(), *text) == choices.end()))
      return fmt::format("\"{}\" or \"{}\"", choices[0], choices[1]);
    if (!text || text->empty() || text->find_first_of("\"\\\n") != std::string::npos)
      return "a text on one line, without quotes";
    field.get(d) = *text;
    return "";
  }
};

std::string shown(const Value& value) {
  if (const auto* integer = std::get_if<int64_t>(&value)) return fmt::format("{}", *integer);
  if (const auto* number = std::get_if<double>(&value)) return fmt::format("{}", *number);
  if (const auto* boolean = std::get_if<bool>(&value)) return *boolean ? "true" : "false";
  if (const auto* text = std::get_if<std::string>(&value)) return fmt::format("'{}'", *text);
  return "a value of this kind";
}

Result<void> set_entry(const TomlEntry& entry, D& d) {
  if (entry.table < 0 && (entry.name == "network" || entry.name.starts_with("network.")))
    return fail("expected levels of a network, each under [[network]], got {}",
                entry.name == "network" ? "network = " + shown(entry.value) : entry.name);
  const Key* key = find_key(entry.name);
  if (!key) {
    if (is_section(entry.name))
      return fail("'{}' is a section of keys, not a key", entry.name);
    std::vector<std::string> names;
    for (const Key& k : keys()) names.push_back(k.name);
    for (const Key& k : network_keys()) names.push_back(k.name);
    return fail("unknown key '{}'; did you mean '{}'?", entry.name,
                nearest_name(entry.name, names));
  }
  if (const std::string takes = std::visit(Setter{entry.value, d}, key->field); !takes.empty())
    return fail("{} takes {}, not {}", key->name, takes, shown(entry.value));
  return {};
}

// The levels of a network as they are read, each with its line and the keys that it has.
struct Level {
  uint32_t line = 0;
  std::set<std::string> given;
};

Result<void> check_levels(const std::vector<Level>& levels, const D& d, const std::string& path) {
  for (size_t i = 0; i < levels.size(); ++i) {
    for (const Key& key : network_keys())
      if (!levels[i].given.contains(key.name))
        return fail("{}:{}: {} is missing", path, levels[i].line, key.name);
    if (i == 0) continue;
    const int64_t inner = d.network[i - 1].devices, outer = d.network[i].devices;
    if (outer <= inner || outer % inner != 0)
      return fail("{}:{}: network.devices takes a multiple of the {} of the level above it, which "
                  "is inside, not {}",
                  path, levels[i].line, inner, outer);
  }
  return {};
}

std::string value_text(const Key& key, D& d) {
  return std::visit(
      [&](const auto& field) {
        if constexpr (std::is_same_v<std::decay_t<decltype(field)>, TextField>)
          return fmt::format("\"{}\"", field.get(d));
        else
          return fmt::format("{}", field.get(d));
      },
      key.field);
}

}  // namespace

Result<DeviceDescription> parse_device_description(std::string_view text, const std::string& path) {
  const Result<std::vector<TomlEntry>> entries = read_toml_entries(
      text, path, [](const std::string& name) { return find_key(name) != nullptr; }, "network");
  if (!entries) return entries.failure();
  DeviceDescription d;
  std::set<std::string> given;
  std::vector<Level> levels;
  for (const TomlEntry& entry : *entries) {
    const auto* other = std::get_if<TomlOther>(&entry.value);
    if (other && *other == TomlOther::kTable && is_section(entry.name)) continue;
    if (entry.table >= 0 && entry.name == "network") {
      levels.push_back({entry.line, {}});
      d.network.emplace_back();
      continue;
    }
    if (const Result<void> set = set_entry(entry, d); !set)
      return fail("{}:{}: {}", path, entry.line, set.error());
    (entry.table < 0 ? given : levels.back().given).insert(entry.name);
  }
  for (const Key& key : keys())
    if (key.required && !given.contains(key.name)) return fail("{}: {} is missing", path, key.name);
  if (const Result<void> whole = check_levels(levels, d, path); !whole) return whole.failure();
  return d;
}

std::string device_description_toml(const DeviceDescription& description) {
  D d = description;  // the accessors give references to write through
  std::string text, section;
  for (const Key& key : keys()) {
    const size_t dot = key.name.find('.');
    const std::string its = dot == std::string::npos ? "" : key.name.substr(0, dot);
    const std::string value = value_text(key, d);
    if (!key.required && (value == "0" || value == "0.0")) continue;
    if (its != section) text += fmt::format("\n[{}]\n", its);
    section = its;
    text +=
        fmt::format("{} = {}\n", key.name.substr(dot == std::string::npos ? 0 : dot + 1), value);
  }
  for (const D::Network& level : description.network) {
    d.network = {level};
    text += "\n[[network]]\n";
    for (const Key& key : network_keys())
      text += fmt::format("{} = {}\n", key.name.substr(key.name.find('.') + 1), value_text(key, d));
  }
  return text;
}

double move_seconds(const DeviceDescription& d, MemoryKind from, MemoryKind to, double bytes) {
  switch (stream_of(from, to)) {
    case StreamKind::kCopyIn: return bytes / d.link.to_device;
    case StreamKind::kCopyOut: return bytes / d.link.to_host;
    case StreamKind::kDiskRead: return d.disk.latency_s + bytes / d.disk.read;
    case StreamKind::kDiskWrite: return d.disk.latency_s + bytes / d.disk.write;
    case StreamKind::kCompute:
    case StreamKind::kCollective: break;
  }
  switch (from) {
    case MemoryKind::kDevice:
      return d.compute.launch_s + 2 * bytes / (d.memory.bandwidth * d.memory.achievable);
    case MemoryKind::kPinnedHost:
      return bytes / std::min(d.link.to_device, d.link.to_host);
    case MemoryKind::kDisk: break;
  }
  return 2 * d.disk.latency_s + bytes / d.disk.read + bytes / d.disk.write;
}

}  // namespace stow
