// Loops of the f32 map kernels over rows, memory forms and tails. Included once for each target.
// Not the operations themselves, which are functors op(d, v...) of vectors.
// NOLINTNEXTLINE
#if defined(STOW_ROW_KERNELS_F32_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STOW_ROW_KERNELS_F32_INL_H_
#undef STOW_ROW_KERNELS_F32_INL_H_
#else
#define STOW_ROW_KERNELS_F32_INL_H_
#endif

#include <cstring>

#include <hwy/highway.h>
#include "stowage/runtime/cpu/kernels/row_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace stow::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;
using DU32 = hn::RebindToUnsigned<DF>;
using DI32 = hn::RebindToSigned<DF>;
using DU16 = hn::Rebind<uint16_t, DF>;
using DU8 = hn::Rebind<uint8_t, DF>;
using MaskF = hn::Mask<DF>;
constexpr size_t kMaxLanes = hn::MaxLanes(DF());

HWY_INLINE VF from_bf16(DF d, const uint16_t* p) {
  const auto wide = hn::PromoteTo(DU32(), hn::LoadU(DU16(), p));
  return hn::BitCast(d, hn::ShiftLeft<16>(wide));
}
HWY_INLINE VF from_f16(DF d, const uint16_t* p) {
#if HWY_TARGET <= HWY_AVX2
  const hn::Rebind<hwy::float16_t, DF> dh;
  return hn::PromoteTo(d, hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(p)));
#else
  HWY_ALIGN float wide[kMaxLanes];
  for (size_t i = 0; i < hn::Lanes(d); ++i) wide[i] = f16_to_f32(p[i]);
  return hn::Load(d, wide);
#endif
}

/// Returns `bits` plus the addend that makes truncation to the upper half round to the nearest
/// bf16, ties to even. A NaN may become any value, unless its lower half is 0.
HWY_INLINE hn::Vec<DU32> add_half_bf16(hn::Vec<DU32> bits) {
  const DU32 du;
  const auto below = hn::Add(bits, hn::Set(du, 0x7fff));
#if HWY_TARGET == HWY_AVX3
  const auto odd = hn::TestBit(bits, hn::Set(du, 0x10000));
  return hn::IfThenElse(odd, hn::Add(bits, hn::Set(du, 0x8000)), below);
#else
  return hn::Add(below, hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1)));
#endif
}
HWY_INLINE VF upper_half(DF d, hn::Vec<DU32> bits) {
  return hn::BitCast(d, hn::And(bits, hn::Set(DU32(), 0xffff0000)));
}
/// Rounds to the nearest bf16, ties to even; a NaN stays a NaN.
HWY_INLINE VF round_bf16(DF d, VF v) {
  const DU32 du;
  const auto bits = hn::BitCast(du, v);
  const auto quiet = hn::Or(bits, hn::Set(du, 0x400000));
  const auto nan = hn::RebindMask(du, hn::IsNaN(v));
  return upper_half(d, hn::IfThenElse(nan, quiet, add_half_bf16(bits)));
}
HWY_INLINE void to_bf16(DF, VF rounded, uint16_t* p) {
  const DI32 di;
  // Arithmetic shift and signed narrowing: the value lies in [-2^15, 2^15) and is kept as it is.
  const auto high = hn::ShiftRight<16>(hn::BitCast(di, rounded));
  const hn::Rebind<int16_t, DF> d16;
  hn::StoreU(hn::DemoteTo(d16, high), d16, reinterpret_cast<int16_t*>(p));
}
HWY_INLINE void to_f16(DF d, VF v, uint16_t* p) {
#if HWY_TARGET <= HWY_AVX2
  (void)d;
  const hn::Rebind<hwy::float16_t, DF> dh;
  hn::StoreU(hn::DemoteTo(dh, v), dh, reinterpret_cast<hwy::float16_t*>(p));
#else
  HWY_ALIGN float wide[kMaxLanes];
  hn::Store(v, d, wide);
  for (size_t i = 0; i < hn::Lanes(d); ++i) p[i] = f32_to_f16(wide[i]);
#endif
}
HWY_INLINE VF round_f16(DF d, VF v) {
  HWY_ALIGN uint16_t half[kMaxLanes];
  to_f16(d, v, half);
  return from_f16(d, half);
}

