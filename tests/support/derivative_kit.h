// Helpers for tests of derivatives: random arrays and comparison with a tolerance.
// Not the tests.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/stowage.h"

namespace stow {

inline void expect_near(const Array& got, const Array& want, float error = 2e-5f) {
  ASSERT_EQ(got.type(), want.type());
  EXPECT_THAT(got.to_vector<float>(),
              ::testing::Pointwise(::testing::FloatNear(error), want.to_vector<float>()));
}

inline Array uniform(uint64_t seed, const Shape& shape) {
  return random::uniform(random::key(seed), shape, DType::kF32, -1, 1);
}

}  // namespace stow
