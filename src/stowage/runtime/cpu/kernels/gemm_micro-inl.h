// The register micro-kernel: computes a few rows by a few vectors of C from panels of A and B.
// Not a driver: gemm_run-inl.h chooses panels and packs them.
#if defined(STOW_KERNELS_GEMM_MICRO_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STOW_KERNELS_GEMM_MICRO_INL_H_
#undef STOW_KERNELS_GEMM_MICRO_INL_H_
#else
#define STOW_KERNELS_GEMM_MICRO_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "stowage/runtime/cpu/kernels/gemm_prefetch.h"

HWY_BEFORE_NAMESPACE();
namespace stow::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows of a panel of A: as many as the registers allow with two vectors of B and one of A.
constexpr int kRows = HWY_TARGET <= HWY_AVX3 ? 12 : 6;
// Elements of a vector; columns of a panel of B: two vectors.
template <typename T>
constexpr int kLanesOf = static_cast<int>(hn::MaxLanes(hn::ScalableTag<T>()));
template <typename T>
constexpr int kCols = 2 * kLanesOf<T>;

/// a * b + c: fused for floats, wrapping for unsigned integers.
template <class V>
HWY_INLINE V mul_add(V a, V b, V c) {
  using D = hn::DFromV<V>;
  using T = hn::TFromD<D>;
#if HWY_TARGET == HWY_AVX2
  if constexpr (std::is_same_v<T, uint64_t>) {  // no instruction: multiplies halves
    const hn::RepartitionToNarrow<D> d32;
    const auto low_a = hn::BitCast(d32, a), low_b = hn::BitCast(d32, b);
    const auto cross = hn::Add(hn::MulEven(hn::BitCast(d32, hn::ShiftRight<32>(a)), low_b),
                               hn::MulEven(low_a, hn::BitCast(d32, hn::ShiftRight<32>(b))));
    return hn::Add(c, hn::Add(hn::MulEven(low_a, low_b), hn::ShiftLeft<32>(cross)));
  } else
#endif
  if constexpr (std::is_integral_v<T>)
    return hn::Add(a * b, c);
  else
    return hn::MulAdd(a, b, c);
}

/// Arguments of a micro-kernel. Strides are in elements.
template <typename T>
struct MicroArgs {
  int64_t kc;             // depth
  const T* a;             // a panel [kc, kRows]; in place: rows of adjacent k
  ptrdiff_t a_stride;     // in place: from one row to the next
  const T* b;             // for each k a row of V vectors, all of it readable
  ptrdiff_t b_stride;     // from one k to the next: kCols in a packed panel
  ptrdiff_t b_ahead;      // from reads of B to prefetches of it; 0: none. Unused by whole panels
  T* out;                 // [R, cols]
  ptrdiff_t out_stride;
  const T* prev;          // addend of the sums, [R, cols]; may be out, or null
  ptrdiff_t prev_stride;
  int64_t cols;           // columns of out, at least one of them in the last vector
  GemmFetch fetch;        // used if micro_fetches(), every kFetchEvery steps of k
  T* packed = nullptr;    // [kc, kCols], to which kPack copies the rows of B
};

/// Steps of k for each prefetch of `fetch`.
constexpr int kFetchEvery = 4;

/// Lines of each prefetch if A is read in place: as many as the steps read of A.
template <typename T>
constexpr int kLinesInPlace = (kRows * kFetchEvery * static_cast<int>(sizeof(T)) + 63) / 64;

/// True if the micro-kernel for `rows` rows and one or two vectors fetches; micro_lines() is the
/// number of lines that it then fetches.
constexpr bool micro_fetches(int64_t rows, bool two_vectors, bool in_place) {
  return rows == kRows && (two_vectors || in_place);
}
template <typename T>
constexpr int64_t micro_lines(int64_t kc, bool in_place) {
  return kc / kFetchEvery * (in_place ? kLinesInPlace<T> : 1);
}

/// Steps of k that are unrolled. On AVX2 the registers are just enough for one step; compilers
/// spill some if more are unrolled.
constexpr int kStepsAtOnce = HWY_TARGET <= HWY_AVX3 ? kFetchEvery : 1;

/// Steps of k from the row of B that is packed to the row that is prefetched. Rows that are a power
/// of two apart share a set of the L1 cache, so the steps are fewer than its ways.
constexpr int kPackAhead = 6;

