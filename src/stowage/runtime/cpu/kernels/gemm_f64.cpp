#include "stowage/runtime/cpu/kernels/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stowage/runtime/cpu/kernels/gemm_f64.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "stowage/runtime/cpu/kernels/gemm_run-inl.h"
#include "stowage/runtime/cpu/kernels/gemm_thread.h"

HWY_BEFORE_NAMESPACE();
namespace stow::cpu::HWY_NAMESPACE {

void run_gemm_f64(const GemmPlan& plan, const void* a, const void* b, void* c, void* workspace,
                  int64_t first_task, int64_t last_task) {
  GemmThread<double>(plan, a, b, c, workspace).run(first_task, last_task);
}

}  // namespace stow::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stow::cpu {

HWY_EXPORT(run_gemm_f64);

void gemm_thread_f64(const GemmPlan& plan, const void* a, const void* b, void* c, void* workspace,
                     int64_t first_task, int64_t last_task) {
  HWY_DYNAMIC_DISPATCH(run_gemm_f64)(plan, a, b, c, workspace, first_task, last_task);
}

}  // namespace stow::cpu
#endif
