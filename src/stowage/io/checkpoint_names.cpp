#include "stowage/io/checkpoint_names.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

namespace stow {

std::string CheckpointFileName::text() const {
  std::string name = fmt::format("step-{:06}", step);
  if (is_json) return name + ".json";
  if (!tag.empty()) name += "-" + tag;
  if (rank) name += fmt::format(".rank-{}", *rank);
  return name + ".safetensors";
}

std::optional<CheckpointFileName> parse_checkpoint_file_name(std::string_view name) {
  CheckpointFileName result;
  const auto strip = [&](std::string_view prefix) {
    if (!name.starts_with(prefix)) return false;
    name.remove_prefix(prefix.size());
    return true;
  };
  // A number of at least that many digits, with zeros in front of it only where it has no more.
  const auto number = [&](auto& out, size_t least_digits) {
    const auto [end, code] = std::from_chars(name.data(), name.data() + name.size(), out);
    const size_t digits = static_cast<size_t>(end - name.data());
    if (code != std::errc() || name[0] == '-' || digits < least_digits ||
        (digits > least_digits && name[0] == '0'))
      return false;
    name.remove_prefix(digits);
    return true;
  };
  if (!strip("step-") || !number(result.step, 6)) return std::nullopt;
  if (strip(".json")) {
    result.is_json = true;
  } else {
    if (strip("-")) {
      constexpr size_t kTagDigits = 16;
      if (name.size() < kTagDigits || name.find_first_not_of("0123456789abcdef") < kTagDigits)
        return std::nullopt;
      result.tag = name.substr(0, kTagDigits);
      name.remove_prefix(kTagDigits);
    }
    if (strip(".rank-")) {
      int32_t rank = 0;
      if (!number(rank, 1)) return std::nullopt;
      result.rank = rank;
    }
    if (!strip(".safetensors")) return std::nullopt;
  }
  if (name.ends_with(".tmp")) {
    name.remove_suffix(4);
    result.is_temporary = true;
    // The characters that AtomicFile inserts.
    if (strip("."))
      name.remove_prefix(std::min(name.find_first_not_of("0123456789-"), name.size()));
  }
  if (!name.empty()) return std::nullopt;
  return result;
}

}  // namespace stow
