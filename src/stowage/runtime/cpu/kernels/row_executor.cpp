// The threads of a row plan: units shared out among them, or the strips of wide rows.
#include <omp.h>

#include <algorithm>

#include <hwy/cache_control.h>
#include "stowage/runtime/cpu/kernels/row_plan.h"
#include "stowage/runtime/cpu/kernels/row_units.h"
#include "stowage/runtime/cpu/kernels/team_edge.h"

namespace stow::cpu {

void run_row_block(const RowPlan& plan, const std::byte* const* inputs, std::byte* const* outputs,
                   std::byte* scratch, int64_t row, int64_t row_end, int64_t col,
                   int64_t col_end) {
  RowWorker<CallKernels> worker(plan, inputs, outputs, nullptr, scratch, scratch, true);
  worker.run_once();
  worker.run_unit(row, row_end, col, col_end);
}

void run_row_plan(const RowPlan& plan, const std::byte* const* inputs, std::byte* const* outputs,
                  std::byte* scratch, int threads) {
  const RowUnits units(plan, threads);
  const int64_t shared_bytes = plan.shared_bytes_of(threads);
  const int64_t thread_bytes = plan.thread_bytes_of(threads);
  const bool wide = plan.can_go_wide && threads > 1 && units.units < threads;
  if (plan.work < kSmallRowWork) threads = 1;
  if (!wide && (!units.sums || units.in_order))
    threads = static_cast<int>(std::clamp<int64_t>(units.units, 1, threads));

  const auto work = [&](int thread, int n_threads) {
    std::byte* own = scratch + shared_bytes + thread * thread_bytes;
    RowWorker<CallKernels> worker(plan, inputs, outputs, scratch, own, own, true);
    worker.run_once();
    if (wide && n_threads > 1) {
      for (int64_t r = 0; r < plan.rows; ++r) worker.run_wide_row(r, thread, n_threads);
      if (worker.streams()) hwy::FlushStream();
      return;
    }
    run_units(worker, plan, units, units.units * thread / n_threads,
              units.units * (thread + 1) / n_threads);
    if (worker.streams()) hwy::FlushStream();
    if (!units.sums || units.in_order) return;
    if (n_threads > 1) team_barrier();
    finish_sums(worker, plan, thread, n_threads);
  };
  if (threads == 1) return work(0, 1);
  ParallelRegionScope region;
#pragma omp parallel num_threads(threads)
  {
    region.enter();
    work(omp_get_thread_num(), omp_get_num_threads());
    region.leave();
  }
}

}  // namespace stow::cpu
