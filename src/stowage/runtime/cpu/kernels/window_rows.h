// The kernel of windowed reductions: a row of results, from offsets that window.cpp computes.
// Not the op; window.cpp handles padding, dilation and the choice of rows.
#pragma once

#include <cstdint>

#include "stowage/base/inside.h"
#include "stowage/core/dtype.h"
#include "stowage/ir/op_list.h"

namespace stow::cpu {

/// The elements of an operand that one result reads along one axis, evenly spaced.
struct WindowTaps {
  int64_t index;  ///< Index of the first element, on the axis.
  int64_t count;
};

/// One tap of a line, and the results that read it: `first`, first + line_step, … (`count` of them).
struct WindowLineTap {
  int64_t first, count;
  int64_t index;  ///< Index of the element that result `first` reads, on its axis.
};

/// A row of results. `x` is the operand, `y` the results; strides and offsets count elements, and places
/// number the elements of a row-major operand (for kWindowArgMax and kWindowArgMin).
///
/// Lanes are neighbouring results whose windows do not overlap: lane l reads x_lane * l further on. Without
/// `line`, the lanes of one result of the inner axis are computed together, result after result of that axis.
/// With it, the results of the last windowed axis are computed together, tap after tap.
struct WindowRow {
  const int64_t* bases = nullptr;  ///< Offsets at which the taps on the other axes begin, in order.
  const int64_t* base_places = nullptr;  ///< Their places.
  int64_t n_bases = 0;
  const WindowTaps* inner = nullptr;  ///< Taps that each result reads of the inner axis.
  int64_t n_inner = 1;
  int64_t inner_step = 1;  ///< From one tap to the next, in elements of the inner axis.
  int64_t x_inner = 0, y_inner = 0, inner_place = 0;  ///< Strides along the inner axis.
  int64_t lanes = 1;
  int64_t x_lane = 0, y_lane = 0, lane_place = 0;  ///< Strides from lane to lane.

  const WindowLineTap* line = nullptr;  ///< Taps along the last windowed axis; null: there is no line.
  int64_t n_line = 0;
  int64_t line_outs = 0;        ///< Results of the line.
  int64_t line_step = 1;        ///< Results from one that reads a tap to the next.
  int64_t line_index_step = 1;  ///< Elements of the axis between what these two read.
  int64_t x_line = 0, y_line = 0, line_place = 0;  ///< Strides along the line.
};

/// Computes a row of kWindowSum, kWindowMax, kWindowMin, kWindowArgMax or kWindowArgMin over x of
/// `dtype`; y is of that dtype, or i32 or i64 (`wide`) places, -1 where a window is empty.
void window_row(OpKind op, DType dtype, const WindowRow& row, const void* x, void* y, bool wide);

}  // namespace stow::cpu
