// The median of measurements, which single outliers do not change.
// Not a library of statistics.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace stow {

/// Returns the median; for an even number of values the greater of the middle two, for none 0.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace stow
