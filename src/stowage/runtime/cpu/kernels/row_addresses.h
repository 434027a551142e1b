// RowAddresses: where the operands and registers of a row plan lie, for one thread and tile.
// Not the kernel calls over them; row_worker.h has those.
#pragma once

#include <algorithm>

#include "stowage/base/inside.h"
#include "stowage/runtime/cpu/kernels/row_plan.h"

namespace stow::cpu {

/// The points of a step: `rows` rows from `row` on and `cols` columns from `col` on.
struct RowTile {
  int64_t row = 0, rows = 1;
  int64_t col = 0, cols = 1;
};

/// The addresses of one thread: those of the row of the last set_row() and, if they depend on the
/// column, of the strip of the last set_column().
class RowAddresses {
 public:
  /// `own` is the thread's scratch. `bookkeeping` has bookkeeping_bytes(plan).
  RowAddresses(const RowPlan& plan, const std::byte* const* inputs, std::byte* const* outputs,
               std::byte* own, std::byte* bookkeeping)
      : plan_(plan),
        inputs_(inputs),
        outputs_(outputs),
        own_(own),
        row_offsets_(reinterpret_cast<int64_t*>(bookkeeping)),
        bases_(reinterpret_cast<const std::byte**>(row_offsets_ + plan.operands.size())) {
    bases_[kOwnBase] = own;
    bases_[kConstantBase] = reinterpret_cast<const std::byte*>(plan.constants.data());
  }

  /// Sets the offset of row `row` of every operand, in elements.
  void set_row(int64_t row) {
    column_ = -1;
    const size_t n = plan_.operands.size();
    std::fill_n(row_offsets_, n, 0);
    if (row == 0) return;  // an extent may be 0
    for (size_t i = plan_.row_dims.size(); i-- > 0;) {
      const int64_t rest = i == 0 ? 0 : row / plan_.row_dims[i];
      const int64_t index = row - rest * plan_.row_dims[i];
      row = rest;
      for (size_t k = 0; k < n; ++k) row_offsets_[k] += index * plan_.operands[k].row_strides[i];
    }
  }

  /// Returns an operand's offset of column `col`, in elements.
  int64_t column_offset(const PlanOperand& o, int64_t col) const {
    const size_t n_dims = plan_.col_dims.size();
    if (n_dims == 0 || col == 0) return 0;  // an extent may be 0 where col is
    if (n_dims == 1) return col * o.inner_col;
    if (n_dims == 2) {
      const int64_t outer = col / plan_.col_dims[1];
      return outer * o.col_strides[0] + (col - outer * plan_.col_dims[1]) * o.col_strides[1];
    }
    int64_t offset = 0;
    for (size_t i = n_dims; i-- > 0;) {
      offset += col % plan_.col_dims[i] * o.col_strides[i];
      col /= plan_.col_dims[i];
    }
    return offset;
  }

  /// Sets the bases that change from strip to strip.
  void set_column(int64_t col) {
    if (col == column_) return;
    column_ = col;
    bases_[kStripBase1] = own_ + col;
    bases_[kStripBase4] = own_ + 4 * col;
    bases_[kStripBase8] = own_ + 8 * col;
    for (int32_t k : plan_.direct) bases_[kOperandBase + k] = address(k, col);
  }

  const PlanOperand& operand(int32_t index) const {
    return plan_.operands[static_cast<size_t>(index)];
  }
  /// Returns the offset of the row of an operand, in elements.
  int64_t row_offset(int32_t index) const { return row_offsets_[index]; }
  /// Returns the address of an operand at the tile's first row and the strip's first column. Only
  /// for operands that kernels access directly (RowPlan::direct).
  const std::byte* strip(int32_t index) const { return bases_[kOperandBase + index]; }

  /// Calls f(first column, length) for each run along the innermost column dimension.
  template <typename F>
  void for_each_run(const RowTile& t, F f) const {
    const int64_t inner = plan_.col_dims.size() <= 1 ? plan_.cols : plan_.inner_cols();
    for (int64_t c = t.col; c < t.col + t.cols;) {
      const int64_t n = std::min(t.col + t.cols - c, inner - c % inner);
      f(c, n);
      c += n;
    }
  }

  /// Returns the address of an operand at the tile's first row and column `col`.
  const std::byte* address(int32_t index, int64_t col) const {
    const PlanOperand& o = operand(index);
    const std::byte* base =
        index < plan_.n_inputs ? inputs_[index] : outputs_[index - plan_.n_inputs];
    return base + (row_offsets_[index] + column_offset(o, col)) * o.elem_bytes;
  }

  /// Returns a place as an operand of a kernel over a tile of `cols` columns.
  KernelArg arg(const Place& p, int64_t cols) const {
    return {bases_[p.base] + p.offset, p.row_const + p.row_per_col * cols, p.splat, p.form};
  }

  /// Returns the address of column c of a register for a move of values of `span`, and its steps.
  std::byte* register_side(const Place& p, const RowTile& t, int64_t c, Span span,
                           int64_t& row_step, int64_t& col_step) const {
    const bool by_row = span == Span::kRow;
    const KernelArg a = arg(p, t.cols);
    col_step = a.splat ? 0 : p.elem_bytes;
    row_step = a.row_step;
    return const_cast<std::byte*>(a.data) + (by_row ? 0 : (c - t.col) * col_step);
  }

  /// True if the operand has the same values for every index of the outer column dimensions.
  bool repeats_inner_columns(const PlanOperand& o) const {
    return plan_.col_dims.size() > 1 &&
           std::all_of(o.col_strides.begin(), o.col_strides.end() - 1,
                       [](int64_t stride) { return stride == 0; });
  }

 private:
  const RowPlan& plan_;
  const std::byte* const* inputs_;
  std::byte* const* outputs_;
  std::byte* own_;
  int64_t* row_offsets_;     // offset of each operand's row, in elements
  const std::byte** bases_;  // see Base
  int64_t column_ = -1;      // the column to which bases_ point; -1: none
};

}  // namespace stow::cpu