HWY_INLINE VF load_form(DF d, const std::byte* p, size_t i, Form form) {
  if (form == Form::kNative) return hn::LoadU(d, reinterpret_cast<const float*>(p) + i);
  if (form == Form::kBF16) return from_bf16(d, reinterpret_cast<const uint16_t*>(p) + i);
  return from_f16(d, reinterpret_cast<const uint16_t*>(p) + i);
}
HWY_INLINE void store_form(DF d, VF v, std::byte* p, size_t i, Form form, Form round) {
  if (round == Form::kBF16) v = round_bf16(d, v);
  if (form == Form::kNative) {
    if (round == Form::kF16) v = round_f16(d, v);
    return hn::StoreU(v, d, reinterpret_cast<float*>(p) + i);
  }
  if (form == Form::kBF16) return to_bf16(d, v, reinterpret_cast<uint16_t*>(p) + i);
  to_f16(d, v, reinterpret_cast<uint16_t*>(p) + i);
}
HWY_INLINE size_t form_bytes(Form form) {
  return form == Form::kNative ? 4 : 2;
}

/// Elements of one pass of the loops, between two calls of Prefetcher::tick().
constexpr size_t kTick = Prefetcher::kTickElems;
constexpr size_t kFloatsOfLine = 64 / sizeof(float);  // floats of a cache line

/// Returns the value of a splat at a row.
HWY_INLINE float splat_of(const KernelArg& arg, int64_t row) {
  const std::byte* data = arg.data + row * arg.row_step;
  if (arg.form == Form::kNative) {
    float x;
    std::memcpy(&x, data, sizeof(x));
    return x;
  }
  uint16_t bits;
  std::memcpy(&bits, data, sizeof(bits));
  return arg.form == Form::kBF16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}

/// A row of an argument: the vector at element i is at element (i & mask) of data. A splat is an
/// array of min(n, kTick) equal elements, rounded up to whole vectors, that is read again and
/// again.
struct Row {
  const std::byte* data;
  size_t mask;  // ~0, or 0 for a splat
  Form form;
};
/// Returns a row of an argument. The elements of a splat are written to `splat`, which has kTick.
HWY_INLINE Row begin_row(DF d, const KernelArg& arg, int64_t row, float* splat, size_t n = kTick) {
  if (!arg.splat) return {arg.data + row * arg.row_step, ~size_t{0}, arg.form};
  const float x = splat_of(arg, row);
  for (size_t i = 0; i < HWY_MIN(n, kTick); i += hn::Lanes(d))
    hn::Store(hn::Set(d, x), d, splat + i);
  return {reinterpret_cast<const std::byte*>(splat), 0, Form::kNative};
}

template <class Op, int N>
HWY_INLINE VF call_op(DF d, const Op& op, const VF (&v)[4]) {
  if constexpr (N == 1)
    return op(d, v[0]);
  else if constexpr (N == 2)
    return op(d, v[0], v[1]);
  else if constexpr (N == 3)
    return op(d, v[0], v[1], v[2]);
  else
    return op(d, v[0], v[1], v[2], v[3]);
}

/// Computes one row whose arguments and results are native floats.
template <class Op, int N>
HWY_NOINLINE void map_row(const Row (&rows)[4], float* out, size_t n, Prefetcher* prefetcher) {
  const DF d;
  const Op op;
  const size_t lanes = hn::Lanes(d);
  const float* data[N];
  for (int k = 0; k < N; ++k) data[k] = reinterpret_cast<const float*>(rows[k].data);
  VF v[4];
  size_t i = 0;
  for (; i + kTick <= n; i += kTick) {
    size_t at[N];
    for (int k = 0; k < N; ++k) at[k] = i & rows[k].mask;
    for (size_t q = 0; q < kTick; q += lanes) {
      for (int k = 0; k < N; ++k) v[k] = hn::LoadU(d, data[k] + at[k] + q);
      hn::StoreU(call_op<Op, N>(d, op, v), d, out + i + q);
    }
    if (prefetcher != nullptr) prefetcher->tick();
  }
  for (; i + lanes <= n; i += lanes) {
    for (int k = 0; k < N; ++k) v[k] = hn::LoadU(d, data[k] + (i & rows[k].mask));
    hn::StoreU(call_op<Op, N>(d, op, v), d, out + i);
  }
  if (i == n) return;
#if HWY_TARGET <= HWY_AVX2
  const auto some = hn::FirstN(d, n - i);
  for (int k = 0; k < N; ++k) v[k] = hn::MaskedLoad(some, d, data[k] + (i & rows[k].mask));
  hn::BlendedStore(call_op<Op, N>(d, op, v), some, d, out + i);
#else
  HWY_ALIGN float pad[kMaxLanes] = {};
  for (int k = 0; k < N; ++k) {
    if (rows[k].mask != 0) std::memcpy(pad, data[k] + i, (n - i) * sizeof(float));
    v[k] = rows[k].mask != 0 ? hn::Load(d, pad) : hn::LoadU(d, data[k]);
  }
  hn::Store(call_op<Op, N>(d, op, v), d, pad);
  std::memcpy(out + i, pad, (n - i) * sizeof(float));
#endif
}

