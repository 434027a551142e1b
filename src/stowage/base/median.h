// The median of measurements.
// Not statistics; one number that a busy neighbour does not spoil.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace stow {

/// The middle one, of an even number the greater of the two; 0 of none.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace stow
