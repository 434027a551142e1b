#include "stowage/runtime/cpu/kernels/gemm_plan.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "stowage/base/bytes.h"
#include "stowage/base/error.h"
#include "stowage/ir/product_pieces.h"

namespace stow::cpu {
namespace {

// The pieces that plans count with are those that are made at a time.
static_assert(kPieceDepth == gemm_piece_stride(false, false) &&
              kLeftPieceRows == gemm_piece_stride(false, true) &&
              kRightPieceCols == gemm_piece_stride(true, true));

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t round_up(int64_t a, int64_t unit) { return ceil_div(a, unit) * unit; }

// `total` cut into the fewest pieces of at most `most`, evenly, each a multiple of `unit`.
int64_t even_piece(int64_t total, int64_t most, int64_t unit) {
  return round_up(ceil_div(total, ceil_div(total, most)), unit);
}

void append(GemmDims& to, const GemmDim& d) {
  to.extent *= d.extent;
  if (d.extent == 1) return;
  if (to.count > 0) {
    GemmDim& last = to.dims[to.count - 1];
    if (last.a_stride == d.extent * d.a_stride && last.b_stride == d.extent * d.b_stride &&
        last.c_stride == d.extent * d.c_stride) {
      last = {last.extent * d.extent, d.a_stride, d.b_stride, d.c_stride};
      return;
    }
  }
  STOW_CHECK(to.count < kGemmMaxDims, "a product with more than {} dimensions of one class",
             kGemmMaxDims);
  to.dims[to.count++] = d;
}

int64_t inner_c_stride(const GemmDims& d) { return d.count ? d.dims[d.count - 1].c_stride : 1; }

// True if C has few columns and tiles take the rows of A as they lie.
bool is_narrow_and_read(const GemmPlan& p) {
  return p.form == GemmForm::kTiled && p.n.extent <= kGemmTiledRowUnit && p.k.count == 1 &&
         p.k.dims[0].a_stride == 1;
}

// Vector lanes run along n, so n should be the direction in which C is contiguous, unless that
// would leave most of a vector empty.
bool should_swap(const GemmPlan& p) {
  const int64_t m = p.m.extent, n = p.n.extent;
  // Tiles take rows of the left operand as they lie, and what that saves where the right one is of
  // few columns is more than an empty part of a tile costs, or C by columns.
  if (is_narrow_and_read(p) && m > kGemmTiledRowUnit && inner_c_stride(p.n) == 1) return false;
  if (p.form == GemmForm::kTiled && m <= kGemmReadCols && m < n && p.k.extent >= kGemmReadLeastK &&
      p.k.count == 1 && p.k.dims[0].b_stride == 1)
    return true;
  const double waste = double(round_up(n, 16)) * m, swapped_waste = double(round_up(m, 16)) * n;
  if (waste > 1.5 * swapped_waste) return true;
  if (swapped_waste > 1.5 * waste) return false;
  return inner_c_stride(p.n) != 1 && inner_c_stride(p.m) == 1;
}

void swap_operands(GemmPlan& p) {
  p.swapped = true;
  std::swap(p.a, p.b);
  std::swap(p.m, p.n);
  for (GemmDims* dims : {&p.batch, &p.m, &p.n, &p.k})
    for (int i = 0; i < dims->count; ++i) std::swap(dims->dims[i].a_stride, dims->dims[i].b_stride);
}

// Cuts every batch element into a grid of tasks so that the busiest thread has least to do, in
// multiply-adds with the packing of its operands counted as some too: for each row of A `per_a`,
// and `per_b` for each column of B.
void split(GemmPlan& p, int threads, double per_a, double per_b) {
  const int64_t m = p.m.extent, n = p.n.extent, batch = p.batch.extent;
  const double work = double(m) * n * batch * std::max<int64_t>(p.k.extent, 1);
  if (work < 200e3) threads = 1;  // under some 5 us a second thread costs more than it brings
  double best = -1;
  auto consider = [&](int64_t grid_m, int64_t grid_n) {
    const int64_t tm = std::min(round_up(ceil_div(m, grid_m), p.row_unit()), m);
    const int64_t tn = std::min(round_up(ceil_div(n, grid_n), kGemmColUnit), n);
    const int64_t tasks = batch * ceil_div(m, tm) * ceil_div(n, tn);
    const double one = double(tm) * round_up(tn, 16) +
                       per_a * double(tm) * ceil_div(tn, kGemmMaxTileN) + per_b * tn;
    const double cost = double(ceil_div(tasks, threads)) * one;
    if (best >= 0 && cost >= best) return;
    best = cost;
    p.task_m = tm, p.task_n = tn;
    p.tasks_m = ceil_div(m, tm), p.tasks_n = ceil_div(n, tn);
  };
  for (int64_t pieces = 1; pieces <= threads; ++pieces)
    for (int64_t grid_m = p.whole_rows ? pieces : 1; grid_m <= pieces; ++grid_m)
      if (pieces % grid_m == 0) consider(grid_m, pieces / grid_m);
  p.threads = static_cast<int>(std::min<int64_t>(threads, p.n_tasks()));
}

// The depth of k that is packed at a time.
int64_t depth_of(const GemmPlan& p, bool few_rows) {
  if (p.form == GemmForm::kPlain || p.form == GemmForm::kTripled || few_rows)
    return std::min(p.k.extent, kGemmBlockK);
  constexpr int64_t kManyRows = 512;  // by which a tile of B is used more than it costs to pack
  const bool whole = p.k.extent <= kGemmPairedWhole && p.task_m > kManyRows;
  return std::min(p.k.extent, whole ? kGemmPairedWhole : kGemmPairedDepth);
}

// Tiles and blocks of a product of triples in the room that the plain product has, so that plans
// are the same on every machine.
void fit_triples(GemmPlan& p, const GemmPlan& plain) {
  constexpr int64_t unit = kGemmTiledRowUnit;
  const int64_t room =
      (plain.b_pack_bytes + plain.a_pack_bytes + plain.sums_bytes) * plain.threads / p.threads;
  const int64_t row_bytes = round_up(p.depth, 2 * kGemmPairsInTile) * 2 * kGemmParts;
  const int64_t sums = p.partial_sums ? std::min(plain.sums_bytes, room / 2) : 0;
  const int64_t rows =
      std::max((room - sums) / row_bytes, 2 * unit);  // and columns, that may be packed
  p.tile_n =
      even_piece(p.task_n, std::clamp(rows * 2 / 3 / unit * unit, unit, kGemmTripledTileN), unit);
  p.tile_m = round_up(p.task_m, unit);
  if (p.partial_sums)
    p.tile_m = even_piece(p.task_m, std::max(sums / 4 / p.tile_n / unit * unit, unit), unit);
  p.block_m = even_piece(
      p.tile_m, std::clamp((rows - p.tile_n) / unit * unit, unit, kGemmTripledBlockM), unit);
  p.b_pack_bytes = row_bytes * p.tile_n;
  p.a_pack_bytes = row_bytes * p.block_m;
  p.sums_bytes = p.partial_sums ? p.tile_m * p.tile_n * 4 : 0;
}

int64_t extent_of(const std::vector<GemmDim>& dims) {
  int64_t extent = 1;
  for (const GemmDim& d : dims) extent *= d.extent;
  return extent;
}

bool is_small_float(DType t) { return t == DType::kF32 || t == DType::kBF16 || t == DType::kF16; }

}  // namespace

bool gemm_may_pair(const GemmSpec& spec) {
  // A short K has few pairs, and stays exact for subnormal numbers.
  constexpr int64_t kLeast = 16;
  return spec.a == DType::kBF16 && spec.b == DType::kBF16 && is_small_float(spec.c) &&
         extent_of(spec.k) >= kLeast;
}

bool gemm_may_triple(const GemmSpec& spec) {
  return spec.a == DType::kF32 && spec.b == DType::kF32 && is_small_float(spec.c) &&
         extent_of(spec.m) >= kProductLeast && extent_of(spec.n) >= kProductLeast &&
         extent_of(spec.k) >= kProductLeast;
}

GemmPlan plan_gemm(const GemmSpec& spec, int threads, GemmForm form) {
  const bool same = spec.a == spec.b;
  STOW_CHECK((is_small_float(spec.a) && is_small_float(spec.b) && is_small_float(spec.c)) ||
                 (same && is_float(spec.a) && is_float(spec.c)) ||
                 (same && is_integer(spec.a) && is_integer(spec.c)),
             "a product of {} and {} into {}", dtype_name(spec.a), dtype_name(spec.b),
             dtype_name(spec.c));
  const bool has_hooks = spec.epilogue || spec.a_prologue || spec.b_prologue;
  STOW_CHECK(!has_hooks || (is_small_float(spec.a) && is_small_float(spec.b) &&
                                is_small_float(spec.c) && spec.batch.empty()),
             "an epilogue or prologue of a product of {}, or with a batch", dtype_name(spec.a));
  GemmPlan p;
  p.a = spec.a, p.b = spec.b, p.c = spec.c;
  p.accumulate = spec.accumulate;
  p.form = form;
  // A batch dimension along which an operand does not change belongs to the other's rows.
  for (const GemmDim& d : spec.batch)
    if (d.b_stride == 0 && d.extent > 1) append(p.m, d);
    else if (d.a_stride == 0 && d.extent > 1) append(p.n, d);
    else append(p.batch, d);
  for (const GemmDim& d : spec.m) append(p.m, {d.extent, d.a_stride, 0, d.c_stride});
  for (const GemmDim& d : spec.n) append(p.n, {d.extent, 0, d.b_stride, d.c_stride});
  for (const GemmDim& d : spec.k) append(p.k, {d.extent, d.a_stride, d.b_stride, 0});
  if (p.batch.extent == 0 || p.m.extent == 0 || p.n.extent == 0) return p;
  p.whole_rows = spec.epilogue && spec.epilogue->whole_rows;
  const bool stays = p.whole_rows || spec.a_prologue || spec.b_prologue;
  if (!stays && should_swap(p)) swap_operands(p);
  // Multiply-adds for what is packed. Panels of B are a little dearer where both are bf16, and what
  // a prologue makes is dearest: with half the columns each, and not half the rows, two threads of
  // Zen 4 multiply by weights that are cast on the way 5 to 9 % faster.
  constexpr double kPack = 10, kPackBF16 = 12, kMake = 30;
  const double pack_b = gemm_may_pair(spec) ? kPackBF16 : kPack;
  split(p, std::max(threads, 1), spec.a_prologue ? kMake : kPack, spec.b_prologue ? kMake : pack_b);
  // The width of sums: f32, f64 if an operand or C is, integers of 4 bytes, or of 8 if C has 8.
  const int64_t bytes = p.a == DType::kF64 || dtype_bytes(p.c) == 8 ? 8 : 4;
  const bool c_is_sum = dtype_bytes(p.c) == bytes;
  // Few rows: the product is a walk through B, so each part of B is packed where it stays nearest.
  const int64_t unit = p.row_unit();
  const bool few_rows = p.task_m <= unit,
             paired = form == GemmForm::kPaired || form == GemmForm::kTiled;
  p.depth = depth_of(p, few_rows);
  p.partial_sums = p.k.extent > p.depth && (!c_is_sum || p.accumulate);
  p.tile_n = even_piece(p.task_n,
                        !few_rows ? kGemmMaxTileN
                        : paired  ? kGemmPairedFewTileN
                                  : kGemmFewRowsTileN,
                        kGemmColUnit);
  p.tile_m = p.partial_sums
                 ? even_piece(p.task_m, kGemmMaxSums / p.tile_n / unit * unit, unit)
                 : round_up(p.task_m, unit);
  const int64_t most = !paired                 ? kGemmMaxBlockM
                       : is_narrow_and_read(p) ? unit  // little is packed
                                               : kGemmPairedBlock / p.depth / unit * unit;
  p.block_m = even_piece(p.tile_m, std::min(most, kGemmMaxBlockM), unit);
  const int64_t pair_unit = form == GemmForm::kTiled ? kGemmPairsInTile : 1;
  const int64_t pack = paired ? round_up((p.depth + 1) / 2, pair_unit) * 4 : p.depth * bytes;
  p.b_pack_bytes = align_up(pack * p.tile_n, 64);
  p.a_pack_bytes = align_up(pack * p.block_m, 64);
  p.sums_bytes = p.partial_sums ? align_up(p.tile_m * p.tile_n * bytes, 64) : 0;
  p.kept_bytes =
      paired && p.k.extent > kGemmBlockK ? align_up(p.block_m * kGemmColUnit * bytes, 64) : 0;
  if (form == GemmForm::kTripled) fit_triples(p, plan_gemm(spec, threads, GemmForm::kPlain));
  if (spec.epilogue) p.epilogue_bytes = align_up(spec.epilogue->scratch_bytes, 64);
  p.thread_bytes = p.b_pack_bytes + p.a_pack_bytes + p.sums_bytes + p.kept_bytes;
  const auto make = [&](const std::optional<GemmPrologue>& of, int64_t piece,
                        GemmPlan::Prologue& prologue) {
    if (!of) return;
    prologue = {true, of->rows_are_k, p.thread_bytes, p.thread_bytes + piece, nullptr};
    p.thread_bytes += piece + align_up(of->scratch_bytes, 64);
  };
  make(spec.a_prologue, kGemmMaxBlockM * kGemmBlockK * dtype_bytes(p.a), p.a_prologue);
  make(spec.b_prologue, kGemmColUnit * kGemmBlockK * dtype_bytes(p.b), p.b_prologue);
  p.thread_bytes += p.epilogue_bytes;
  return p;
}

int64_t l1_ways() {
  constexpr int64_t kUsual = 8;  // where the system does not tell
  static const int64_t told = sysconf(_SC_LEVEL1_DCACHE_ASSOC);
  return told > 0 ? told : kUsual;
}

void gemm_offsets(const GemmDims& dims, int64_t GemmDim::*stride, int64_t first, int64_t count,
                  int64_t* out) {
  const int last = dims.count - 1;
  if (last < 0) {
    std::fill_n(out, count, 0);
    return;
  }
  if (last == 0) {
    const int64_t step = dims.dims[0].*stride;
    for (int64_t i = 0; i < count; ++i) out[i] = (first + i) * step;
    return;
  }
  std::array<int64_t, kGemmMaxDims> index;
  int64_t rest = first, base = 0;
  for (int i = last; i >= 0; --i) {
    index[i] = rest % dims.dims[i].extent;
    rest /= dims.dims[i].extent;
    base += index[i] * (dims.dims[i].*stride);
  }
  const int64_t step = dims.dims[last].*stride;
  for (int64_t done = 0; done < count;) {
    const int64_t run = std::min(count - done, dims.dims[last].extent - index[last]);
    for (int64_t i = 0; i < run; ++i) out[done + i] = base + i * step;
    done += run;
    base -= index[last] * step;
    index[last] = 0;
    for (int i = last - 1; i >= 0; --i) {  // carry
      base += dims.dims[i].*stride;
      if (++index[i] < dims.dims[i].extent) break;
      base -= index[i] * (dims.dims[i].*stride);
      index[i] = 0;
    }
  }
}

}  // namespace stow::cpu
