// Prefetches the operands that a product packs next, during the micro-kernels that run before.
// Not packing: nothing is written, and a wrong guess costs nothing but time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "stowage/runtime/cpu/kernels/gemm_plan.h"

namespace stow::cpu {

/// Lines that one micro-kernel fetches: `left` lines `step` apart from `at` on; then, `jump`
/// further on, `run` more, and so on.
struct GemmFetch {
  const char* at = nullptr;
  int64_t step = 0;
  int64_t left = 1, run = 1, jump = 0;

  const char* next() {
    const char* const line = at;
    at += step;
    if (--left == 0) at += jump, left = run;
    return line;
  }
};

class GemmAhead {
 public:
  /// From now on next() walks, row by row of memory, over a block of an operand: elements [first,
  /// first + n) of the class `outer` by [k, k + depth) of `inner`, `bytes` each, at `base`. There is
  /// nothing to fetch where a class has several dimensions, whose blocks are not even.
  void start(const void* base, int64_t bytes, int64_t GemmDim::*stride, const GemmDims& outer,
             int64_t first, int64_t n, const GemmDims& inner, int64_t k, int64_t depth) {
    rows_ = 0;
    if (outer.count > 1 || inner.count > 1) return;
    start(base, outer.count ? outer.dims[0].*stride * bytes : 0, first, n,
          inner.count ? inner.dims[0].*stride * bytes : 0, k, depth);
  }
  /// Likewise over what an operand is made of.
  void start(const GemmPlan::Made& made, int64_t first, int64_t n, int64_t k, int64_t depth) {
    rows_ = 0;
    const GemmSource& s = made.source;
    if (s.base == nullptr) return;
    const int64_t row = s.row_step * s.bytes;
    start(s.base, made.rows_are_k ? s.bytes : row, first, n, made.rows_are_k ? row : s.bytes, k,
          depth);
  }
  void stop() { rows_ = 0; }

  /// The part of a micro-kernel that fetches `count` lines; `idle` if there is none left. It is
  /// made where it is wanted: a copy in one piece of what was just written in several would wait
  /// until all stores before it, of C's among them, are done.
  void next(int64_t count, const void* idle, GemmFetch& part) {
    if (rows_ <= 0) {
      part.at = static_cast<const char*>(idle);
      part.step = 0, part.left = 1, part.run = 1, part.jump = 0;
      return;
    }
    part.at = at_ + line_ * line_step_;
    part.step = line_step_;
    part.left = lines_ - line_;
    part.run = lines_;
    part.jump = row_step_ - lines_ * line_step_;
    line_ += count;
    for (; line_ >= lines_; --rows_) line_ -= lines_, at_ += row_step_;
  }
  bool done() const { return rows_ <= 0; }
  /// Lines left to fetch.
  int64_t left() const { return rows_ <= 0 ? 0 : lines_ * rows_ - line_; }
  /// Fetches a share of what so many products to come, of so many lines each, will not.
  void fetch_rest(int64_t lines, int64_t products) {
    const int64_t rest_lines = left() - lines * products;
    if (rest_lines <= products) return;
    const int64_t n = rest_lines / (products + 1);
    GemmFetch rest;
    next(n, nullptr, rest);
    for (int64_t i = 0; i < n; ++i) __builtin_prefetch(rest.next(), 0, 2);
  }

 private:
  // Elements [first, first + n) by [k, k + depth), `row` and `col` bytes apart.
  void start(const void* base, int64_t row, int64_t first, int64_t n, int64_t col, int64_t k,
             int64_t depth) {
    if (n <= 0 || depth <= 0) return;
    const char* at = static_cast<const char*>(base) + first * row + k * col;
    if (std::abs(row) < std::abs(col)) std::swap(row, col), std::swap(n, depth);
    if (col < 0) at += (depth - 1) * col, col = -col;
    at_ = at;
    rows_ = row == 0 ? 1 : n;
    row_step_ = row;
    line_step_ = std::max(col, kLine);
    lines_ = std::max<int64_t>((depth * col + line_step_ - 1) / line_step_, 1);
    line_ = 0;
    if (lines_ > 1) return;
    lines_ = std::exchange(rows_, 1);
    line_step_ = row_step_;
  }

  static constexpr int64_t kLine = 64;
  const char* at_ = nullptr;
  int64_t row_step_ = 0, rows_ = 0;  // rows that are left
  // Bytes from one line of a row to the next; lines of each row; the next line of the current row.
  int64_t line_step_ = 0, lines_ = 1, line_ = 0;
};

}  // namespace stow::cpu
