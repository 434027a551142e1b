#include "stowage/base/inside.h"
#include "stowage/core/partition_spec.h"

#include <fmt/ranges.h>

namespace stow {

std::string to_string(const PartitionSpec& spec) {
  std::vector<std::string> entries;
  for (const PartitionSpec::Axes& axes : spec.entries()) {
    const std::vector<std::string>& names = axes.names();
    if (names.empty())
      entries.push_back("None");
    else if (names.size() == 1)
      entries.push_back(fmt::format("'{}'", names[0]));
    else
      entries.push_back(fmt::format("('{}')", fmt::join(names, "', '")));
  }
  return fmt::format("P({})", fmt::join(entries, ", "));
}

}  // namespace stow
