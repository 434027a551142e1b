// Weights by their gradients' moments, as Adam and its kin have it, in one pass.
#include "stowage/runtime/cpu/kernels/row_kernels.h"
#include "stowage/runtime/cpu/kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stowage/runtime/cpu/kernels/row_kernels_moments.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "stowage/runtime/cpu/kernels/row_kernels_f32-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stow::cpu::HWY_NAMESPACE {

template <bool kScaled, bool kUpdates, bool kDecays>
struct Moments {
  enum Rows { kG, kM, kV, kP };
  enum Values { kB1, kC1, kB2, kC2, kK1, kK2, kE, kRest };
  static constexpr int kRows = kUpdates ? 4 : 3;
  static constexpr int kScale = kRest, kRate = kScale + kScaled, kDecay = kRate + kUpdates;
  static constexpr int kValues = kDecay + kDecays;
  static_assert(kRows + kValues <= kMaxKernelArgs && (kUpdates || !kDecays));

  struct Outs {
    float *out, *m, *v;
  };
  float values[kValues];

  // A vector at element i; all is read before anything is written.
  HWY_INLINE void run(DF d, const float* const* rows, const Outs& outs, size_t i) const {
    const auto of = [&](int k) { return hn::Set(d, values[k]); };
    VF g = hn::LoadU(d, rows[kG] + i);
    if constexpr (kScaled) g = hn::Mul(g, of(kScale));
    VF m = hn::LoadU(d, rows[kM] + i), v = hn::LoadU(d, rows[kV] + i);
    m = hn::Add(hn::Mul(m, of(kB1)), hn::Mul(g, of(kC1)));
    v = hn::Add(hn::Mul(v, of(kB2)), hn::Mul(hn::Mul(g, g), of(kC2)));
    VF r = hn::Div(hn::Mul(m, of(kK1)), hn::Add(hn::Sqrt(hn::Mul(v, of(kK2))), of(kE)));
    if constexpr (kUpdates) {
      const VF p = hn::LoadU(d, rows[kP] + i);
      if constexpr (kDecays) r = hn::Add(r, hn::Mul(p, of(kDecay)));
      r = hn::Add(p, hn::Mul(r, of(kRate)));
    }
    hn::StoreU(m, d, outs.m + i);
    hn::StoreU(v, d, outs.v + i);
    hn::StoreU(r, d, outs.out + i);
  }

  void run_row(const float* const* rows, const Outs& outs, size_t n, Prefetcher* prefetcher) const {
    const DF d;
    const size_t lanes = hn::Lanes(d);
    size_t i = 0;
    for (; i + kTick <= n; i += kTick) {
      for (size_t q = 0; q < kTick; q += lanes) run(d, rows, outs, i + q);
      if (prefetcher != nullptr) prefetcher->tick();
    }
    for (; i + lanes <= n; i += lanes) run(d, rows, outs, i);
    if (i == n) return;
    const size_t bytes = (n - i) * sizeof(float);
    HWY_ALIGN float pad[kRows][kMaxLanes] = {};
    const float* pads[kRows];
    for (int k = 0; k < kRows; ++k) {
      std::memcpy(pad[k], rows[k] + i, bytes);
      pads[k] = pad[k];
    }
    run(d, pads, {pad[kG], pad[kM], pad[kV]}, 0);
    std::memcpy(outs.out + i, pad[kG], bytes);
    std::memcpy(outs.m + i, pad[kM], bytes);
    std::memcpy(outs.v + i, pad[kV], bytes);
  }
};

template <bool kScaled, bool kUpdates, bool kDecays, bool kSubtracts>
void moments(const KernelCall& c) {
  using Of = Moments<kScaled, kUpdates, kDecays>;
  const auto row_of = [](const KernelArg& arg, int64_t r) {
    return reinterpret_cast<float*>(const_cast<std::byte*>(arg.data) + r * arg.row_step);
  };
  for (int64_t r = 0; r < c.rows; ++r) {
    Of of;
    const float* rows[Of::kRows];
    for (int k = 0; k < Of::kRows; ++k) rows[k] = row_of(c.args[k], r);
    for (int k = 0; k < Of::kValues; ++k) of.values[k] = splat_of(c.args[Of::kRows + k], r);
    // The bits of p - r rate are those of p + r (-rate).
    if constexpr (kSubtracts) of.values[Of::kRate] = -of.values[Of::kRate];
    auto* const out = reinterpret_cast<float*>(c.out + r * c.out_row_step);
    of.run_row(rows, {out, row_of(c.more[0], r), row_of(c.more[1], r)}, static_cast<size_t>(c.cols),
               c.ahead);
  }
}

template <bool kScaled, bool kSubtracts>
MapKernel moments_of(bool updates, bool decays) {
  if (decays) return moments<kScaled, true, true, kSubtracts>;
  return updates ? moments<kScaled, true, false, kSubtracts>
                 : moments<kScaled, false, false, false>;
}
MapKernel find_moments(bool scaled, bool updates, bool decays, bool subtracts) {
  if (subtracts)
    return scaled ? moments_of<true, true>(updates, decays)
                  : moments_of<false, true>(updates, decays);
  return scaled ? moments_of<true, false>(updates, decays)
                : moments_of<false, false>(updates, decays);
}

}  // namespace stow::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stow::cpu {
HWY_EXPORT(find_moments);
MapKernel f32_moments_kernel(bool scaled, bool updates, bool decays, bool subtracts) {
  return HWY_DYNAMIC_DISPATCH(find_moments)(scaled, updates, decays, subtracts);
}
}  // namespace stow::cpu
#endif  // HWY_ONCE
