#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "stowage/base/error.h"
#include "stowage/runtime/cpu/kernels/gemm_thread.h"
#include "stowage/runtime/cpu/kernels/half.h"

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

// Calls visit(sum so far, a, b) along K; T is what both operands are stored as.
template <typename T, typename Sum, typename Visit>
void along_k(const GemmPlan& p, const T* a, const T* b, Sum& sum, Visit visit) {
  constexpr int64_t kChunk = 64;
  int64_t ak[kChunk], bk[kChunk];
  for (int64_t k0 = 0; k0 < p.k.extent; k0 += kChunk) {
    const int64_t kc = std::min(kChunk, p.k.extent - k0);
    gemm_offsets(p.k, &GemmDim::a_stride, k0, kc, ak);
    gemm_offsets(p.k, &GemmDim::b_stride, k0, kc, bk);
    for (int64_t k = 0; k < kc; ++k) sum = visit(sum, a[ak[k]], b[bk[k]]);
  }
}

// Operands are widened with their sign; sums wrap as two's complement does.
template <typename T, typename C>
void multiply_int(const GemmPlan& p, const void* a_data, const void* b_data, void* c_data,
                  int64_t first_task, int64_t last_task) {
  const T *a = static_cast<const T*>(a_data), *b = static_cast<const T*>(b_data);
  C* c = static_cast<C*>(c_data);
  each_element(p, first_task, last_task, [&](int64_t to, int64_t row, int64_t col) {
    uint64_t sum = p.accumulate ? c[to] : 0;
    along_k(p, a + row, b + col, sum, [](uint64_t s, T x, T y) {
      return s + static_cast<uint64_t>(x) * static_cast<uint64_t>(y);
    });
    c[to] = static_cast<C>(sum);
  });
}

template <typename T>
void multiply_int_to(const GemmPlan& p, const void* a, const void* b, void* c, int64_t first_task,
                     int64_t last_task) {
  switch (dtype_bytes(p.c)) {
    case 1: return multiply_int<T, uint8_t>(p, a, b, c, first_task, last_task);
    case 4: return multiply_int<T, uint32_t>(p, a, b, c, first_task, last_task);
    default: return multiply_int<T, uint64_t>(p, a, b, c, first_task, last_task);
  }
}

// Sums are f64.
template <typename T, typename C>
void multiply_wide(const GemmPlan& p, const void* a_data, const void* b_data, void* c_data,
                   int64_t first_task, int64_t last_task) {
  const T *a = static_cast<const T*>(a_data), *b = static_cast<const T*>(b_data);
  C* c = static_cast<C*>(c_data);
  using Narrow = std::conditional_t<std::is_same_v<C, double>, double, float>;
  each_element(p, first_task, last_task, [&](int64_t to, int64_t row, int64_t col) {
    double sum = 0;
    along_k(p, a + row, b + col, sum,
            [](double s, T x, T y) { return s + double{widen(x)} * double{widen(y)}; });
    Narrow total = static_cast<Narrow>(sum);
    if (p.accumulate) {
      C rounded;
      narrow(total, rounded);
      total = widen(c[to]) + widen(rounded);
    }
    narrow(total, c[to]);
  });
}

}  // namespace

void gemm_thread_int(const GemmPlan& plan, const void* a, const void* b, void* c, void*,
                     int64_t first_task, int64_t last_task) {
  switch (plan.a) {
    case DType::kI8: return multiply_int_to<int8_t>(plan, a, b, c, first_task, last_task);
    case DType::kU8: return multiply_int_to<uint8_t>(plan, a, b, c, first_task, last_task);
    case DType::kI32: return multiply_int_to<int32_t>(plan, a, b, c, first_task, last_task);
    case DType::kU32: return multiply_int_to<uint32_t>(plan, a, b, c, first_task, last_task);
    case DType::kI64:
    case DType::kU64: return multiply_int_to<uint64_t>(plan, a, b, c, first_task, last_task);
    default: STOW_CHECK(false, "a product of {}", dtype_name(plan.a));
  }
}

void gemm_thread_wide(const GemmPlan& plan, const void* a, const void* b, void* c, void*,
                      int64_t first_task, int64_t last_task) {
  if (plan.a == DType::kF64) {
    switch (plan.c) {
      case DType::kF32: return multiply_wide<double, float>(plan, a, b, c, first_task, last_task);
      case DType::kBF16: return multiply_wide<double, Bf16>(plan, a, b, c, first_task, last_task);
      case DType::kF16: return multiply_wide<double, F16>(plan, a, b, c, first_task, last_task);
      default: break;
    }
  } else if (plan.c == DType::kF64) {
    switch (plan.a) {
      case DType::kF32: return multiply_wide<float, double>(plan, a, b, c, first_task, last_task);
      case DType::kBF16: return multiply_wide<Bf16, double>(plan, a, b, c, first_task, last_task);
      case DType::kF16: return multiply_wide<F16, double>(plan, a, b, c, first_task, last_task);
      default: break;
    }
  }
  STOW_CHECK(false, "a product of {} into {}", dtype_name(plan.a), dtype_name(plan.c));
}

void gemm_zero(const GemmPlan& plan, void* c, int64_t first_task, int64_t last_task) {
  const int64_t bytes = dtype_bytes(plan.c);
  each_element(plan, first_task, last_task, [&](int64_t to, int64_t, int64_t) {
    std::memset(static_cast<char*>(c) + to * bytes, 0, static_cast<size_t>(bytes));
  });
}

}  // namespace stow::cpu