/// Calls f(p, i) for each vector of n elements of `form` at `data`; p is the address of element i.
/// An incomplete last vector is passed as a padded copy, which is written back if kWrites.
template <bool kWrites, class Byte, class F>
HWY_INLINE void each_vector(Byte* data, Form form, size_t n, F f) {
  const size_t lanes = hn::Lanes(DF()), size = form_bytes(form);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) f(data + i * size, i);
  if (i == n) return;
  HWY_ALIGN std::byte pad[kMaxLanes * sizeof(float)] = {};
  if constexpr (!kWrites) std::memcpy(pad, data + i * size, (n - i) * size);
  f(static_cast<Byte*>(pad), i);
  if constexpr (kWrites) std::memcpy(data + i * size, pad, (n - i) * size);
}

/// Widens n <= kTick elements of `form` to floats, with zeros up to the end of the last vector.
inline HWY_NOINLINE void widen_elems(const std::byte* data, Form form, size_t n, float* wide) {
  const DF d;
  if (form == Form::kBF16)
    each_vector<false>(data, form, n, [&](const std::byte* p, size_t i) {
      hn::StoreU(load_form(d, p, 0, Form::kBF16), d, wide + i);
    });
  else
    each_vector<false>(data, form, n, [&](const std::byte* p, size_t i) {
      hn::StoreU(load_form(d, p, 0, form), d, wide + i);
    });
}
/// Rounds n <= kTick elements of `y` and writes them in `form`. kTick elements of y are readable.
inline HWY_NOINLINE void narrow_elems(const float* y, size_t n, std::byte* out, Form form,
                                     Form round) {
  const DF d;
  if (form == Form::kBF16 && round == Form::kBF16)
    each_vector<true>(out, form, n, [&](std::byte* p, size_t i) {
      store_form(d, hn::LoadU(d, y + i), p, 0, Form::kBF16, Form::kBF16);
    });
  else
    each_vector<true>(out, form, n, [&](std::byte* p, size_t i) {
      store_form(d, hn::LoadU(d, y + i), p, 0, form, round);
    });
}

/// Computes a row of fewer than kTick elements that has other forms than native floats, or is
/// rounded: a vector at a time, so that nothing goes through memory.
template <class Op, int N>
HWY_NOINLINE void map_short_row(const Row (&rows)[4], std::byte* out, Form out_form, Form round,
                                size_t n) {
  const DF d;
  const Op op;
  const size_t lanes = hn::Lanes(d);
  VF v[4];
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    for (int k = 0; k < N; ++k) v[k] = load_form(d, rows[k].data, i & rows[k].mask, rows[k].form);
    store_form(d, call_op<Op, N>(d, op, v), out, i, out_form, round);
  }
  if (i == n) return;
  HWY_ALIGN std::byte pad[kMaxLanes * sizeof(float)] = {};
  for (int k = 0; k < N; ++k) {
    const size_t size = form_bytes(rows[k].form);
    if (rows[k].mask != 0) std::memcpy(pad, rows[k].data + i * size, (n - i) * size);
    v[k] = load_form(d, rows[k].mask != 0 ? pad : rows[k].data, 0, rows[k].form);
  }
  store_form(d, call_op<Op, N>(d, op, v), pad, 0, out_form, round);
  std::memcpy(out + i * form_bytes(out_form), pad, (n - i) * form_bytes(out_form));
}

/// Calls f(to, first, n), which computes n elements of `size` bytes, from element `first` on, into
/// the buffer `to`; then writes them to `out` with non-temporal stores.
template <class F>
HWY_INLINE void stream_row(std::byte* out, size_t size, size_t n, F f) {
  constexpr size_t kChunk = 16 * kTick;
  const hn::ScalableTag<uint8_t> d;
  HWY_ALIGN std::byte chunk[kChunk * sizeof(float)];
  for (size_t i = 0; i < n; i += kChunk) {
    const size_t some = HWY_MIN(kChunk, n - i), bytes = some * size;
    std::byte* to = out + i * size;
    f(chunk, i, some);
    size_t k = 0;
    for (; k + hn::Lanes(d) <= bytes; k += hn::Lanes(d))
      hn::Stream(hn::Load(d, reinterpret_cast<const uint8_t*>(chunk + k)), d,
                 reinterpret_cast<uint8_t*>(to + k));
    std::memcpy(to + k, chunk + k, bytes - k);
  }
}

