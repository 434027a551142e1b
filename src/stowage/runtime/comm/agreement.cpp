#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "stowage/base/printable.h"
#include "stowage/base/version.h"
#include "stowage/runtime/comm/world.h"
#include "stowage/runtime/target.h"

namespace stow::comm {
namespace {

// Bytes of a value that are shown.
constexpr size_t kShownBytes = 80;

Fingerprint fingerprint_of(const Fact& fact) {
  Fingerprint result = {0xcbf29ce484222325u, 0x9e3779b97f4a7c15u};
  const auto add = [&](unsigned char c) {
    result[0] = (result[0] ^ c) * 0x100000001b3u;
    result[1] = (result[1] + c) * 0xff51afd7ed558ccdu;
    result[1] ^= result[1] >> 29;
  };
  for (const char c : fact.name) add(static_cast<unsigned char>(c));
  add(0);
  for (const char c : fact.value) add(static_cast<unsigned char>(c));
  return result;
}

// "process 0", "processes 1, 2 and 5"; of many the first few.
std::string processes(const std::vector<int32_t>& list) {
  constexpr size_t kNamed = 4;
  if (list.size() == 1) return fmt::format("process {}", list[0]);
  const size_t named = std::min(list.size() - 1, kNamed);
  const std::string first =
      fmt::format("{}", fmt::join(list.begin(), list.begin() + static_cast<int64_t>(named), ", "));
  return list.size() - 1 > kNamed
             ? fmt::format("processes {} and {} more", first, list.size() - named)
             : fmt::format("processes {} and {}", first, list.back());
}

}  // namespace

std::vector<Fact> facts_of_program() {
  return {{"version",
           fmt::format("{}.{}.{}", STOW_VERSION_MAJOR, STOW_VERSION_MINOR, STOW_VERSION_PATCH)},
          {"instruction set", host_instruction_set()}};
}

Result<void> check_agreement(Communicator& communicator, std::span<const Fact> facts) {
  return check_agreement(communicator, communicator.all(), "start", facts);
}

Result<void> check_agreement(Communicator& communicator, const Group& group, std::string_view label,
                             std::span<const Fact> facts) {
  std::vector<Fingerprint> items;
  for (const Fact& fact : facts) items.push_back(fingerprint_of(fact));
  const auto odd = communicator.compare(group, label, items);
  std::string message;
  for (size_t i = 0; i < facts.size(); ++i) {
    if (odd[i].empty()) continue;
    // All see the same ranks, so all exchange the values.
    std::vector<char> own(kShownBytes, '\0'), values(kShownBytes * group.ranks.size());
    std::memcpy(own.data(), facts[i].value.data(), std::min(facts[i].value.size(), kShownBytes));
    communicator.all_gather(group, label, DType::kU8, 1, kShownBytes,
                            reinterpret_cast<const std::byte*>(own.data()),
                            reinterpret_cast<std::byte*>(values.data()));
    std::map<std::string, std::vector<int32_t>> by_value;
    for (size_t at = 0; at < group.ranks.size(); ++at) {
      const char* const value = &values[at * kShownBytes];
      std::vector<int32_t>& list = by_value[printable({value, strnlen(value, kShownBytes)})];
      const int32_t process = group.ranks[at] / communicator.devices_per_process();
      if (list.empty() || list.back() != process) list.push_back(process);
    }
    std::vector<std::pair<std::vector<int32_t>, std::string>> by_process;
    for (auto& [value, list] : by_value) by_process.emplace_back(list, value);
    std::sort(by_process.begin(), by_process.end());
    std::vector<std::string> parts;
    for (const auto& [list, value] : by_process)
      parts.push_back(fmt::format("{} at {}", value, processes(list)));
    message += fmt::format("{}{} is {}", message.empty() ? "" : "; ", facts[i].name,
                           fmt::join(parts, ", "));
  }
  if (message.empty()) return {};
  return fail("{}: expected the same at every process", message);
}

}  // namespace stow::comm
