// Attention on machines that multiply pairs of bf16 (AVX-512-BF16).
#include "stowage/runtime/cpu/kernels/attention_thread.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <algorithm>

#include "stowage/runtime/cpu/kernels/attention_backward_paired.h"
#include "stowage/runtime/cpu/kernels/attention_forward_paired.h"

namespace stow::cpu {
namespace {

using namespace pairs;

static_assert(kPanelRows == kTileRows && kPairUnits.rows == kTileRows);
static_assert(PairPacking::kRows == kTileRows && PairPacking::kCols == kTileCols);

struct PairPanels : PackedPairs<PairPacking> {
  static constexpr AttentionUnits kUnits = kPairUnits;
  template <Onto kOnto>
  static void multiply(int64_t rows, const TileArgs& args) {
    kTiles<1, kTileRows, kOnto>[static_cast<size_t>(rows - 1)](args);
  }
  static void multiply_rows(int64_t rows, const TileArgs& args) {
    kTiles<kKeyPairs, 1, Onto::kOut>[static_cast<size_t>(rows - 1)](args);
  }
};

const uint16_t* words(const void* p) { return static_cast<const uint16_t*>(p); }

// The words of n <= 32 elements of a row, zeros behind them.
STOW_BF16 __m512i load_row(const uint16_t* from, int64_t n, int64_t stride) {
  if (stride == 1) return _mm512_maskz_loadu_epi16(first32(n), from);
  alignas(64) uint16_t row[2 * kLanes] = {};
  for (int64_t i = 0; i < std::min(n, 2 * kLanes); ++i) row[i] = from[i * stride];
  return _mm512_load_si512(row);
}

STOW_BF16 void delta_rows(const AttentionSpec& s, const uint16_t* out, const uint16_t* d_out,
                          int64_t n, float* delta) {
  for (int64_t i = 0; i < n; ++i, out += s.out[1], d_out += s.d_out[1]) {
    __m512 sum = _mm512_setzero_ps();
    for (int64_t d = 0; d < s.head_dim; d += 2 * kLanes) {
      const __m512i o = load_row(out + d * s.out[3], s.head_dim - d, s.out[3]);
      const __m512i g = load_row(d_out + d * s.d_out[3], s.head_dim - d, s.d_out[3]);
      sum = _mm512_dpbf16_ps(sum, (__m512bh)o, (__m512bh)g);
    }
    delta[i] = _mm512_reduce_add_ps(sum);
  }
}

}  // namespace

void attention_delta_pairs(const AttentionBackwardArgs& args, int64_t head, int64_t first,
                           int64_t n) {
  const AttentionSpec& s = args.spec;
  const int64_t batch = head / s.q_heads, q_head = head % s.q_heads;
  delta_rows(s, words(args.out) + batch * s.out[0] + first * s.out[1] + q_head * s.out[2],
             words(args.d_out) + batch * s.d_out[0] + first * s.d_out[1] + q_head * s.d_out[2], n,
             args.delta + head * s.q_len + first);
}

void attention_forward_pairs(const AttentionForwardArgs& args, void* workspace, int64_t task,
                             int64_t next) {
  ForwardPaired<PairPanels>(args, workspace, task, next).run();
}
void attention_backward_pairs(const AttentionBackwardArgs& args, AttentionPart part,
                              void* workspace, int64_t task, int64_t next) {
  BackwardPaired<PairPanels>::run(args, part, workspace, task, next);
}

}  // namespace stow::cpu

#else

namespace stow::cpu {

// Never called where there are no such products.
void attention_forward_pairs(const AttentionForwardArgs& args, void* workspace, int64_t task,
                             int64_t next) {
  attention_forward_task(args, workspace, task, next);
}
void attention_delta_pairs(const AttentionBackwardArgs& args, int64_t head, int64_t first,
                           int64_t n) {
  attention_delta(args, head, first, n);
}
void attention_backward_pairs(const AttentionBackwardArgs& args, AttentionPart part,
                              void* workspace, int64_t task, int64_t next) {
  attention_backward_task(args, part, workspace, task, next);
}

}  // namespace stow::cpu

#endif
