// Products of two bf16 operands on machines that multiply pairs of them (AVX-512-BF16). The same
// bits as the widening kernel has: the instruction adds the product of the high halves, rounds,
// then that of the low halves, so the earlier k goes into the high half. Only subnormal numbers
// differ: it takes and gives zeros for them.
#include "stowage/runtime/cpu/kernels/gemm_thread.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <array>
#include <type_traits>
#include <utility>

#include "stowage/runtime/cpu/kernels/gemm_paired.h"

namespace stow::cpu {
namespace {

using namespace pairs;

constexpr int64_t kRows = PairPacking::kRows;  // of a micro-kernel's piece of C
static_assert(kGemmRowUnit % kRows == 0 && PairPacking::kCols == kCols);

// As gemm_micro-inl.h's, two steps of k at a time; into f32, or rounded into bf16.
template <typename Out, int R>
STOW_BF16 void micro(const PieceArgs& args) {
  __m512 acc[R][2];
  Out* const out = static_cast<Out*>(args.out);
  const char* touch = static_cast<const char*>(args.prefetch_at);
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r, touch += args.prefetch_stride) {
    acc[r][0] = acc[r][1] = _mm512_setzero_ps();
    __builtin_prefetch(touch, 1);
    __builtin_prefetch(touch + 64, 1);
  }
  const uint32_t *a = args.a, *b = args.b;
  GemmFetch ahead = args.fetch;
  for (int64_t k = args.pairs; k > 0;) {
    _mm_prefetch(ahead.next(), _MM_HINT_T1);
    const int64_t steps = std::min(k, kFetchEvery);
    k -= steps;
    for (int64_t i = 0; i < steps; ++i, a += kRows, b += kCols) {
      const __m512bh b0 = (__m512bh)_mm512_loadu_si512(b);
      const __m512bh b1 = (__m512bh)_mm512_loadu_si512(b + kLanes);
#pragma GCC unroll 12
      for (int r = 0; r < R; ++r) {
        const __m512bh x = (__m512bh)_mm512_set1_epi32(static_cast<int>(a[r]));
        acc[r][0] = _mm512_dpbf16_ps(acc[r][0], x, b0);
        acc[r][1] = _mm512_dpbf16_ps(acc[r][1], x, b1);
      }
    }
  }
  const __mmask16 masks[2] = {first16(args.cols), first16(args.cols - kLanes)};
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r) {
    if (args.prev) {
      const float* const prev = args.prev + r * args.prev_stride;
      acc[r][0] = _mm512_add_ps(_mm512_maskz_loadu_ps(masks[0], prev), acc[r][0]);
      acc[r][1] = _mm512_add_ps(_mm512_maskz_loadu_ps(masks[1], prev + kLanes), acc[r][1]);
    }
    Out* const to = out + r * args.out_stride;
    if constexpr (std::is_same_v<Out, Bf16>) {
      _mm512_mask_storeu_epi16(to, first32(args.cols), rounded(acc[r][0], acc[r][1]));
    } else {
      _mm512_mask_storeu_ps(to, masks[0], acc[r][0]);
      _mm512_mask_storeu_ps(to + kLanes, masks[1], acc[r][1]);
    }
  }
}

using MicroFn = void (*)(const PieceArgs&);
template <typename Out, int... R>
constexpr std::array<MicroFn, sizeof...(R)> micro_table(std::integer_sequence<int, R...>) {
  return {&micro<Out, R + 1>...};
}
template <typename Out>
constexpr auto kMicro = micro_table<Out>(std::make_integer_sequence<int, kRows>());

struct PairKernel : PairPacking {
  template <typename Out>
  static void multiply(int64_t rows, const PieceArgs& args) {
    kMicro<Out>[static_cast<size_t>(rows - 1)](args);
  }
};

}  // namespace

bool can_multiply_pairs() {
  static const bool has =
      __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw");
  return has && gemm_target_is_avx512();
}

void gemm_thread_bf16(const GemmPlan& plan, const void* a, const void* b, void* c, void* workspace,
                      int64_t first_task, int64_t last_task) {
  PairedThread<PairKernel>(plan, a, b, c, workspace).run(first_task, last_task);
}

}  // namespace stow::cpu

#else

namespace stow::cpu {

bool can_multiply_pairs() { return false; }

// Never called where there are no such products.
void gemm_thread_bf16(const GemmPlan& plan, const void* a, const void* b, void* c, void* workspace,
                      int64_t first_task, int64_t last_task) {
  gemm_thread_f32(plan, a, b, c, workspace, first_task, last_task);
}

}  // namespace stow::cpu

#endif
