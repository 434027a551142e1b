#include "stowage/runtime/cpu/rates.h"

#include <algorithm>
#include <cstdint>
#include <ctime>

#include "stowage/core/half.h"
#include "stowage/runtime/cpu/kernels/gemm.h"
#include "stowage/runtime/cpu/kernels/parallel_for.h"
#include "stowage/runtime/device.h"

namespace stow::cpu {
namespace {

// One thread is timed by its processor time, as in a profile.
double now_s(int threads) {
  timespec t;
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

template <typename F>
double best_seconds(int times, int threads, F run) {
  double best = 1e30;
  for (int i = 0; i < times; ++i) {
    const double start = now_s(threads);
    run();
    best = std::min(best, now_s(threads) - start);
  }
  return best;
}

// Memory that was never written is one page of zeros for all of it.
DeviceBufferPtr filled(Device& device, int64_t bytes, DType dtype) {
  DeviceBufferPtr buffer = device.allocate(bytes);
  for (int64_t i = 0; i < bytes / dtype_bytes(dtype); ++i) {
    const float value = static_cast<float>(i * 7919 % 1000) / 1000.0f - 0.5f;
    if (dtype == DType::kF32) reinterpret_cast<float*>(buffer->data())[i] = value;
    else narrow(value, reinterpret_cast<Bf16*>(buffer->data())[i]);
  }
  return buffer;
}

}  // namespace

double measured_product_rate(DType dtype, int threads) {
  constexpr int64_t n = 768;
  const DevicePtr device = Device::cpu_with_capacity(Device::unlimited_bytes(), threads);
  const GemmSpec spec = {dtype, dtype, dtype, {}, {{n, n, 0, n}}, {{n, 0, 1, 1}}, {{n, 1, n, 0}}};
  const int64_t bytes = n * n * dtype_bytes(dtype);
  const DeviceBufferPtr a = filled(*device, bytes, dtype), b = filled(*device, bytes, dtype),
                        c = filled(*device, bytes, dtype),
                        work = device->allocate(gemm_workspace_bytes(spec, threads));
  const double seconds = best_seconds(12, threads, [&] {
    gemm(spec, a->data(), b->data(), c->data(), work->data(), threads);
  });
  return 2.0 * static_cast<double>(n * n * n) / seconds;
}

double measured_triad_rate(int threads) {
  constexpr int64_t n = 1 << 24;
  const DevicePtr device = Device::cpu_with_capacity(Device::unlimited_bytes(), threads);
  const DeviceBufferPtr buffers[] = {filled(*device, n * 4, DType::kF32),
                                     filled(*device, n * 4, DType::kF32),
                                     filled(*device, n * 4, DType::kF32)};
  float* const a = reinterpret_cast<float*>(buffers[0]->data());
  const float* const b = reinterpret_cast<float*>(buffers[1]->data());
  const float* const c = reinterpret_cast<float*>(buffers[2]->data());
  const double seconds = best_seconds(6, threads, [&] {
    kernels::parallel_for(threads, n, 1, [&](int64_t begin, int64_t end, int) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) a[i] = b[i] + 3.0f * c[i];
    });
  });
  return 12.0 * static_cast<double>(n) / seconds;
}

}  // namespace stow::cpu
