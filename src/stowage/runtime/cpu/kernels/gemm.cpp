#include "stowage/runtime/cpu/kernels/gemm.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "stowage/runtime/cpu/kernels/cpu_vendor.h"
#include "stowage/runtime/cpu/kernels/gemm_plan.h"
#include "stowage/runtime/cpu/kernels/gemm_small.h"
#include "stowage/runtime/cpu/kernels/gemm_thread.h"
#include "stowage/runtime/cpu/kernels/team_edge.h"

namespace stow::cpu {

int64_t gemm_workspace_bytes(const GemmSpec& spec, int threads) {
  // The same on machines with products of pairs or tiles and on others.
  int64_t bytes = 0;
  for (GemmForm form :
       {GemmForm::kPlain, GemmForm::kPaired, GemmForm::kTiled, GemmForm::kTripled}) {
    if (form == GemmForm::kTripled ? !gemm_may_triple(spec)
                                   : form != GemmForm::kPlain && !gemm_may_pair(spec))
      continue;
    const GemmPlan plan = plan_gemm(spec, threads, form);
    bytes = std::max(bytes, plan.thread_bytes * plan.threads);
  }
  return bytes;
}

namespace {

std::atomic<int> g_form_for_test = -1;

// Writes zeros into the tasks' elements of C, of any dtype (K is empty).
void write_zeros(const GemmPlan& p, void* c, int64_t first_task, int64_t last_task) {
  const int64_t bytes = dtype_bytes(p.c);
  for (int64_t t = first_task; t < last_task; ++t) {
    const int64_t im = t % p.tasks_m, in = t / p.tasks_m % p.tasks_n;
    int64_t batch, row, col;
    gemm_offsets(p.batch, &GemmDim::c_stride, t / (p.tasks_m * p.tasks_n), 1, &batch);
    for (int64_t m = im * p.task_m; m < std::min((im + 1) * p.task_m, p.m.extent); ++m) {
      gemm_offsets(p.m, &GemmDim::c_stride, m, 1, &row);
      for (int64_t n = in * p.task_n; n < std::min((in + 1) * p.task_n, p.n.extent); ++n) {
        gemm_offsets(p.n, &GemmDim::c_stride, n, 1, &col);
        std::memset(static_cast<char*>(c) + (batch + row + col) * bytes, 0,
                    static_cast<size_t>(bytes));
      }
    }
  }
}

bool can_multiply(GemmForm form) {
  return form == GemmForm::kPlain || (form == GemmForm::kPaired ? can_multiply_pairs()
                                                                : can_multiply_tiles());
}

}  // namespace

GemmForm bf16_form() {
  if (const int form = g_form_for_test.load(std::memory_order_relaxed); form >= 0)
    return can_multiply(static_cast<GemmForm>(form)) ? static_cast<GemmForm>(form)
                                                     : GemmForm::kPlain;
  if (can_multiply_tiles()) return GemmForm::kTiled;
  return made_by_amd() && can_multiply_pairs() ? GemmForm::kPaired : GemmForm::kPlain;
}
GemmForm split_form() {
  return bf16_form() == GemmForm::kTiled ? GemmForm::kTripled : GemmForm::kPlain;
}
GemmForm gemm_form(const GemmSpec& spec) {
  if (gemm_may_pair(spec)) return bf16_form();
  return gemm_may_triple(spec) ? split_form() : GemmForm::kPlain;
}
bool set_bf16_form_for_test(std::optional<GemmForm> form) {
  g_form_for_test = form ? static_cast<int>(*form) : -1;
  return !form || can_multiply(*form);
}

namespace {

// The plan's hooks are set.
void run_gemm(GemmPlan& plan, const void* a, const void* b, void* c, void* workspace) {
  if (plan.n_tasks() == 0) return;
  if (gemm_is_small(plan)) {
    if (plan.swapped) std::swap(a, b);
    return gemm_small(plan, static_cast<const float*>(a), static_cast<const float*>(b),
                      static_cast<float*>(c));
  }
  GemmThreadFn run = is_integer(plan.c)                               ? &gemm_thread_int
                     : plan.a == DType::kF64 || plan.c == DType::kF64 ? &gemm_thread_f64
                     : plan.form == GemmForm::kTiled                    ? &gemm_thread_tiles
                     : plan.form == GemmForm::kTripled                  ? &gemm_thread_triples
                     : plan.form == GemmForm::kPaired                   ? &gemm_thread_bf16
                                                                      : &gemm_thread_f32;
  if (plan.k.extent == 0) {
    run = [](const GemmPlan& p, const void*, const void*, void* to, void*, int64_t first,
             int64_t last) {
      if (!p.accumulate) write_zeros(p, to, first, last);
    };
    plan.threads = 1;  // little to do, and then all of it for an epilogue
  }
  if (plan.swapped) std::swap(a, b);
  const int64_t n_tasks = plan.n_tasks();
  if (plan.threads == 1) {
    run(plan, a, b, c, workspace, 0, n_tasks);
    if (plan.k.extent == 0 && plan.epilogue)
      run_epilogue(plan, 0, plan.m.extent, 0, plan.n.extent, workspace);
    return;
  }
  const int shares = plan.threads;
  ParallelRegionScope region;
#pragma omp parallel num_threads(shares)
  {
    region.enter();
    // The runtime may grant fewer threads than asked; the shares stay the same.
    for (int i = omp_get_thread_num(); i < shares; i += omp_get_num_threads())
      run(plan, a, b, c, static_cast<char*>(workspace) + i * plan.thread_bytes,
          n_tasks * i / shares, n_tasks * (i + 1) / shares);
    region.leave();
  }
}

void set_hooks(GemmPlan& plan, const GemmHooks& hooks, bool has_epilogue) {
  if (has_epilogue) plan.epilogue = &hooks.epilogue;
  plan.a_prologue.run = &hooks.prologue_a;
  plan.b_prologue.run = &hooks.prologue_b;
  plan.a_prologue.source = hooks.source_a;
  plan.b_prologue.source = hooks.source_b;
}

}  // namespace

void gemm(const GemmSpec& spec, const void* a, const void* b, void* c, void* workspace,
          int threads, const GemmHooks& hooks) {
  GemmPlan plan = plan_gemm(spec, threads, gemm_form(spec));
  set_hooks(plan, hooks, spec.epilogue.has_value());
  run_gemm(plan, a, b, c, workspace);
}

GemmRunner::GemmRunner(GemmSpec spec, int threads) : spec_(std::move(spec)), threads_(threads) {}
GemmRunner::~GemmRunner() = default;

void GemmRunner::run(const void* a, const void* b, void* c, void* workspace,
                     const GemmHooks& hooks) {
  const GemmForm form = gemm_form(spec_);
  if (!plan_ || plan_->form != form)
    plan_ = std::make_unique<GemmPlan>(plan_gemm(spec_, threads_, form));
  set_hooks(*plan_, hooks, spec_.epilogue.has_value());
  run_gemm(*plan_, a, b, c, workspace);
}

}  // namespace stow::cpu
