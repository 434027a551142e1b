#include <algorithm>
#include <cstdint>
#include <cstring>

#include "stowage/base/error.h"
#include "stowage/runtime/cpu/kernels/gemm_thread.h"

namespace stow::cpu {
namespace {

// Calls visit(c_offset, a_row, b_col) for each element of the tasks' part of C.
template <typename Visit>
void each_element(const GemmPlan& p, int64_t first_task, int64_t last_task, Visit visit) {
  for (int64_t t = first_task; t < last_task; ++t) {
    const int64_t im = t % p.tasks_m, in = t / p.tasks_m % p.tasks_n;
    const int64_t batch = t / (p.tasks_m * p.tasks_n);
    int64_t a0, b0, c0, am, cm, bn, cn;
    gemm_offsets(p.batch, &GemmDim::a_stride, batch, 1, &a0);
    gemm_offsets(p.batch, &GemmDim::b_stride, batch, 1, &b0);
    gemm_offsets(p.batch, &GemmDim::c_stride, batch, 1, &c0);
    for (int64_t m = im * p.task_m; m < std::min((im + 1) * p.task_m, p.m.extent); ++m) {
      gemm_offsets(p.m, &GemmDim::a_stride, m, 1, &am);
      gemm_offsets(p.m, &GemmDim::c_stride, m, 1, &cm);
      for (int64_t n = in * p.task_n; n < std::min((in + 1) * p.task_n, p.n.extent); ++n) {
        gemm_offsets(p.n, &GemmDim::b_stride, n, 1, &bn);
        gemm_offsets(p.n, &GemmDim::c_stride, n, 1, &cn);
        visit(c0 + cm + cn, a0 + am, b0 + bn);
      }
    }
  }
}

// U: the unsigned type of the width, whose sums wrap as two's complement does.
template <typename U>
void multiply(const GemmPlan& p, const void* a_data, const void* b_data, void* c_data,
              int64_t first_task, int64_t last_task) {
  const U *a = static_cast<const U*>(a_data), *b = static_cast<const U*>(b_data);
  U* c = static_cast<U*>(c_data);
  each_element(p, first_task, last_task, [&](int64_t to, int64_t row, int64_t col) {
    uint64_t sum = p.accumulate ? c[to] : 0;
    constexpr int64_t kChunk = 64;
    int64_t ak[kChunk], bk[kChunk];
    for (int64_t k0 = 0; k0 < p.k.extent; k0 += kChunk) {
      const int64_t kc = std::min(kChunk, p.k.extent - k0);
      gemm_offsets(p.k, &GemmDim::a_stride, k0, kc, ak);
      gemm_offsets(p.k, &GemmDim::b_stride, k0, kc, bk);
      for (int64_t k = 0; k < kc; ++k) sum += uint64_t{a[row + ak[k]]} * b[col + bk[k]];
    }
    c[to] = static_cast<U>(sum);
  });
}

}  // namespace

void gemm_thread_int(const GemmPlan& plan, const void* a, const void* b, void* c, void*,
                     int64_t first_task, int64_t last_task) {
  switch (dtype_bytes(plan.c)) {
    case 1: return multiply<uint8_t>(plan, a, b, c, first_task, last_task);
    case 4: return multiply<uint32_t>(plan, a, b, c, first_task, last_task);
    case 8: return multiply<uint64_t>(plan, a, b, c, first_task, last_task);
  }
  STOW_CHECK(false, "a product of {}", dtype_name(plan.c));
}

void gemm_zero(const GemmPlan& plan, void* c, int64_t first_task, int64_t last_task) {
  const int64_t bytes = dtype_bytes(plan.c);
  each_element(plan, first_task, last_task, [&](int64_t to, int64_t, int64_t) {
    std::memset(static_cast<char*>(c) + to * bytes, 0, static_cast<size_t>(bytes));
  });
}

}  // namespace stow::cpu
