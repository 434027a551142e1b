// The kernel of windowed reductions: computes a row of results from offsets that window.cpp
// computes.
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
  int64_t count;  ///< Number of elements.
};

/// One tap of a line, and the `count` results that read it: `first`, first + line_step, …
struct WindowLineTap {
  int64_t first, count;
  int64_t index;  ///< Index of the element that result `first` reads, on its axis.
};

/// A row of results. Prefixes of fields: `x` for offsets and strides in the operand, `y` in the
/// results, both in elements, and `flat` for flat indices, the numbers of the operand's elements in
/// row-major order (for kWindowArgMax and kWindowArgMin). A tap is an element of the operand that a
/// window reads. The inner axis is the windowed axis along which the row's results lie.
///
/// Lanes are independent results that are computed together: lane l reads the operand x_lane * l
/// elements further on. Without `line`, all lanes of one result of the inner axis are computed
/// together, one result after another. With `line`, all results of the last windowed axis are
/// computed together, one tap after another.
struct WindowRow {
  const int64_t* x_bases = nullptr;  ///< Offset of each tap on the other windowed axes, in order.
  const int64_t* flat_bases = nullptr;  ///< Flat index of each of these taps.
  int64_t n_bases = 0;
  const WindowTaps* inner = nullptr;  ///< Taps that each result of the inner axis reads.
  int64_t n_inner = 1;                ///< Results of the inner axis.
  int64_t inner_step = 1;  ///< Elements of the inner axis from one tap to the next.
  int64_t x_inner = 0, y_inner = 0, flat_inner = 0;  ///< Strides along the inner axis.
  int64_t lanes = 1;                               ///< Number of lanes.
  int64_t x_lane = 0, y_lane = 0, flat_lane = 0;  ///< Strides from lane to lane.

  const WindowLineTap* line = nullptr;  ///< Taps along the last windowed axis; null: no line.
  int64_t n_line = 0;                   ///< Number of these taps.
  int64_t line_outs = 0;        ///< Results along the line.
  int64_t line_step = 1;        ///< Results from one that reads a tap to the next that reads it.
  int64_t line_index_step = 1;  ///< Elements of the axis between the elements that these read.
  int64_t x_line = 0, y_line = 0, flat_line = 0;  ///< Strides along the line.
};

/// Computes a row of kWindowSum, kWindowMax, kWindowMin, kWindowArgMax or kWindowArgMin over x of
/// `dtype`. y has that dtype; for the last two ops it holds flat indices as i32, or as i64 if
/// `wide`, and -1 for an empty window.
void window_row(OpKind op, DType dtype, const WindowRow& row, const void* x, void* y, bool wide);

}  // namespace stow::cpu
