// Loops of the f32 kernels over rows, forms and tails. Included once a target.
// Not the operations themselves.
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

/// Nearest even; a NaN stays one.
HWY_INLINE VF round_bf16(DF d, VF v) {
  const DU32 du;
  const auto bits = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fff)));
  const auto quiet = hn::Or(bits, hn::Set(du, 0x400000));
  const auto nan = hn::RebindMask(du, hn::IsNaN(v));
  return hn::BitCast(d, hn::And(hn::IfThenElse(nan, quiet, rounded), hn::Set(du, 0xffff0000)));
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

/// Elements that loops take at once.
constexpr size_t kTurn = Ahead::kTurnElems;

/// A row of an argument. A splat stands as kTurn equal elements that `mask` keeps re-reading.
struct Row {
  const std::byte* data;
  size_t mask;  // ~0, or 0 for a splat
  Form form;
};
HWY_INLINE Row begin_row(DF d, const KernelArg& arg, int64_t row, float* splat) {
  const std::byte* data = arg.data + row * arg.row_step;
  if (!arg.splat) return {data, ~size_t{0}, arg.form};
  float x;
  if (arg.form == Form::kNative) {
    std::memcpy(&x, data, sizeof(x));
  } else {
    uint16_t bits;
    std::memcpy(&bits, data, sizeof(bits));
    x = arg.form == Form::kBF16 ? bf16_to_f32(bits) : f16_to_f32(bits);
  }
  for (size_t i = 0; i < kTurn; i += hn::Lanes(d)) hn::Store(hn::Set(d, x), d, splat + i);
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

/// The loop over one row. kPlain: every form native, nothing to round.
template <class Op, int N, bool kPlain>
HWY_INLINE void map_row(DF d, const Row (&rows)[4], std::byte* out, Form out_form, Form round,
                        size_t n, Ahead* ahead) {
  const Op op;
  const size_t lanes = hn::Lanes(d);
  VF v[4];
  size_t i = 0;
  for (; i + kTurn <= n; i += kTurn) {
    size_t at[N];
    for (int k = 0; k < N; ++k) at[k] = i & rows[k].mask;
    for (size_t q = 0; q < kTurn; q += lanes) {
      for (int k = 0; k < N; ++k)
        v[k] = load_form(d, rows[k].data, at[k] + q, kPlain ? Form::kNative : rows[k].form);
      store_form(d, call_op<Op, N>(d, op, v), out, i + q, kPlain ? Form::kNative : out_form,
                 kPlain ? Form::kNative : round);
    }
    if (ahead != nullptr) ahead->turn();
  }
  for (; i + lanes <= n; i += lanes) {
    for (int k = 0; k < N; ++k)
      v[k] = load_form(d, rows[k].data, i & rows[k].mask, kPlain ? Form::kNative : rows[k].form);
    store_form(d, call_op<Op, N>(d, op, v), out, i, kPlain ? Form::kNative : out_form,
               kPlain ? Form::kNative : round);
  }
  if (i == n) return;
#if HWY_TARGET <= HWY_AVX2
  if (kPlain) {
    const auto some = hn::FirstN(d, n - i);
    for (int k = 0; k < N; ++k)
      v[k] = hn::MaskedLoad(some, d,
                            reinterpret_cast<const float*>(rows[k].data) + (i & rows[k].mask));
    hn::BlendedStore(call_op<Op, N>(d, op, v), some, d, reinterpret_cast<float*>(out) + i);
    return;
  }
#endif
  HWY_ALIGN std::byte pad[kMaxLanes * sizeof(float)] = {};
  for (int k = 0; k < N; ++k) {
    const Row& row = rows[k];
    if (row.mask == 0) {
      v[k] = load_form(d, row.data, 0, Form::kNative);
      continue;
    }
    std::memcpy(pad, row.data + i * form_bytes(row.form), (n - i) * form_bytes(row.form));
    v[k] = load_form(d, pad, 0, row.form);
  }
  store_form(d, call_op<Op, N>(d, op, v), pad, 0, out_form, round);
  std::memcpy(out + i * form_bytes(out_form), pad, (n - i) * form_bytes(out_form));
}

/// The map kernel of a functor op(d, v...) of N operands.
template <class Op, int N>
void map_f32(const KernelCall& c) {
  const DF d;
  HWY_ALIGN float splats[N][kTurn];
  bool plain = c.out_form == Form::kNative && c.round == Form::kNative;
  for (int k = 0; k < N; ++k) plain = plain && (c.args[k].splat || c.args[k].form == Form::kNative);
  for (int64_t r = 0; r < c.rows; ++r) {
    Row rows[4];
    for (int k = 0; k < N; ++k) rows[k] = begin_row(d, c.args[k], r, splats[k]);
    std::byte* out = c.out + r * c.out_row_step;
    const auto n = static_cast<size_t>(c.cols);
    if (plain)
      map_row<Op, N, true>(d, rows, out, Form::kNative, Form::kNative, n, c.ahead);
    else
      map_row<Op, N, false>(d, rows, out, c.out_form, c.round, n, c.ahead);
  }
}

}  // namespace stow::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // STOW_ROW_KERNELS_F32_INL_H_
