// Products of two f32 operands on machines that multiply tiles of bf16 (AMX), each operand split
// into three bf16. Their order of sums is stated in gemm.h.
#include "stowage/runtime/cpu/kernels/gemm_thread.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <type_traits>

#include "stowage/runtime/cpu/kernels/gemm_paired.h"
#include "stowage/runtime/cpu/kernels/triples.h"

namespace stow::cpu {
namespace {

using namespace pairs;
using triples::kSide;
using triples::kTile;
using triples::Mark;

static_assert(kGemmTiledRowUnit == kSide && kCols == kSide && kGemmPairsInTile == kTile &&
              kGemmParts == triples::kParts);

// A product goes into one of two pieces, and into C while the next product runs: the processor
// waits for tiles in the one, and for memory in the other. Panels of B are packed during products,
// too.
class TripleKernel : public triples::PanelPacking {
 public:
  static constexpr int64_t kRows = kSide, kCols = kSide, kPairUnit = kTile;
  using Element = float;
  static constexpr int64_t kParts = triples::kParts, kFetches = 3;
  static constexpr bool kMarks = true, kInterleaves = true, kReadsRows = false;

  /// A panel, packed during the next products until it is needed.
  void start_right(const float* src, const int64_t* rows, int64_t n, const int64_t* ks, int64_t kc,
                   Mark* marks, uint32_t* dst) {
    right_.start(src, rows, n, ks, kc, marks, dst);
  }
  void finish_right() { right_.run(); }

  /// C is complete after flush() only.
  template <typename Out>
  STOW_AMX void multiply(int64_t rows, PieceArgs& args) {
    GemmFetch& ahead = args.fetch;  // no copy, see GemmPrefetcher::next
    const char* touch = static_cast<const char*>(args.prefetch_at);
    int64_t touches = rows;
    const auto interleave = [&]() STOW_AMX {
      _mm_prefetch(ahead.next(), _MM_HINT_T1);
      _mm_prefetch(ahead.next(), _MM_HINT_T1);
      if (touches-- > 0) {
        __builtin_prefetch(touch, 1);
        __builtin_prefetch(touch + 64, 1);
        touch += args.prefetch_stride;
      }
      if (waiting_.row < waiting_.rows)
        write_rows(4);
      else if (!right_.is_done())
        right_.step();
    };
    float* const piece = pieces_[turn_ = !turn_];
    const int64_t steps = args.pairs / kTile;
    if (args.swapped)
      triples::multiply<true>(steps, args.a, args.b, piece, interleave);
    else
      triples::multiply<false>(steps, args.a, args.b, piece, interleave);
    flush();
    triples::undo_marks(steps, args.a, args.b, args.a_marks, args.b_marks, piece);
    waiting_ = {piece,
                static_cast<char*>(args.out),
                args.prev,
                args.out_stride,
                args.prev_stride,
                args.cols,
                rows,
                0,
                std::is_same_v<Out, Bf16>};
  }
  STOW_AMX void flush() { write_rows(kRows); }

 private:
  struct Waiting {
    const float* piece = nullptr;
    char* out = nullptr;
    const float* prev = nullptr;
    ptrdiff_t out_stride = 0, prev_stride = 0;
    int64_t cols = 0, rows = 0, row = 0;
    bool rounds = false;
  };

  STOW_AMX void write_rows(int64_t most) {
    Waiting& w = waiting_;
    const int64_t end = std::min(w.row + most, w.rows);
    if (w.row >= end) return;
    for (int64_t r = w.row; r < end; ++r) {
      const float* const prev = w.prev ? w.prev + r * w.prev_stride : nullptr;
      if (w.rounds)
        write_row(w.piece + r * kCols, prev, reinterpret_cast<Bf16*>(w.out) + r * w.out_stride,
                  w.cols);
      else
        write_row(w.piece + r * kCols, prev, reinterpret_cast<float*>(w.out) + r * w.out_stride,
                  w.cols);
    }
    w.row = end;
  }

  alignas(64) float pieces_[2][kRows * kCols];
  bool turn_ = false;
  Waiting waiting_;
};

}  // namespace

void gemm_thread_triples(const GemmPlan& plan, const void* a, const void* b, void* c,
                         void* workspace, int64_t first_task, int64_t last_task) {
  const amx::Tiles tiles;
  PairedThread<TripleKernel>(plan, a, b, c, workspace).run(first_task, last_task);
}

}  // namespace stow::cpu

#else

namespace stow::cpu {

// Never called where there are no such products.
void gemm_thread_triples(const GemmPlan& plan, const void* a, const void* b, void* c,
                         void* workspace, int64_t first_task, int64_t last_task) {
  gemm_thread_f32(plan, a, b, c, workspace, first_task, last_task);
}

}  // namespace stow::cpu

#endif
