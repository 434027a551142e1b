// Gathers by indices of 32 bits, which are read part by part: the elements that indices of 64 bits
// give, and those of a plain loop, at sizes around a part's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "stowage/stowage.h"

namespace stow {
namespace {

std::vector<float> numbers(int64_t n) {
  std::vector<float> x(static_cast<size_t>(n));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i) + 0.5f;
  return x;
}

// Of `some_out`, one in eight is out of range, to either side.
std::vector<int32_t> indices(int64_t n, int64_t extent, bool some_out, uint32_t seed) {
  std::mt19937 engine(seed);
  std::vector<int32_t> result;
  for (int64_t i = 0; i < n; ++i) {
    const bool out = some_out && engine() % 8 == 0;
    const auto within = static_cast<int32_t>(engine() % static_cast<uint32_t>(extent));
    result.push_back(!out ? within : engine() % 2 ? INT32_MIN + within : INT32_MAX - within);
  }
  return result;
}

TEST(GatherParts, FlatAgreesWithALoop) {
  constexpr int64_t kExtent = 77;
  const std::vector<float> x = numbers(kExtent);
  for (int64_t n : {1, 7, 255, 256, 257, 512, 1000}) {
    for (bool some_out : {false, true}) {
      SCOPED_TRACE(testing::Message() << n << ' ' << some_out);
      const std::vector<int32_t> at = indices(n, kExtent, some_out, static_cast<uint32_t>(n));
      const Array array = Array::from(x, {kExtent}), index = Array::from(at, {n});
      const auto filled = jit([](const Array& x, const Array& i) {
                            return take_flat(x, i, IndexMode::kFill, -7.0);
                          })(array, index)
                              .to_vector<float>();
      const auto clipped = jit([](const Array& x, const Array& i) {
                             return take_flat(x, i, IndexMode::kClip);
                           })(array, index)
                               .to_vector<float>();
      for (size_t i = 0; i < at.size(); ++i) {
        const bool within = at[i] >= 0 && at[i] < kExtent;
        ASSERT_EQ(filled[i], within ? x[static_cast<size_t>(at[i])] : -7.0f) << i;
        ASSERT_EQ(clipped[i], x[static_cast<size_t>(std::clamp<int64_t>(at[i], 0, kExtent - 1))])
            << i;
      }
    }
  }
}

TEST(GatherParts, AlongEitherAxisAgreesWithIndicesOf64Bits) {
  for (int64_t n : {1, 3, 255, 257, 300}) {
    for (int axis : {0, 1}) {
      for (IndexMode mode : {IndexMode::kFill, IndexMode::kClip, IndexMode::kWrap}) {
        SCOPED_TRACE(testing::Message() << n << ' ' << axis);
        const Shape dims = axis == 0 ? Shape({n, 5}) : Shape({5, n});
        const Array x = Array::from(numbers(5 * n), dims);
        const Array index = Array::from(indices(5 * n, n, true, static_cast<uint32_t>(n)), dims);
        const auto along = jit([=](const Array& x, const Array& i) {
          return std::pair(take_along_axis(x, i, axis, mode),
                           take_along_axis(x, i.astype(DType::kI64), axis, mode));
        })(x, index);
        const auto got = along.first.to_vector<float>(), want = along.second.to_vector<float>();
        ASSERT_EQ(got.size(), want.size());
        for (size_t i = 0; i < got.size(); ++i)
          ASSERT_TRUE(got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i])))
              << i << ": " << got[i] << " not " << want[i];
      }
    }
  }
}

}  // namespace
}  // namespace stow