/// Steps of k from the row of B that is read to the row that is prefetched, if B is read in place,
/// once. The prefetch is into L2, as rows that are a power of two apart share a set of L1.
constexpr int kPassAhead = 96;

/// Returns the element of row r of A at the current k. `rows` points to every fourth row, so that
/// the strides of all rows take two registers. `step3` is 3 * step, in bytes.
template <typename T>
HWY_INLINE T element_in_place(const char* const* rows, int r, ptrdiff_t step, ptrdiff_t step3) {
  const ptrdiff_t within[4] = {0, step, 2 * step, step3};
  return *reinterpret_cast<const T*>(rows[r / 4] + within[r % 4]);
}

/// out[r][j] = sum over k of a[k][r] * b[k][j], plus prev[r][j] if prev is not null, for R rows and
/// V vectors: one accumulator for each element, from zero, fma over k in order (of integers, sums
/// that wrap). With kPack, the rows of B that are read are also packed.
template <int R, int V, bool kInPlace, typename T, bool kPack = false>
HWY_NOINLINE void micro(const MicroArgs<T>& args) {
  const hn::ScalableTag<T> d;
  constexpr int kLanes = kLanesOf<T>;
  constexpr bool kWhole = R == kRows && V == 2 && !kInPlace;
  static_assert(micro_fetches(R, V == 2, kInPlace) == (kWhole || (kInPlace && R == kRows)));
  hn::Vec<decltype(d)> acc[R][V];
  const T* HWY_RESTRICT a = args.a;
  const T* HWY_RESTRICT b = args.b;
  HWY_UNROLL(16) for (int r = 0; r < R; ++r) {
    HWY_UNROLL(16) for (int v = 0; v < V; ++v) {
      acc[r][v] = hn::Zero(d);
      if (!kWhole) __builtin_prefetch(args.out + r * args.out_stride + v * kLanes, 1);
    }
  }
  const ptrdiff_t b_stride = args.b_stride, b_ahead = args.b_ahead;
  const char* a_rows[3];
  const ptrdiff_t step = args.a_stride * static_cast<ptrdiff_t>(sizeof(T)), step3 = 3 * step;
  for (int r = 0; r < 3; ++r) a_rows[r] = reinterpret_cast<const char*>(a + 4 * r * args.a_stride);
  GemmFetch ahead = args.fetch;
  const T* out_ahead = args.out;
  int out_left = R;  // rows of out to prefetch, one at a time: all at once would delay the panels
  T* packed = args.packed;
  int64_t k = args.kc;
  const auto step_of_k = [&]() HWY_ATTR __attribute__((always_inline)) {
    hn::Vec<decltype(d)> row[V];
    HWY_UNROLL(16) for (int v = 0; v < V; ++v) {
      row[v] = hn::LoadU(d, b + v * kLanes);
      if constexpr (kPack) {
        __builtin_prefetch(b + kPackAhead * b_stride + v * kLanes);
        hn::StoreU(row[v], d, packed + v * kLanes);
      }
    }
    if (!kWhole && !kPack && b_ahead != 0) {
      HWY_UNROLL(16) for (int v = 0; v < V; ++v) __builtin_prefetch(b + b_ahead + v * kLanes, 0, 2);
    }
    HWY_UNROLL(16) for (int r = 0; r < R; ++r) {
      const T a_r = kInPlace ? element_in_place<T>(a_rows, r, step, step3) : a[r];
      const auto x = hn::Set(d, a_r);
      HWY_UNROLL(16) for (int v = 0; v < V; ++v) acc[r][v] = mul_add(x, row[v], acc[r][v]);
    }
    if constexpr (kInPlace) {
      HWY_UNROLL(4) for (int r = 0; r < (R + 3) / 4; ++r) a_rows[r] += sizeof(T);
    } else {
      a += kRows;
    }
    b += b_stride;
    if constexpr (kPack) packed += V * kLanes;
  };
  if constexpr (kWhole) {
    // Counters and pointers compete for the ports that multiply, so there are few of them.
    for (; k >= kFetchEvery; k -= kFetchEvery) {
      if (out_left > 0) {
        --out_left;
        __builtin_prefetch(out_ahead, 1);
        __builtin_prefetch(out_ahead + kLanes, 1);
        out_ahead += args.out_stride;
      }
      __builtin_prefetch(ahead.next(), 0, 2);
      HWY_UNROLL(kStepsAtOnce) for (int s = 0; s < kFetchEvery; ++s) step_of_k();
    }
  }
  if constexpr (kInPlace && R == kRows) {
    for (const bool fetches = ahead.step != 0; k >= kFetchEvery; k -= kFetchEvery) {
      for (int l = 0; fetches && l < kLinesInPlace<T>; ++l) __builtin_prefetch(ahead.next(), 0, 2);
      HWY_UNROLL(kStepsAtOnce) for (int s = 0; s < kFetchEvery; ++s) step_of_k();
    }
  }
  for (; k > 0; --k) step_of_k();
  T* const out = args.out;
  const T* const prev = args.prev;
  if (args.cols == V * kLanes) {
    if (prev) {
      HWY_UNROLL(16) for (int r = 0; r < R; ++r) {
        HWY_UNROLL(16) for (int v = 0; v < V; ++v) {
          const auto x = hn::LoadU(d, prev + r * args.prev_stride + v * kLanes);
          acc[r][v] = hn::Add(x, acc[r][v]);
        }
      }
    }
    HWY_UNROLL(16) for (int r = 0; r < R; ++r) {
      HWY_UNROLL(16) for (int v = 0; v < V; ++v) {
        hn::StoreU(acc[r][v], d, out + r * args.out_stride + v * kLanes);
      }
    }
    return;
  }
  // Some columns of the last vector are missing; those before it are whole.
  constexpr int kLast = (V - 1) * kLanes;
  const auto mask = hn::FirstN(d, static_cast<size_t>(args.cols - kLast));
  HWY_UNROLL(16) for (int r = 0; r < R; ++r) {
    HWY_UNROLL(16) for (int v = 0; v < V - 1; ++v) {
      if (prev)
        acc[r][v] = hn::Add(hn::LoadU(d, prev + r * args.prev_stride + v * kLanes), acc[r][v]);
      hn::StoreU(acc[r][v], d, out + r * args.out_stride + v * kLanes);
    }
    auto last = acc[r][V - 1];
    if (prev) last = hn::Add(hn::MaskedLoad(mask, d, prev + r * args.prev_stride + kLast), last);
    hn::BlendedStore(last, mask, d, out + r * args.out_stride + kLast);
  }
}

