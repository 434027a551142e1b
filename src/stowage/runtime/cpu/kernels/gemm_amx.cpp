// Products of two bf16 operands on machines that multiply tiles of them (AMX). Their order of sums
// is the instruction's, see gemm.h.
#include "stowage/runtime/cpu/kernels/gemm_thread.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <type_traits>

#include "stowage/runtime/cpu/kernels/amx.h"
#include "stowage/runtime/cpu/kernels/gemm_few_amx.h"
#include "stowage/runtime/cpu/kernels/gemm_paired.h"
#include "stowage/runtime/cpu/kernels/instruction_set.h"

namespace stow::cpu {
namespace {

using namespace pairs;

static_assert(kGemmTiledRowUnit == amx::kSide && kCols == amx::kSide &&
              kGemmPairsInTile == amx::kTile);

struct TileKernel : amx::TilePacking<EarlierK::kLow> {
  template <typename Out>
  STOW_AMX static void multiply(int64_t rows, PieceArgs& args) {
    GemmFetch& ahead = args.fetch;  // no copy, see GemmPrefetcher::next
    const auto fetch = [&]() STOW_AMX {
#pragma GCC unroll 4
      for (int64_t i = 0; i < amx::kTile / kFetchEvery; ++i)
        _mm_prefetch(ahead.next(), _MM_HINT_T1);
    };
    const bool in_place = args.a_stride != 0;
    const int64_t a_stride = in_place ? args.a_stride : amx::kTile,
                  a_step = in_place ? amx::kTile : amx::kStep;
    const auto into = [&](const float* prev, int64_t prev_stride, float* out,
                          int64_t out_stride) STOW_AMX {
      amx::multiply(args.pairs, args.a, a_stride, a_step, args.b, kCols, prev, prev_stride, out,
                    out_stride, fetch);
    };
    const bool whole = rows == kRows && args.cols == kCols;
    const bool sums = args.prev && !args.adds_to_c;  // go on from these
    if constexpr (std::is_same_v<Out, float>)
      if (whole && !(args.prev && args.adds_to_c))
        return into(args.prev, args.prev_stride, static_cast<float*>(args.out), args.out_stride);
    alignas(64) float piece[kRows * kCols];
    const __mmask16 masks[2] = {first16(args.cols), first16(args.cols - kLanes)};
    if (sums && !args.whole && !whole) {
      for (int64_t r = 0; r < rows; ++r)
        for (int h = 0; h < 2; ++h)
          _mm512_store_ps(
              piece + r * kCols + h * kLanes,
              _mm512_maskz_loadu_ps(masks[h], args.prev + r * args.prev_stride + h * kLanes));
      std::fill_n(piece + rows * kCols, (kRows - rows) * kCols, 0.0f);
      into(piece, kCols, piece, kCols);
    } else {
      into(sums ? args.prev : nullptr, args.prev_stride, piece, kCols);
    }
    for (int64_t r = 0; r < rows; ++r)
      write_row(piece + r * kCols,
                args.prev && args.adds_to_c ? args.prev + r * args.prev_stride : nullptr,
                static_cast<Out*>(args.out) + r * args.out_stride, args.cols);
  }
};

// The kernel saves tiles at a switch of threads only for a process that has asked.
bool may_use_tiles() {
  constexpr unsigned kTileBit = 1u << 24, kBf16Bit = 1u << 22;  // leaf 7, edx
  constexpr long kRequestPermission = 0x1023, kTileData = 18;   // arch_prctl
  unsigned a, b, c, d;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & kTileBit) || !(d & kBf16Bit)) return false;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

bool can_multiply_tiles() {
  static const bool may = may_use_tiles();
  return may && allows_tiles() && can_multiply_pairs();
}

void gemm_thread_tiles(const GemmPlan& plan, const void* a, const void* b, void* c, void* workspace,
                       int64_t first_task, int64_t last_task) {
  if (FewRowsAmx few(plan, a, b, c, workspace); few.can_run())
    return few.run(first_task, last_task);
  const amx::Tiles tiles;
  PairedThread<TileKernel>(plan, a, b, c, workspace).run(first_task, last_task);
}

}  // namespace stow::cpu

#else

namespace stow::cpu {

bool can_multiply_tiles() { return false; }

// Never called where there are no such products.
void gemm_thread_tiles(const GemmPlan& plan, const void* a, const void* b, void* c, void* workspace,
                       int64_t first_task, int64_t last_task) {
  gemm_thread_f32(plan, a, b, c, workspace, first_task, last_task);
}

}  // namespace stow::cpu

#endif
