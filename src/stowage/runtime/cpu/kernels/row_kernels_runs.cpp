// Sums over rows that lie in memory run by run, as over the first and the last axis of three.
// The order of additions is that of row_kernels_reduce.cpp: column c of a block goes to lane c %
// kReduceLanes.
#include <algorithm>

#include "stowage/runtime/cpu/kernels/row_kernels_runs.h"
#include "stowage/runtime/cpu/kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stowage/runtime/cpu/kernels/row_kernels_runs.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "stowage/ir/row_program.h"

HWY_BEFORE_NAMESPACE();
namespace stow::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kLanesOfRow = static_cast<size_t>(kReduceLanes);

// Adds x[i] to lane `first` + i for i in [0, n), none of which is beyond the last lane.
HWY_INLINE void add_some(float* lanes, size_t first, const float* x, size_t n) {
  for (size_t i = 0; i < n; ++i) lanes[first + i] += x[i];
}

#if HWY_TARGET <= HWY_AVX2
// The same in vectors; masked loads touch nothing beyond the n elements.
template <class D, class V, size_t kVectors>
HWY_INLINE void add_some(D d, V (&acc)[kVectors], size_t first, const float* x, size_t n) {
  const size_t lanes = hn::Lanes(d);
  const auto base = reinterpret_cast<uintptr_t>(x) - first * sizeof(float);
  for (size_t k = 0; k < kVectors; ++k) {
    const auto within = [&](size_t column) {
      return column <= k * lanes ? 0 : HWY_MIN(column - k * lanes, lanes);
    };
    const auto some = hn::AndNot(hn::FirstN(d, within(first)), hn::FirstN(d, within(first + n)));
    const V v = hn::MaskedLoad(some, d, reinterpret_cast<const float*>(base) + k * lanes);
    acc[k] = hn::IfThenElse(some, hn::Add(acc[k], v), acc[k]);
  }
}
#endif

// Columns of one row, from lane `first` on, in the lanes at `state`.
void add_run(float* state, size_t first, const float* x, size_t n) {
#if HWY_TARGET <= HWY_AVX2
  const hn::CappedTag<float, kLanesOfRow> d;
  constexpr size_t kVectors = kLanesOfRow / hn::MaxLanes(d);
  const size_t lanes = hn::Lanes(d);
  hn::Vec<decltype(d)> acc[kVectors];
  for (size_t k = 0; k < kVectors; ++k) acc[k] = hn::LoadU(d, state + k * lanes);
  size_t i = 0;
  if (first != 0) {
    i = HWY_MIN(kLanesOfRow - first, n);
    add_some(d, acc, first, x, i);
  }
  for (; i + kLanesOfRow <= n; i += kLanesOfRow)
    for (size_t k = 0; k < kVectors; ++k)
      acc[k] = hn::Add(acc[k], hn::LoadU(d, x + i + k * lanes));
  if (i < n) add_some(d, acc, 0, x + i, n - i);
  for (size_t k = 0; k < kVectors; ++k) hn::StoreU(acc[k], d, state + k * lanes);
#else
  size_t i = 0;
  if (first != 0) {
    i = HWY_MIN(kLanesOfRow - first, n);
    add_some(state, first, x, i);
  }
  for (; i < n; i += kLanesOfRow) add_some(state, 0, x + i, HWY_MIN(kLanesOfRow, n - i));
#endif
}

void sum_runs(const ReduceRowsCall& c) {
  const int64_t in_block = c.first_col % kReduceBlock, end = c.first_col + c.cols;
  const bool ends_block = end % kReduceBlock == 0 || end == c.total_cols;
  for (int64_t r = 0; r < c.rows; ++r) {
    auto* state = reinterpret_cast<float*>(c.lanes) + r * kReduceLanes;
    if (in_block == 0) std::fill_n(state, kLanesOfRow, 0.0f);
    add_run(state, static_cast<size_t>(in_block % kReduceLanes),
            reinterpret_cast<const float*>(c.args[0].data + r * c.args[0].row_step),
            static_cast<size_t>(c.cols));
    if (c.ahead != nullptr)
      for (int64_t i = int64_t{Prefetcher::kTickElems}; i <= c.cols;
           i += int64_t{Prefetcher::kTickElems})
        c.ahead->tick();
    if (!ends_block) continue;
    for (size_t half = kLanesOfRow / 2; half > 0; half /= 2)
      for (size_t l = 0; l < half; ++l) state[l] += state[l + half];
    float& out = reinterpret_cast<float*>(c.out)[r];
    out = end <= kReduceBlock ? state[0] : out + state[0];
  }
}

ReduceRowsKernel find_sum_runs() { return sum_runs; }

}  // namespace stow::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stow::cpu {
HWY_EXPORT(find_sum_runs);
ReduceRowsKernel f32_sum_runs_kernel() { return HWY_DYNAMIC_DISPATCH(find_sum_runs)(); }
}  // namespace stow::cpu
#endif  // HWY_ONCE
