// Attention on machines that multiply tiles of bf16 (AMX).
#include "stowage/runtime/cpu/kernels/attention_thread.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <algorithm>

#include "stowage/runtime/cpu/kernels/amx.h"
#include "stowage/runtime/cpu/kernels/attention_backward_paired.h"
#include "stowage/runtime/cpu/kernels/attention_forward_paired.h"

namespace stow::cpu {
namespace {

using namespace pairs;

static_assert(kTileUnits.rows == amx::kSide && kTileUnits.pairs == amx::kTile &&
              kTileCols == amx::kSide);

struct TilePanels : PackedPairs<amx::TilePacking<EarlierK::kHigh>> {
  static constexpr AttentionUnits kUnits = kTileUnits;
  template <Onto kOnto>
  STOW_AMX static void multiply(int64_t rows, const TileArgs& args) {
    const auto none = [] {};
    if constexpr (kOnto != Onto::kScaledOut) {
      amx::multiply(args.pairs, args.a, amx::kTile, amx::kStep, args.b, kTileCols,
                    kOnto == Onto::kOut ? args.out : nullptr, args.out_stride, args.out,
                    args.out_stride, none);
    } else {
      alignas(64) float product[amx::kSide * kTileCols];
      amx::multiply(args.pairs, args.a, amx::kTile, amx::kStep, args.b, kTileCols, nullptr, 0,
                    product, kTileCols, none);
      const __m512 factors[2] = {_mm512_load_ps(args.factors),
                                 _mm512_load_ps(args.factors + kLanes)};
      for (int64_t r = 0; r < rows; ++r)
        for (int h = 0; h < 2; ++h) {
          float* const out = args.out + r * args.out_stride + h * kLanes;
          _mm512_store_ps(out,
                          _mm512_fmadd_ps(_mm512_load_ps(out), factors[h],
                                          _mm512_load_ps(product + r * kTileCols + h * kLanes)));
        }
    }
  }

  STOW_AMX static void multiply_rows(int64_t rows, const TileArgs& args) {
    const auto onto = [&](float* out, int64_t stride) STOW_AMX {
      amx::multiply(args.pairs, args.a, kKeyPairs, amx::kTile, args.b, kTileCols, out, stride, out,
                    stride, [] {});
    };
    if (rows == amx::kSide) return onto(args.out, args.out_stride);
    alignas(64) float sums[amx::kSide * kTileCols] = {};
    for (int64_t r = 0; r < rows; ++r)
      std::copy_n(args.out + r * args.out_stride, kTileCols, sums + r * kTileCols);
    onto(sums, kTileCols);
    for (int64_t r = 0; r < rows; ++r)
      std::copy_n(sums + r * kTileCols, kTileCols, args.out + r * args.out_stride);
  }
};

}  // namespace

void attention_forward_tiles(const AttentionForwardArgs& args, void* workspace, int64_t task,
                             int64_t next) {
  const amx::Tiles tiles;
  ForwardPaired<TilePanels>(args, workspace, task, next).run();
}
void attention_backward_tiles(const AttentionBackwardArgs& args, AttentionPart part,
                              void* workspace, int64_t task, int64_t next) {
  const amx::Tiles tiles;
  BackwardPaired<TilePanels>::run(args, part, workspace, task, next);
}

}  // namespace stow::cpu

#else

namespace stow::cpu {

// Never called where there are no such products.
void attention_forward_tiles(const AttentionForwardArgs& args, void* workspace, int64_t task,
                             int64_t next) {
  attention_forward_task(args, workspace, task, next);
}
void attention_backward_tiles(const AttentionBackwardArgs& args, AttentionPart part,
                              void* workspace, int64_t task, int64_t next) {
  attention_backward_task(args, part, workspace, task, next);
}

}  // namespace stow::cpu

#endif
