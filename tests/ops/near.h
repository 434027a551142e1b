// Compares the result of an op with the reference kernel's, within a tolerance of the dtype.
// Not a comparison of whole programs; tests/fuzz/near.h has that.
#pragma once

#include <gtest/gtest.h>

#include <cmath>

#include "tests/ops/sample_values.h"

namespace stow::testing {

// Returns the largest accepted error, relative to max(1, |reference|): enough for sums of a few
// terms and functions of a few ulp, rounded once to the dtype.
inline double stated_error(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return 1e-13;
    case DType::kF32:
      return 2e-6;
    case DType::kBF16:
      return 0x1p-7;
    case DType::kF16:
      return 0x1p-10;
    default:
      return 0;
  }
}

inline void expect_near(const ArrayType& type, const Bytes& got, const Bytes& want) {
  if (got == want) return;
  const Numbers a = decode(type.dtype, got), b = decode(type.dtype, want);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i)
    if (!(std::isnan(a[i]) && std::isnan(b[i])) && a[i] != b[i]) {
      ASSERT_LE(std::fabs(a[i] - b[i]), stated_error(type.dtype) * std::max(1.0, std::fabs(b[i])))
          << "element " << i << " of " << to_string(type) << ": " << a[i] << " for " << b[i];
    }
}

}  // namespace stow::testing
