#include "stowage/runtime/cpu/kernels/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stowage/runtime/cpu/kernels/gemm_f32.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "stowage/runtime/cpu/kernels/gemm_few-inl.h"
#include "stowage/runtime/cpu/kernels/gemm_run-inl.h"
#include "stowage/runtime/cpu/kernels/gemm_thread.h"

HWY_BEFORE_NAMESPACE();
namespace stow::cpu::HWY_NAMESPACE {

void run_gemm_f32(const GemmPlan& plan, const void* a, const void* b, void* c, void* workspace,
                  int64_t first_task, int64_t last_task) {
  if (takes_few_rows(plan)) return run_few_rows(plan, a, b, c, workspace, first_task, last_task);
  GemmThread<float>(plan, a, b, c, workspace).run(first_task, last_task);
}

bool is_avx512() {
  return HWY_TARGET <= HWY_AVX3;
}

}  // namespace stow::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stow::cpu {

HWY_EXPORT(run_gemm_f32);
HWY_EXPORT(is_avx512);

bool gemm_target_is_avx512() {
  return HWY_DYNAMIC_DISPATCH(is_avx512)();
}

void gemm_thread_f32(const GemmPlan& plan, const void* a, const void* b, void* c, void* workspace,
                     int64_t first_task, int64_t last_task) {
  HWY_DYNAMIC_DISPATCH(run_gemm_f32)(plan, a, b, c, workspace, first_task, last_task);
}

}  // namespace stow::cpu
#endif