/// Computes rows of a few whole vectors of native floats, none of them a splat. With `streams`,
/// rows are whole cache lines.
template <class Op, int N>
HWY_NOINLINE void map_few_vectors(const KernelCall& c, bool streams) {
  const DF d;
  const Op op;
  const auto n = static_cast<size_t>(c.cols);
  const std::byte* data[N];
  for (int k = 0; k < N; ++k) data[k] = c.args[k].data;
  std::byte* out = c.out;
  size_t since = 0;  // elements since the last tick()
  for (int64_t r = 0; r < c.rows; ++r) {
    VF v[4];
    for (size_t i = 0; i < n; i += hn::Lanes(d)) {
      for (int k = 0; k < N; ++k) v[k] = hn::LoadU(d, reinterpret_cast<const float*>(data[k]) + i);
      const VF y = call_op<Op, N>(d, op, v);
      auto* to = reinterpret_cast<float*>(out) + i;
      if (streams)
        hn::Stream(y, d, to);
      else
        hn::StoreU(y, d, to);
    }
    for (int k = 0; k < N; ++k) data[k] += c.args[k].row_step;
    out += c.out_row_step;
    since += n;
    if (since >= kTick && c.ahead != nullptr) c.ahead->tick(), since -= kTick;
  }
}

/// The loops that are compiled for each operation, which has `n_args` operands. map_rows(), which
/// calls them, is compiled once.
struct MapLoops {
  int n_args;
  void (*row)(const Row (&rows)[4], float* out, size_t n, Prefetcher* prefetcher);
  void (*short_row)(const Row (&rows)[4], std::byte* out, Form out_form, Form round, size_t n);
  void (*few_vectors)(const KernelCall& c, bool streams);
};

/// Computes a row that has other forms than native floats, or is rounded: widens, computes and
/// narrows kTick elements at a time.
inline void map_row_forms(const MapLoops& loops, const Row (&rows)[4], std::byte* out,
                          Form out_form, Form round, size_t n, Prefetcher* prefetcher) {
  if (n < kTick) return loops.short_row(rows, out, out_form, round, n);
  HWY_ALIGN float wide[4][kTick], y[kTick];
  for (size_t i = 0; i < n; i += kTick) {
    const size_t some = HWY_MIN(kTick, n - i);
    Row part[4];
    for (int k = 0; k < loops.n_args; ++k) {
      part[k] = rows[k];
      if (rows[k].mask == 0) continue;
      part[k].data += i * form_bytes(rows[k].form);
      if (rows[k].form == Form::kNative) continue;
      widen_elems(part[k].data, rows[k].form, some, wide[k]);
      part[k].data = reinterpret_cast<const std::byte*>(wide[k]);
    }
    loops.row(part, y, some, nullptr);
    narrow_elems(y, some, out + i * form_bytes(out_form), out_form, round);
    if (prefetcher != nullptr && some == kTick) prefetcher->tick();
  }
}

/// Runs a call that is not small.
inline void map_rows(const KernelCall& c, const MapLoops& loops) {
  const DF d;
  HWY_ALIGN float splats[4][kTick];
  bool plain = c.out_form == Form::kNative && c.round == Form::kNative;
  bool has_splat = false;
  for (int k = 0; k < loops.n_args; ++k) {
    plain = plain && (c.args[k].splat || c.args[k].form == Form::kNative);
    has_splat = has_splat || c.args[k].splat;
  }
  const auto n = static_cast<size_t>(c.cols);
  if (plain && !has_splat && c.rows > 1 && n < kTick && n % hn::Lanes(d) == 0)
    return loops.few_vectors(c, c.streams && n % kFloatsOfLine == 0);
  for (int64_t r = 0; r < c.rows; ++r) {
    Row rows[4];
    for (int k = 0; k < loops.n_args; ++k) rows[k] = begin_row(d, c.args[k], r, splats[k], n);
    std::byte* out = c.out + r * c.out_row_step;
    const auto map = [&](const Row (&from)[4], std::byte* to, size_t some) {
      if (plain)
        loops.row(from, reinterpret_cast<float*>(to), some, c.ahead);
      else
        map_row_forms(loops, from, to, c.out_form, c.round, some, c.ahead);
    };
    if (!c.streams) {
      map(rows, out, n);
      continue;
    }
    stream_row(out, form_bytes(c.out_form), n, [&](std::byte* to, size_t first, size_t some) {
      Row from[4];
      for (int k = 0; k < loops.n_args; ++k) {
        from[k] = rows[k];
        if (rows[k].mask != 0) from[k].data += first * form_bytes(rows[k].form);
      }
      map(from, to, some);
    });
  }
}

