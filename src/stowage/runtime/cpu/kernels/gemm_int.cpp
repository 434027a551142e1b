// Products of integers: rare, so machines with AVX-512 run what is compiled for AVX2. Not where all
// of the library is compiled for such a machine.
#if !defined(HWY_DISABLED_TARGETS) && !defined(__AVX512F__)
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3)
#endif
#include "stowage/runtime/cpu/kernels/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stowage/runtime/cpu/kernels/gemm_int.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "stowage/runtime/cpu/kernels/gemm_run-inl.h"
#include "stowage/runtime/cpu/kernels/gemm_thread.h"

HWY_BEFORE_NAMESPACE();
namespace stow::cpu::HWY_NAMESPACE {

// Sums wrap as two's complement does, so the low bytes of C are those of unsigned sums as wide.
void run_gemm_int(const GemmPlan& plan, const void* a, const void* b, void* c, void* workspace,
                  int64_t first_task, int64_t last_task) {
  if (dtype_bytes(plan.c) == 8)
    GemmThread<uint64_t>(plan, a, b, c, workspace).run(first_task, last_task);
  else
    GemmThread<uint32_t>(plan, a, b, c, workspace).run(first_task, last_task);
}

}  // namespace stow::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stow::cpu {

HWY_EXPORT(run_gemm_int);

void gemm_thread_int(const GemmPlan& plan, const void* a, const void* b, void* c, void* workspace,
                     int64_t first_task, int64_t last_task) {
  HWY_DYNAMIC_DISPATCH(run_gemm_int)(plan, a, b, c, workspace, first_task, last_task);
}

}  // namespace stow::cpu
#endif
