// Helpers for tests of shard_map: a mesh of virtual devices, arrays to shard, and comparison.
// Not a test.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "stowage/stowage.h"

namespace stow {

inline sharding::Mesh mesh_of(std::vector<int64_t> shape, std::vector<std::string> names) {
  constexpr int64_t kLarge = int64_t{1} << 30;
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  std::vector<DevicePtr> devices;
  for (int64_t i = 0; i < n; ++i)
    devices.push_back(Device::virtual_device({kLarge, kLarge, kLarge}, 1));
  return make_mesh(std::move(shape), std::move(names), std::move(devices));
}

inline Array ramp(const Shape& shape, DType dtype = DType::kF32, double scale = 0.01) {
  std::vector<double> values(static_cast<size_t>(ArrayType{DType::kF32, shape}.elems()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = scale * static_cast<double>(static_cast<int>(i * 7919 % 211) - 105);
  return Array::from(values, shape, dtype);
}

inline std::vector<double> values(const Array& x) {
  return x.astype(DType::kF64).to_vector<double>();
}

inline void expect_near(const Array& got, const Array& want, double tolerance = 1e-5) {
  ASSERT_EQ(got.shape(), want.shape());
  const std::vector<double> a = values(got), b = values(want);
  for (size_t i = 0; i < a.size(); ++i)
    ASSERT_NEAR(a[i], b[i], tolerance * (1 + std::abs(b[i]))) << "element " << i;
}

}  // namespace stow
