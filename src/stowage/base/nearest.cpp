#include "stowage/base/nearest.h"

#include <algorithm>
#include <vector>

namespace stow {
namespace {

std::string_view last_part(std::string_view name) {
  return name.substr(name.rfind('.') +
                     1);  // npos + 1 is 0: a name without dots is its own last part
}

}  // namespace

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (size_t i = 0; i < a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i) + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const int replaced = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row[b.size()];
}

std::string nearest_name(std::string_view name, std::span<const std::string> names) {
  // Longer input than any name is not worth its quadratic price.
  name = name.substr(0, 100);
  std::string best;
  int best_distance = 1 << 30;
  for (const std::string& known : names) {
    // The whole name decides between two of which the last parts are as near.
    const int distance = 2 * std::min(edit_distance(name, known),
                                      1 + edit_distance(last_part(name), last_part(known)));
    const bool same_start = name.substr(0, name.find('.')) == known.substr(0, known.find('.'));
    if (distance - same_start >= best_distance) continue;
    best_distance = distance - same_start;
    best = known;
  }
  return best;
}

}  // namespace stow
