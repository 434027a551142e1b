#include "stowage/pack/core.h"

namespace stow::pack {

Core core_of(const std::vector<Item>& items, const std::vector<int64_t>& live, int64_t least_live) {
  const size_t n_sections = live.size();
  Core core;
  std::vector<int32_t> until(n_sections + 1);  // Sections that count, before one.
  for (size_t s = 0; s < n_sections; ++s) until[s + 1] = until[s] + (live[s] >= least_live);
  for (size_t i = 0; i < items.size(); ++i) {
    if (until[items[i].last + 1] == until[items[i].first]) continue;
    core.items.push_back(items[i]);
    core.ids.push_back(static_cast<int32_t>(i));
  }
  // A section stays where something ends that is maximal there: something began since the last.
  std::vector<uint8_t> begins(n_sections), ends(n_sections);
  for (const Item& item : core.items) begins[item.first] = ends[item.last] = 1;
  bool begun = false;
  for (size_t s = 0; s < n_sections; ++s) {
    begun = begun || begins[s];
    const bool stays = begun && ends[s];
    until[s + 1] = until[s] + stays;
    if (stays) begun = false;
  }
  for (Item& item : core.items) {
    item.first = until[item.first];
    item.last = until[item.last + 1] - 1;
  }
  core.n_sections = until[n_sections];
  return core;
}

}  // namespace stow::pack
