#include "stowage/runtime/cpu/kernels/row_dims.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "stowage/base/error.h"

namespace stow::cpu {
namespace {

// A dimension and its stride in every operand.
struct Dim {
  int64_t extent;
  Dims strides;
};

// Larger strides outside, the outputs' before the inputs'.
void order_by_strides(std::vector<Dim>& dims, int n_inputs, int n_outputs) {
  const auto weight = [&](const Dim& d) {
    int64_t out = 0, in = 0;
    for (int i = 0; i < n_inputs + n_outputs; ++i)
      (i < n_inputs ? in : out) += std::abs(d.strides[static_cast<size_t>(i)]);
    return std::pair(out, in);
  };
  std::stable_sort(dims.begin(), dims.end(),
                   [&](const Dim& a, const Dim& b) { return weight(a) > weight(b); });
}

// Neighbours that every operand walks through with one stride become one.
void merge(std::vector<Dim>& dims) {
  std::vector<Dim> merged;
  for (Dim& d : dims) {
    bool together = !merged.empty();
    if (together)
      for (size_t k = 0; k < d.strides.size(); ++k)
        together = together && merged.back().strides[k] == d.strides[k] * d.extent;
    if (together) {
      merged.back().extent *= d.extent;
      merged.back().strides = std::move(d.strides);
    } else {
      merged.push_back(std::move(d));
    }
  }
  dims = std::move(merged);
}

// A kernel is called for a run of the innermost row dimension at a time. Where that gives it little
// to do, as between the halves of a head, another dimension comes innermost: the nearest one that
// gives enough, or the longest.
void widen_calls(std::vector<Dim>& rows, int64_t cols) {
  constexpr int64_t kEnough = 128;  // elements a call
  if (rows.empty() || cols == 0 || rows.back().extent * cols >= kEnough) return;
  auto best = rows.rbegin();
  for (auto d = rows.rbegin(); d != rows.rend(); ++d) {
    if (d->extent > best->extent) best = d;
    if (d->extent * cols >= kEnough) break;
  }
  std::rotate(best.base() - 1, best.base(), rows.end());
}

}  // namespace

void plan_dims(const RowProgram& program, RowPlan& plan) {
  const size_t rank = program.dims.size();
  STOW_CHECK(program.n_row_dims >= 0 && static_cast<size_t>(program.n_row_dims) <= rank &&
             program.n_group_dims >= 0 && program.n_group_dims <= program.n_row_dims);
  plan.n_inputs = static_cast<int>(program.inputs.size());
  plan.n_outputs = static_cast<int>(program.outputs.size());
  std::vector<RowOperand> operands = program.inputs;
  operands.insert(operands.end(), program.outputs.begin(), program.outputs.end());
  bool row_reductions = false, column_reductions = false;
  for (const Step& s : program.steps) {
    row_reductions = row_reductions || s.kind == StepKind::kReduceRow;
    column_reductions = column_reductions || s.kind == StepKind::kReduceColumns;
    if (s.kind != StepKind::kIota) continue;
    STOW_CHECK(s.index >= 0 && static_cast<size_t>(s.index) < rank, "iota over {}", s.index);
    operands.push_back({s.dtype, Dims(rank, 0)});
    operands.back().strides[static_cast<size_t>(s.index)] = 1;
  }
  for (const RowOperand& o : operands)
    STOW_CHECK(o.strides.size() == rank, "{} strides for {} dims", o.strides.size(), rank);

  plan.rows = program.rows();
  plan.cols = program.cols();
  std::vector<Dim> groups, rows, cols;
  for (size_t i = 0; i < rank; ++i) {
    STOW_CHECK(program.dims[i] >= 0);
    if (program.dims[i] == 1) continue;
    Dim d = {program.dims[i], {}};
    for (const RowOperand& o : operands) d.strides.push_back(o.strides[i]);
    const int at = static_cast<int>(i);
    const bool is_grouped = column_reductions && at < program.n_group_dims;
    (is_grouped ? groups : at < program.n_row_dims ? rows : cols).push_back(std::move(d));
  }
  if (column_reductions) {
    plan.groups = program.groups();
    plan.group_rows = program.group_rows();
  } else {
    plan.group_rows = plan.rows;
  }
  bool one_a_row = false;  // an output
  for (const RowOperand& o : program.outputs)
    for (size_t i = 0; i < rank; ++i)
      one_a_row = one_a_row || (program.dims[i] != 1 && o.strides[i] == 0);
  // True if a value of each row is stored: its row must be read and written by one unit.
  const bool stores_a_row =
      std::any_of(program.steps.begin(), program.steps.end(), [&](const Step& s) {
        if (s.kind != StepKind::kStore) return false;
        const Dims& strides = program.outputs[static_cast<size_t>(s.index)].strides;
        for (size_t i = 0; i < rank; ++i)
          if (program.dims[i] != 1 && strides[i] == 0) return true;
        return false;
      });
  STOW_CHECK(!plan.in_blocks || !column_reductions, "a column reduction in blocks");
  if (!plan.in_blocks && !row_reductions && !column_reductions && !one_a_row) {
    // Nothing tells rows from columns: all one space, its innermost dimension the columns.
    rows.insert(rows.end(), std::make_move_iterator(cols.begin()),
                std::make_move_iterator(cols.end()));
    order_by_strides(rows, plan.n_inputs, plan.n_outputs);
    merge(rows);
    cols.clear();
    if (!rows.empty()) {
      cols.push_back(std::move(rows.back()));
      rows.pop_back();
      widen_calls(rows, cols.back().extent);
    }
    plan.cols = cols.empty() ? 1 : cols.back().extent;
    plan.rows = 1;
    for (const Dim& d : rows) plan.rows *= d.extent;
    plan.group_rows = plan.rows;
  } else if (column_reductions && !row_reductions && !stores_a_row) {
    // Kernels want columns of one dimension; any other that is not reduced may be one of groups.
    cols.insert(cols.begin(), std::make_move_iterator(groups.begin()),
                std::make_move_iterator(groups.end()));
    groups.clear();
    order_by_strides(cols, plan.n_inputs, plan.n_outputs);
    merge(rows);
    merge(cols);
    constexpr int64_t kLeastColumns = 16, kEnough = 64;  // and elements of a group
    if (cols.size() > 1 && cols.back().extent >= kLeastColumns &&
        cols.back().extent * plan.group_rows >= kEnough) {
      groups.assign(std::make_move_iterator(cols.begin()), std::make_move_iterator(cols.end() - 1));
      cols.erase(cols.begin(), cols.end() - 1);
    }
    plan.groups = plan.cols = 1;
    for (const Dim& d : groups) plan.groups *= d.extent;
    for (const Dim& d : cols) plan.cols *= d.extent;
    plan.rows = plan.groups * plan.group_rows;
  } else {
    // The order of rows is that of column reductions, the order of columns that of row reductions;
    // that of both is its caller's where the program runs in blocks.
    if (!plan.in_blocks && !column_reductions)
      order_by_strides(rows, plan.n_inputs, plan.n_outputs);
    if (!plan.in_blocks && !row_reductions) order_by_strides(cols, plan.n_inputs, plan.n_outputs);
    merge(groups);
    merge(rows);
    merge(cols);
  }

  const bool has_inner_row = !rows.empty();
  plan.n_group_dims = static_cast<int>(groups.size());
  rows.insert(rows.begin(), std::make_move_iterator(groups.begin()),
              std::make_move_iterator(groups.end()));
  for (const Dim& d : rows) plan.row_dims.push_back(d.extent);
  for (const Dim& d : cols) plan.col_dims.push_back(d.extent);
  for (size_t k = 0; k < operands.size(); ++k) {
    PlanOperand o;
    o.dtype = operands[k].dtype;
    o.elem_bytes = dtype_bytes(o.dtype);
    for (const Dim& d : rows) {
      o.row_strides.push_back(d.strides[k]);
      if (d.strides[k] != 0) o.span = o.span | Span::kRow;
    }
    for (const Dim& d : cols) {
      o.col_strides.push_back(d.strides[k]);
      if (d.strides[k] != 0) o.span = o.span | Span::kColumn;
    }
    o.inner_row = has_inner_row ? o.row_strides.back() : 0;
    o.inner_col = cols.empty() ? 0 : o.col_strides.back();
    o.unit_columns = !cols.empty() && o.inner_col == 1;
    for (size_t i = 1; i < cols.size(); ++i)
      o.unit_columns = o.unit_columns && o.col_strides[i - 1] == o.col_strides[i] * cols[i].extent;
    plan.operands.push_back(std::move(o));
  }
}

bool may_share(const PlanOperand& output, const PlanOperand& input) {
  return output.elem_bytes == input.elem_bytes && output.row_strides == input.row_strides &&
         output.col_strides == input.col_strides;
}

}  // namespace stow::cpu