#if HWY_TARGET <= HWY_AVX2
using DF4 = hn::FixedTag<float, 4>;
/// widen_four() returns four lanes with zeros above them, lowest_four() the lowest four lanes.
HWY_INLINE VF widen_four(DF d, hn::Vec<DF4> v) {
#if HWY_TARGET <= HWY_AVX3
  return hn::ZeroExtendVector(d, hn::ZeroExtendVector(hn::Half<DF>(), v));
#else
  return hn::ZeroExtendVector(d, v);
#endif
}
HWY_INLINE hn::Vec<DF4> lowest_four(VF v) {
#if HWY_TARGET <= HWY_AVX3
  return hn::LowerHalf(DF4(), hn::LowerHalf(hn::Half<DF>(), v));
#else
  return hn::LowerHalf(DF4(), v);
#endif
}
#endif

/// load_small() and store_small() move exactly n floats between memory and the lower lanes of a
/// vector. A load of exactly the bytes of an earlier store can be forwarded from the store buffer.
HWY_INLINE VF load_small(DF d, const float* p, size_t n) {
  if (n == 1) return hn::Set(d, *p);
#if HWY_TARGET <= HWY_AVX2
  if (n == 2)
    return widen_four(d, hn::ZeroExtendVector(DF4(), hn::LoadU(hn::FixedTag<float, 2>(), p)));
  if (n == 4) return widen_four(d, hn::LoadU(DF4(), p));
#if HWY_TARGET <= HWY_AVX3
  // A load after a masked store of the same bytes waits nearly twice as long.
  if (n == 8) return hn::ZeroExtendVector(d, hn::LoadU(hn::Half<DF>(), p));
#endif
  if (n == hn::Lanes(d)) return hn::LoadU(d, p);
  return hn::MaskedLoad(hn::FirstN(d, n), d, p);
#else
  HWY_ALIGN float pad[kMaxLanes] = {};
  std::memcpy(pad, p, n * sizeof(float));
  return hn::Load(d, pad);
#endif
}
HWY_INLINE void store_small(DF d, VF v, float* p, size_t n) {
  if (n == 1) {
    *p = hn::GetLane(v);
    return;
  }
#if HWY_TARGET <= HWY_AVX2
  const hn::FixedTag<float, 2> d2;
  if (n == 2) return hn::StoreU(hn::LowerHalf(d2, lowest_four(v)), d2, p);
  if (n == 4) return hn::StoreU(lowest_four(v), DF4(), p);
#if HWY_TARGET <= HWY_AVX3
  if (n == 8) return hn::StoreU(hn::LowerHalf(hn::Half<DF>(), v), hn::Half<DF>(), p);
#endif
  if (n == hn::Lanes(d)) return hn::StoreU(v, d, p);
  hn::BlendedStore(v, hn::FirstN(d, n), d, p);
#else
  HWY_ALIGN float pad[kMaxLanes];
  hn::Store(v, d, pad);
  std::memcpy(p, pad, n * sizeof(float));
#endif
}

/// Computes a call with is_small: one vector, or a few.
template <class Op, int N>
HWY_NOINLINE void map_small(const KernelCall& c) {
  const DF d;
  const Op op;
  const size_t n = static_cast<size_t>(c.cols), lanes = hn::Lanes(d);
  for (size_t i = 0; i < n; i += lanes) {
    const size_t some = HWY_MIN(lanes, n - i);
    VF v[4];
    for (int k = 0; k < N; ++k) {
      const auto* data = reinterpret_cast<const float*>(c.args[k].data);
      v[k] = c.args[k].splat ? hn::Set(d, *data) : load_small(d, data + i, some);
    }
    store_small(d, call_op<Op, N>(d, op, v), reinterpret_cast<float*>(c.out) + i, some);
  }
}

/// The map kernel of a functor op(d, v...) with N operands.
template <class Op, int N>
void map_f32(const KernelCall& c) {
  if (c.is_small) return map_small<Op, N>(c);
  map_rows(c, {N, map_row<Op, N>, map_short_row<Op, N>, map_few_vectors<Op, N>});
}

}  // namespace stow::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // STOW_ROW_KERNELS_F32_INL_H_