template <typename T>
using MicroFn = void (*)(const MicroArgs<T>&);

template <int V, bool kInPlace, typename T, int... R>
constexpr std::array<MicroFn<T>, sizeof...(R)> micro_table(std::integer_sequence<int, R...>) {
  return {&micro<R + 1, V, kInPlace, T>...};
}
/// kMicro<V, kInPlace, T>[rows - 1]: the micro-kernel for that many rows and V vectors.
template <int V, bool kInPlace, typename T>
constexpr auto kMicro = micro_table<V, kInPlace, T>(std::make_integer_sequence<int, kRows>());

/// The micro-kernel of whole panels that reads B in place and packs it at the same time.
template <typename T>
constexpr MicroFn<T> kPackingMicro = micro<kRows, 2, false, T, true>;

/// Micro-kernels of one or two rows that read B in place, once: kWideVectors vectors of each row.
constexpr int kWideVectors = 8;
constexpr int kWideRows = HWY_TARGET <= HWY_AVX3 ? 2 : 1;
template <typename T>
constexpr auto kWideMicro =
    micro_table<kWideVectors, false, T>(std::make_integer_sequence<int, kWideRows>());

/// Multiplies the first `rows` rows of a panel of A by a panel of B, with all its columns;
/// prefetches nothing.
template <typename T>
HWY_INLINE void multiply_panels(int64_t rows, int64_t kc, const T* a, const T* b, T* out,
                                ptrdiff_t out_stride, const T* prev, ptrdiff_t prev_stride) {
  const GemmFetch none = {reinterpret_cast<const char*>(a)};
  kMicro<2, false, T>[rows - 1](
      {kc, a, 0, b, kCols<T>, 0, out, out_stride, prev, prev_stride, kCols<T>, none});
}

}  // namespace stow::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
