// TestTensor: memory and a strided view on it for tests, with guards around and between elements.
// Not an array of the library.
#pragma once

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "stowage/runtime/tensor_view.h"

namespace stow::testing {

using Rng = std::mt19937_64;

inline int64_t uniform(Rng& rng, int64_t low, int64_t high) {  // both included
  return std::uniform_int_distribution<int64_t>(low, high)(rng);
}

/// Returns the dtype of a C++ type. f16 and bf16 have no C++ type.
template <typename T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, double>) return DType::kF64;
  if constexpr (std::is_same_v<T, float>) return DType::kF32;
  if constexpr (std::is_same_v<T, int64_t>) return DType::kI64;
  if constexpr (std::is_same_v<T, int32_t>) return DType::kI32;
  if constexpr (std::is_same_v<T, int8_t>) return DType::kI8;
  if constexpr (std::is_same_v<T, uint64_t>) return DType::kU64;
  if constexpr (std::is_same_v<T, uint32_t>) return DType::kU32;
  if constexpr (std::is_same_v<T, uint8_t>) return DType::kU8;
  if constexpr (std::is_same_v<T, bool>) return DType::kBool;
}

class TestTensor {
 public:
  static constexpr std::byte kGuard{0xA5};
  static constexpr int64_t kGuardElems = 16;

  /// Makes a dense row-major tensor whose bytes are all kGuard.
  TestTensor(DType dtype, Dims dims) {
    const Dims strides = contiguous_strides(Shape(dims));
    init(dtype, std::move(dims), strides, 0);
  }
  /// Makes a tensor with a random layout: axes in any order, gaps, positive and negative strides.
  TestTensor(DType dtype, Dims dims, Rng& rng) {
    std::vector<size_t> order(dims.size());
    for (size_t a = 0; a < order.size(); ++a) order[a] = a;
    if (uniform(rng, 0, 2) != 0) std::shuffle(order.begin(), order.end(), rng);
    const bool gaps = uniform(rng, 0, 1) != 0, signs = uniform(rng, 0, 1) != 0;
    Dims strides(dims.size());
    int64_t stride = 1, offset = 0;
    for (size_t a : order) {
      if (gaps && uniform(rng, 0, 2) == 0) stride *= 2;
      strides[a] = stride;
      if (signs && dims[a] > 0 && uniform(rng, 0, 2) == 0) {
        offset += (dims[a] - 1) * stride;
        strides[a] = -stride;
      }
      stride *= std::max<int64_t>(dims[a], 1);
    }
    init(dtype, std::move(dims), strides, offset);
  }
  /// Returns a dense tensor of values in row-major order.
  template <typename T>
  static TestTensor of(Dims dims, const std::vector<T>& values) {
    return bits(dtype_of<T>(), std::move(dims), values);
  }
  /// Returns a dense tensor of bit patterns; T has the width of the dtype.
  template <typename T>
  static TestTensor bits(DType dtype, Dims dims, const std::vector<T>& values) {
    TestTensor t(dtype, std::move(dims));
    for (size_t i = 0; i < values.size(); ++i) {
      const T value = values[i];
      std::memcpy(t.view.data + i * sizeof(T), &value, sizeof(T));
    }
    return t;
  }
  TestTensor(TestTensor&&) = default;
  TestTensor& operator=(TestTensor&&) = default;
  TestTensor(const TestTensor&) = delete;

  /// Returns the elements in row-major order.
  template <typename T>
  std::vector<T> values() const {
    std::vector<T> result;
    for_each([&](const std::byte* p) {
      T value;
      std::memcpy(&value, p, sizeof(T));
      result.push_back(value);
    });
    return result;
  }
  /// Returns the bytes of the elements in row-major order.
  std::vector<std::byte> bytes() const {
    std::vector<std::byte> result;
    result.reserve(static_cast<size_t>(view.elems() * width()));
    for_each([&](const std::byte* p) { result.insert(result.end(), p, p + width()); });
    return result;
  }
  void set_bytes(const std::vector<std::byte>& bytes) {
    size_t at = 0;
    for_each([&](const std::byte* p) {
      std::memcpy(const_cast<std::byte*>(p), bytes.data() + at, static_cast<size_t>(width()));
      at += static_cast<size_t>(width());
    });
  }
  /// True if no byte outside of the elements has changed.
  bool guards_intact() const {
    std::vector<std::byte> rest(memory_);
    for_each([&](const std::byte* p) {
      std::fill_n(rest.begin() + (p - memory_.data()), width(), kGuard);
    });
    return std::all_of(rest.begin(), rest.end(), [](std::byte b) { return b == kGuard; });
  }
  int64_t width() const { return dtype_bytes(view.dtype); }

  TensorView view;

 private:
  void init(DType dtype, Dims dims, Dims strides, int64_t offset) {
    int64_t extent = 1;
    for (size_t a = 0; a < dims.size(); ++a)
      extent += std::max<int64_t>(dims[a] - 1, 0) * std::abs(strides[a]);
    const int64_t bytes = dtype_bytes(dtype);
    memory_.assign(static_cast<size_t>((extent + 2 * kGuardElems) * bytes), kGuard);
    view = {memory_.data() + (kGuardElems + offset) * bytes, dtype, std::move(dims),
            std::move(strides)};
  }
  template <typename F>
  void for_each(const F& f) const {
    visit(0, view.data, f);
  }
  template <typename F>
  void visit(size_t axis, const std::byte* p, const F& f) const {
    if (axis == view.dims.size()) return f(p);
    for (int64_t i = 0; i < view.dims[axis]; ++i)
      visit(axis + 1, p + i * view.strides[axis] * width(), f);
  }

  std::vector<std::byte> memory_;
};

}  // namespace stow::testing
