// Rows of windowed reductions: what is computed together, of offsets that window.cpp has worked out.
// Not the op: padding, holes and the choice of rows are window.cpp's.
#pragma once

#include <cstdint>

#include "stowage/base/inside.h"
#include "stowage/core/dtype.h"
#include "stowage/ir/op_list.h"

namespace stow::cpu {

/// The elements of an operand that a result reads along one axis: `count` of them, evenly spaced.
struct WindowTaps {
  int64_t index, count;  // of the first on the axis
};

/// One tap of a line: which results read it.
struct WindowLineTap {
  int64_t first, count;  // results first, first + step, ...
  int64_t index;         // of the element that the first reads, on its axis
};

/// A row of results. Offsets and strides in elements; places count a row-major operand.
///
/// Lanes are results that no window joins: each reads as its neighbour does, x_lane further.
/// Without `line`, lanes of one result of the inner axis are computed together; results follow each
/// other along the inner axis. With it, the results of the last windowed axis are.
struct WindowRow {
  const int64_t *bases = nullptr, *base_places = nullptr;  // of places on the other axes, in order
  int64_t n_bases = 0;
  const WindowTaps* inner = nullptr;  // of each result of the inner axis
  int64_t n_inner = 1, inner_step = 1;  // the latter from one tap to the next, in elements of the axis
  int64_t x_inner = 0, y_inner = 0, inner_place = 0;
  int64_t lanes = 1, x_lane = 0, y_lane = 0, lane_place = 0;

  const WindowLineTap* line = nullptr;
  int64_t n_line = 0;                         // taps
  int64_t line_outs = 0;                      // results
  int64_t line_step = 1, line_index_step = 1;  // from one result of a tap to the next
  int64_t x_line = 0, y_line = 0, line_place = 0;
};

/// Computes a row of kWindowSum, kWindowMax, kWindowMin, kWindowArgMax or kWindowArgMin over x of
/// `dtype`; y is of that dtype, or i32 or i64 (`wide`) places, -1 where a window is empty.
void window_row(OpKind op, DType dtype, const WindowRow& row, const void* x, void* y, bool wide);

}  // namespace stow::cpu
