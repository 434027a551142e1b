// Fetches what a product packs next into the cache, a few lines between two micro-kernels.
// Not packing: nothing is written, and a wrong guess costs nothing but time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "stowage/runtime/cpu/kernels/gemm_plan.h"

namespace stow::cpu {

class GemmAhead {
 public:
  /// From now on each of `calls` calls of fetch() takes its part of a block of an operand: elements
  /// [first, first + n) of the class `outer` by [k, k + depth) of `inner`, `bytes` each, at `base`.
  /// Takes nothing where a class has several dimensions, whose blocks are not even.
  void start(const void* base, int64_t bytes, int64_t GemmDim::*stride, const GemmDims& outer,
             int64_t first, int64_t n, const GemmDims& inner, int64_t k, int64_t depth,
             int64_t calls) {
    left_ = 0;
    if (outer.count > 1 || inner.count > 1 || n <= 0 || depth <= 0) return;
    int64_t row = outer.count ? outer.dims[0].*stride * bytes : 0;
    int64_t col = inner.count ? inner.dims[0].*stride * bytes : 0;
    const char* at = static_cast<const char*>(base) + first * row + k * col;
    if (std::abs(row) < std::abs(col)) std::swap(row, col), std::swap(n, depth);
    if (row < 0) at += (n - 1) * row, row = -row;
    if (col < 0) at += (depth - 1) * col, col = -col;
    row_ = at, row_step_ = row;
    col_step_ = std::max(col, kLine);
    cols_ = (depth * col + col_step_ - 1) / col_step_ + (col < kLine ? 1 : 0);
    col_ = 0;
    left_ = (row == 0 ? 1 : n) * cols_;
    each_ = (left_ + calls - 1) / calls;
  }
  void stop() { left_ = 0; }

  void fetch() {
    const int64_t n = std::min(each_, left_);
    left_ -= n;
    for (int64_t i = 0; i < n; ++i) {
      __builtin_prefetch(row_ + col_ * col_step_, 0, 2);
      if (++col_ == cols_) col_ = 0, row_ += row_step_;
    }
  }

 private:
  static constexpr int64_t kLine = 64;
  const char* row_ = nullptr;
  int64_t row_step_ = 0, col_step_ = 0, cols_ = 0, col_ = 0;  // cols_ lines a row
  int64_t left_ = 0, each_ = 0;
};

}  // namespace stow::cpu
