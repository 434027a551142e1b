// Attention of f32 on machines that multiply tiles of bf16 (AMX), each number split into three.
#include "stowage/runtime/cpu/kernels/attention_thread.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <algorithm>

#include "stowage/runtime/cpu/kernels/attention_backward_paired.h"
#include "stowage/runtime/cpu/kernels/attention_forward_paired.h"
#include "stowage/runtime/cpu/kernels/triples.h"

namespace stow::cpu {
namespace {

using namespace pairs;
using triples::kParts;
using triples::kSide;
using triples::kStepWords;
using triples::kTile;
using triples::kTileWords;
using triples::Mark;

static_assert(kTripleUnits.rows == kSide && kTripleUnits.pairs == kTile &&
              kTripleUnits.parts == kParts && kTileCols == kSide && kKeyBlock % kSide == 0);

class TriplePanels : public triples::PanelPacking {
 public:
  static constexpr AttentionUnits kUnits = kTripleUnits;
  using Element = float;
  static constexpr bool kInterleaves = true;

  template <Onto kOnto, typename Interleave>
  STOW_AMX static void multiply(int64_t rows, const TileArgs& args, const Interleave& interleave) {
    if constexpr (kOnto == Onto::kNothing) {
      product(args, args.out, interleave);
    } else {
      alignas(64) float piece[kSide * kSide];
      product(args, piece, interleave);
      if constexpr (kOnto == Onto::kScaledOut)
        add<true>(rows, args, piece);
      else
        add<false>(rows, args, piece);
    }
  }
  STOW_AMX static void multiply_rows(int64_t rows, const TileArgs& args) {
    multiply<Onto::kOut>(rows, args, [] {});
  }

  struct Parts {
    __m512i of[kParts];
  };
  static STOW_BF16 Parts split(__m512 x) {
    Parts parts;
    triples::split<false>(x, triples::MarkScaling{}, parts.of);
    return parts;
  }
  static STOW_BF16 void put_pair(uint32_t* panel, int64_t pair, int half, const Parts& first,
                                 const Parts& second) {
    uint32_t* const to = word(panel, pair) + half * kTileWords;
    for (int64_t p = 0; p < kParts; ++p)
      _mm512_store_si512(to + p * 2 * kTileWords, triples::pair_of(first.of[p], second.of[p]));
  }
  static void clear_pairs(uint32_t* panel, int64_t first, int64_t last) {
    for (int64_t pair = first; pair < last; ++pair)
      for (int64_t tile = 0; tile < 2 * kParts; ++tile)
        std::fill_n(word(panel, pair) + tile * kTileWords, kTile, 0u);
  }
  static constexpr int64_t row_offset(int64_t key) { return key / kSide * kStepWords; }
  static STOW_BF16 void put_row(uint32_t* rows, int64_t row, int64_t key, const Parts& first,
                                const Parts& last) {
    uint32_t* const to = rows + row / kSide * kSide * kKeyPairs * kParts +
                         key / kSide * kStepWords + row % kSide / kTile * kTileWords +
                         row % kTile * kTile;
    for (int64_t p = 0; p < kParts; ++p)
      _mm512_store_si512(to + p * 2 * kTileWords, triples::adjacent_pairs(first.of[p], last.of[p]));
  }

 private:
  static uint32_t* word(uint32_t* panel, int64_t pair) {
    return panel + pair / kTile * kStepWords + pair % kTile * kTile;
  }

  template <typename Interleave>
  STOW_AMX static void product(const TileArgs& args, float* piece, const Interleave& interleave) {
    static constexpr Mark kNone[kSide] = {};
    const int64_t steps = args.pairs / kTile;
    triples::multiply<false>(steps, args.a, args.b, piece, interleave);
    triples::undo_marks(steps, args.a, args.b, args.a_marks ? args.a_marks : kNone,
                        args.b_marks ? args.b_marks : kNone, piece);
  }

  template <bool kScaled>
  STOW_AMX static void add(int64_t rows, const TileArgs& args, const float* piece) {
    for (int64_t r = 0; r < rows; ++r)
      for (int h = 0; h < 2; ++h) {
        float* const out = args.out + r * args.out_stride + h * kLanes;
        const __m512 x = _mm512_load_ps(piece + r * kSide + h * kLanes), sum = _mm512_load_ps(out);
        if constexpr (kScaled)
          _mm512_store_ps(out, _mm512_fmadd_ps(sum, _mm512_load_ps(args.factors + h * kLanes), x));
        else
          _mm512_store_ps(out, _mm512_add_ps(sum, x));
      }
  }
};

}  // namespace

void attention_forward_triples(const AttentionForwardArgs& args, void* workspace, int64_t task,
                               int64_t next) {
  const amx::Tiles tiles;
  ForwardPaired<TriplePanels>(args, workspace, task, next).run();
}
void attention_backward_triples(const AttentionBackwardArgs& args, AttentionPart part,
                                void* workspace, int64_t task, int64_t next) {
  const amx::Tiles tiles;
  BackwardPaired<TriplePanels>::run(args, part, workspace, task, next);
}

}  // namespace stow::cpu

#else

namespace stow::cpu {

// Never called where there are no such products.
void attention_forward_triples(const AttentionForwardArgs& args, void* workspace, int64_t task,
                               int64_t next) {
  attention_forward_task(args, workspace, task, next);
}
void attention_backward_triples(const AttentionBackwardArgs& args, AttentionPart part,
                                void* workspace, int64_t task, int64_t next) {
  attention_backward_task(args, part, workspace, task, next);
}

}  // namespace stow::cpu

#endif
