// The units of a row plan: their number for a run, and the loop of one thread over its share of
// them.
// Not the work of a unit; that is in row_worker.h.
#pragma once

#include <algorithm>
#include <cstdint>

#include "stowage/runtime/cpu/kernels/row_worker.h"

namespace stow::cpu {

/// The units of a plan for a run on `threads` threads.
struct RowUnits {
  // True if the plan has column reductions; true if it has and a unit is all rows of a group by a
  // block of columns (RowPlan::sums_in_order()).
  bool sums, in_order;
  int64_t col_units, units;  // number of blocks of columns, and of all units

  RowUnits(const RowPlan& plan, int threads) {
    sums = !plan.column_stores.empty();
    in_order = sums && plan.sums_in_order(threads);
    col_units = plan.col_units();
    const int64_t row_units = in_order ? plan.groups
                              : sums   ? plan.groups * plan.chunks()
                                       : (plan.rows + plan.unit_rows - 1) / plan.unit_rows;
    units = row_units * col_units;
  }
};

/// Runs units [first, last).
template <class Calls>
void run_units(RowWorker<Calls>& worker, const RowPlan& plan, const RowUnits& of, int64_t first,
               int64_t last) {
  for (int64_t u = first; u < last;) {
    const int64_t unit = u % of.col_units, col = unit * plan.unit_cols;
    if (of.sums) {
      const int64_t col_end = std::min(plan.cols, col + plan.unit_cols), part = u / of.col_units;
      if (of.in_order)
        worker.run_group(part, col, col_end);
      else
        worker.run_chunk(part / plan.chunks(), part % plan.chunks(), col, col_end);
      ++u;
      continue;
    }
    const int64_t row = u / of.col_units * plan.unit_rows;
    // A strip may contain several units.
    const int64_t n = plan.c_tile > plan.unit_cols ? std::min(last - u, of.col_units - unit) : 1;
    worker.run_unit(row, std::min(plan.rows, row + plan.unit_rows), col,
                    std::min(plan.cols, (unit + n) * plan.unit_cols));
    u += n;
  }
}

/// Finishes thread `thread`'s share of each group's column sums from the partial sums of all
/// threads.
template <class Calls>
void finish_sums(RowWorker<Calls>& worker, const RowPlan& plan, int thread, int n_threads) {
  // In multiples of 64 columns, so that threads share no cache line of the partials.
  const int64_t blocks = (plan.cols + 63) / 64;
  const int64_t first_col = blocks * thread / n_threads * 64;
  const int64_t last_col = std::min(plan.cols, blocks * (thread + 1) / n_threads * 64);
  for (int64_t group = 0; group < plan.groups && first_col < last_col; ++group)
    for (const PlanStep& s : plan.column_stores)
      worker.finish_columns(s, group, first_col, last_col);
}

}  // namespace stow::cpu
