// Prefetches the parts of operands that a product packs next, during the micro-kernels before.
// Not packing: it writes nothing, and a wrong guess costs only time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "stowage/runtime/cpu/kernels/gemm_plan.h"

namespace stow::cpu {

/// Cache lines that one micro-kernel prefetches: `left` lines from `at` on, `step` bytes apart;
/// then, `jump` bytes further on, `run` lines, and so on.
struct GemmFetch {
  const char* at = nullptr;
  int64_t step = 0;
  int64_t left = 1, run = 1, jump = 0;

  /// Returns the address of the next line.
  const char* next() {
    const char* const line = at;
    at += step;
    if (--left == 0) at += jump, left = run;
    return line;
  }
};

/// The lines of one block of an operand that are to be prefetched, handed out in parts.
class GemmPrefetcher {
 public:
  /// Makes a block of an operand the one that next() prefetches, row by row of memory: elements
  /// [first, first + n) of the class `outer` by [k, k + depth) of `inner`, `bytes` each, at `base`.
  /// Nothing is prefetched if a class has several dimensions: its elements are not evenly spaced.
  void start(const void* base, int64_t bytes, int64_t GemmDim::*stride, const GemmDims& outer,
             int64_t first, int64_t n, const GemmDims& inner, int64_t k, int64_t depth) {
    rows_ = 0;
    if (outer.count > 1 || inner.count > 1) return;
    start(base, outer.count ? outer.dims[0].*stride * bytes : 0, first, n,
          inner.count ? inner.dims[0].*stride * bytes : 0, k, depth);
  }
  /// Likewise for the input of an operand's prologue, if its location is known.
  void start(const GemmPlan::Prologue& prologue, int64_t first, int64_t n, int64_t k,
             int64_t depth) {
    rows_ = 0;
    const GemmSource& s = prologue.source;
    if (s.base == nullptr) return;
    const int64_t row = s.row_step * s.bytes;
    start(s.base, prologue.rows_are_k ? s.bytes : row, first, n,
          prologue.rows_are_k ? row : s.bytes, k, depth);
  }
  void stop() { rows_ = 0; }

  /// Sets `part` to the next `count` lines; to the line at `idle` if none are left. The fields are
  /// written in place, not returned: a copy of the struct right after its fields are stored would
  /// wait until all earlier stores, those to C among them, are done.
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
  /// Prefetches now a share of the lines that the next `products` micro-kernels will not prefetch
  /// if each takes `lines` lines.
  void fetch_rest(int64_t lines, int64_t products) {
    const int64_t rest_lines = left() - lines * products;
    if (rest_lines <= products) return;
    const int64_t n = rest_lines / (products + 1);
    GemmFetch rest;
    next(n, nullptr, rest);
    for (int64_t i = 0; i < n; ++i) __builtin_prefetch(rest.next(), 0, 2);
  }

 private:
  // Starts on elements [first, first + n) by [k, k + depth), `row` and `col` bytes apart.
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
  const char* at_ = nullptr;         // the current row
  int64_t row_step_ = 0, rows_ = 0;  // rows that are left, with the current one
  // Bytes from one line of a row to the next; lines of each row; the next line of the current row.
  int64_t line_step_ = 0, lines_ = 1, line_ = 0;
};

}  // namespace stow::cpu
