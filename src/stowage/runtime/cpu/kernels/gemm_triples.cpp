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

bool any(const Mark* marks) {
  return std::any_of(marks, marks + kSide, [](Mark mark) { return mark != 0; });
}
bool any_exact(const Mark* marks) {
  return std::find(marks, marks + kSide, triples::kExact) != marks + kSide;
}

// Element (row, k) of a panel of the left operand, or (column, k) of the right one, put together
// again.
template <bool kRowsOfPairs>
float whole(const uint32_t* panel, int64_t row, int64_t k) {
  const int64_t pair = k / 2 % kTile, in_tile = row % kTile;
  const uint32_t* tile = panel + k / kSide * triples::kStepWords +
                         row / kTile * triples::kTileWords +
                         (kRowsOfPairs ? in_tile * kTile + pair : pair * kTile + in_tile);
  float sum = 0;
  for (int64_t part = 0; part < triples::kParts; ++part, tile += 2 * triples::kTileWords)
    sum += std::bit_cast<float>(k % 2 == 0 ? *tile << 16 : *tile & 0xffff0000);
  return sum;
}

// Products of a row or a column that has to be exact: fma in order of k.
STOW_AMX void make_exact(const PieceArgs& args, float* piece) {
  alignas(64) float b[kGemmBlockK][kSide];
  for (int64_t k = 0; k < 2 * args.pairs; ++k)
    for (int64_t c = 0; c < kSide; ++c) b[k][c] = whole<false>(args.b, c, k);
  const bool all = any_exact(args.b_marks);
  for (int64_t r = 0; r < kSide; ++r) {
    if (!all && args.a_marks[r] != triples::kExact) continue;
    __m512 sums[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    for (int64_t k = 0; k < 2 * args.pairs; ++k)
      for (int64_t h = 0; h < 2; ++h)
        sums[h] = _mm512_fmadd_ps(_mm512_set1_ps(whole<true>(args.a, r, k)),
                                  _mm512_load_ps(b[k] + h * kLanes), sums[h]);
    alignas(64) float row[kSide];
    for (int64_t h = 0; h < 2; ++h) _mm512_store_ps(row + h * kLanes, sums[h]);
    for (int64_t c = 0; c < kSide; ++c)
      if (args.a_marks[r] == triples::kExact || args.b_marks[c] == triples::kExact)
        piece[r * kSide + c] = row[c];
  }
}

// A product goes into one of two pieces, and into C while the next product runs: the processor
// waits for tiles in the one, and for memory in the other. Panels of B are packed beside products,
// too.
class TripleKernel {
 public:
  static constexpr int64_t kRows = kSide, kCols = kSide, kPairUnit = kTile;
  using Element = float;
  static constexpr int64_t kParts = triples::kParts, kFetches = 3;
  static constexpr bool kMarks = true, kBeside = true;

  void pack_left(const float* src, const int64_t* rows, int64_t n, const int64_t* ks, int64_t kc,
                 Mark* marks, uint32_t* dst) {
    pack(left_, src, rows, n, ks, kc, marks, dst);
  }
  void pack_right(const float* src, const int64_t* rows, int64_t n, const int64_t* ks, int64_t kc,
                  Mark* marks, uint32_t* dst) {
    pack(right_, src, rows, n, ks, kc, marks, dst);
  }
  /// A panel, packed beside the products from now on until it has to be there.
  void start_right(const float* src, const int64_t* rows, int64_t n, const int64_t* ks, int64_t kc,
                   Mark* marks, uint32_t* dst) {
    right_.start(src, rows, n, ks, kc, marks, dst);
  }
  void finish_right() { right_.run(); }

  /// C is complete after flush() only.
  template <typename Out>
  STOW_AMX void multiply(int64_t rows, PieceArgs& args) {
    GemmFetch& ahead = args.fetch;  // no copy, see GemmAhead::next
    const char* touch = static_cast<const char*>(args.far);
    int64_t touches = rows;
    const auto beside = [&]() STOW_AMX {
      _mm_prefetch(ahead.next(), _MM_HINT_T1);
      _mm_prefetch(ahead.next(), _MM_HINT_T1);
      if (touches-- > 0) {
        __builtin_prefetch(touch, 1);
        __builtin_prefetch(touch + 64, 1);
        touch += args.far_stride;
      }
      if (waiting_.row < waiting_.rows)
        write_rows(4);
      else if (!right_.is_done())
        right_.step();
    };
    float* const piece = pieces_[turn_ = !turn_];
    const int64_t steps = args.pairs / kTile;
    if (args.swapped)
      triples::multiply<true>(steps, args.a, args.b, piece, beside);
    else
      triples::multiply<false>(steps, args.a, args.b, piece, beside);
    flush();
    if (any(args.a_marks) || any(args.b_marks)) [[unlikely]]
      undo_marks(args, piece);
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

  template <typename Packer>
  static void pack(Packer& packer, const float* src, const int64_t* rows, int64_t n,
                   const int64_t* ks, int64_t kc, Mark* marks, uint32_t* dst) {
    const int64_t words = (kc + kSide - 1) / kSide * triples::kStepWords;
    for (int64_t r = 0; r < n; r += kSide, dst += words) {
      packer.start(src, rows + r, std::min(kSide, n - r), ks, kc, marks + r, dst);
      packer.run();
    }
  }

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

  STOW_AMX static void undo_marks(const PieceArgs& args, float* piece) {
    if (any_exact(args.a_marks) || any_exact(args.b_marks)) make_exact(args, piece);
    float of_cols[kCols];
    for (int64_t c = 0; c < kCols; ++c) of_cols[c] = triples::factor_of(args.b_marks[c], true);
    for (int64_t r = 0; r < kRows; ++r) {
      const float of_row = triples::factor_of(args.a_marks[r], true);
      for (int64_t c = 0; c < kCols; ++c)
        piece[r * kCols + c] = piece[r * kCols + c] * of_row * of_cols[c];
    }
  }

  alignas(64) float pieces_[2][kRows * kCols];
  bool turn_ = false;
  Waiting waiting_;
  triples::PanelPacker<true> left_;
  triples::PanelPacker<false> right_;
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
