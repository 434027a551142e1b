// silu(x), or silu(x) * y, in one pass over a tile, and the gradients of these: steps of one dtype,
// each rounding as if alone.
//
// A logistic is a long chain of instructions that wait for each other, so a group of vectors goes
// through it while groups before are multiplied, rounded and stored.
#include "stowage/runtime/cpu/kernels/gemm_thread.h"
#include "stowage/runtime/cpu/kernels/row_kernels.h"
#include "stowage/runtime/cpu/kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stowage/runtime/cpu/kernels/row_kernels_gate.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "stowage/runtime/cpu/kernels/row_kernels_f32-inl.h"
#include "stowage/runtime/cpu/kernels/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stow::cpu::HWY_NAMESPACE {

template <bool kStreams, class D>
HWY_INLINE void store_vector(D d, hn::Vec<D> v, hn::TFromD<D>* p) {
  if constexpr (kStreams)
    hn::Stream(v, d, p);
  else
    hn::StoreU(v, d, p);
}

constexpr size_t kGroup = 4;  // vectors
using Group = VF[kGroup];

// Lanes of a gate whose operands and result are f32 in memory.
struct F32Lanes {
  static constexpr size_t kBytes = 4;
  static HWY_INLINE void load(DF d, const std::byte* p, Group& v) {
    for (size_t k = 0; k < kGroup; ++k)
      v[k] = hn::LoadU(d, reinterpret_cast<const float*>(p) + k * hn::Lanes(d));
  }
  template <bool kStreams = false>
  static HWY_INLINE void store(DF d, const Group& v, std::byte* p) {
    for (size_t k = 0; k < kGroup; ++k)
      store_vector<kStreams>(d, v[k], reinterpret_cast<float*>(p) + k * hn::Lanes(d));
  }
  static HWY_INLINE VF logistic(DF d, VF x) { return logistic_f32(d, x); }
  static HWY_INLINE VF round_logistic(DF, VF x) { return x; }
  static HWY_INLINE VF round(DF, VF x) { return x; }
};

// Lanes of a gate in bf16: two vectors are the even and the odd elements of one in memory. Every
// NaN has a lower half of 0, as it comes from an element or is the machine's own.
struct BF16Lanes {
  static constexpr size_t kBytes = 2;
#if HWY_TARGET == HWY_AVX3
  // Upper halves side by side and lower halves side by side: those round up that lie beyond the
  // middle, or on it below an odd one.
  static HWY_INLINE hn::Vec<DU32> narrow(DF, VF even, VF odd) {
    const DU32 du;
    const auto lower =
        hn::Add(hn::Set(du, 0x200000), hn::Mul(hn::Set(du, 0x20002), hn::Iota(du, 0)));
    const auto upper = hn::Add(lower, hn::Set(du, 0x10001));
    const __m512i a = _mm512_castps_si512(even.raw), b = _mm512_castps_si512(odd.raw);
    const __m512i high = _mm512_permutex2var_epi16(a, upper.raw, b);
    const __m512i low = _mm512_permutex2var_epi16(a, lower.raw, b);
    constexpr int kOrAnd = 0xf8;  // a | (b & c)
    const __m512i rest = _mm512_ternarylogic_epi32(low, high, _mm512_set1_epi16(1), kOrAnd);
    const __mmask32 up = _mm512_cmpgt_epu16_mask(rest, _mm512_set1_epi16(INT16_MIN));
    return hn::Vec<DU32>{_mm512_mask_sub_epi16(high, up, high, _mm512_set1_epi16(-1))};
  }
#elif HWY_TARGET == HWY_AVX2
  // Upper halves side by side and lower halves side by side: those round up that lie beyond the
  // middle, or on it below an odd one. One less of what is below an even one makes that one test.
  static HWY_INLINE hn::Vec<DU32> narrow(DF, VF even, VF odd) {
    const __m256i a = _mm256_castps_si256(even.raw), b = _mm256_castps_si256(odd.raw);
    const __m256i high = _mm256_blend_epi16(_mm256_srli_epi32(a, 16), b, 0xaa);
    const __m256i low = _mm256_blend_epi16(a, _mm256_slli_epi32(b, 16), 0xaa);
    const __m256i below_even = _mm256_andnot_si256(high, _mm256_set1_epi16(1));
    const __m256i up = _mm256_srli_epi16(_mm256_subs_epu16(low, below_even), 15);
    return hn::Vec<DU32>{_mm256_add_epi16(high, up)};
  }
#else
  static HWY_INLINE hn::Vec<DU32> narrow(DF d, VF even, VF odd) {
    const auto low = hn::ShiftRight<16>(add_half_bf16(hn::BitCast(DU32(), even)));
    return hn::Or(low, hn::BitCast(DU32(), round(d, odd)));
  }
#endif
  static HWY_INLINE void load(DF d, const std::byte* p, Group& v) {
    const DU32 du;
    for (size_t k = 0; k < kGroup; k += 2) {
      const auto both = hn::LoadU(du, reinterpret_cast<const uint32_t*>(p) + k / 2 * hn::Lanes(d));
      v[k] = hn::BitCast(d, hn::ShiftLeft<16>(both));
      v[k + 1] = upper_half(d, both);
    }
  }
  template <bool kStreams = false>
  static HWY_INLINE void store(DF d, const Group& v, std::byte* p) {
    for (size_t k = 0; k < kGroup; k += 2)
      store_vector<kStreams>(DU32(), narrow(d, v[k], v[k + 1]),
                             reinterpret_cast<uint32_t*>(p) + k / 2 * hn::Lanes(d));
  }
  static HWY_INLINE VF logistic(DF d, VF x) { return logistic_bf16(d, x); }
  // No value of bf16 has a logistic halfway between two values of bf16.
  static HWY_INLINE VF round_logistic(DF d, VF x) {
    return upper_half(d, hn::Add(hn::BitCast(DU32(), x), hn::Set(DU32(), 0x8000)));
  }
  static HWY_INLINE VF round(DF d, VF x) {
    return upper_half(d, add_half_bf16(hn::BitCast(DU32(), x)));
  }
};

template <class Lanes>
HWY_INLINE void logistic_group(DF d, const std::byte* x, Group& s) {
  Lanes::load(d, x, s);
  for (size_t k = 0; k < kGroup; ++k) s[k] = Lanes::logistic(d, s[k]);
}
// silu(args[0]), or that times args[1], from the logistic `s` of args[0].
template <bool kFactor, bool kStreams = false>
struct Gate {
  using Rest = Gate<kFactor>;  // of what is stored by way of a pad
  static constexpr int kArgs = kFactor ? 2 : 1, kOuts = 1;
  template <class Lanes>
  static HWY_INLINE void run(DF d, Group& s, const std::byte* const* args, std::byte* const* outs) {
    Group v;
    Lanes::load(d, args[0], v);
    for (size_t k = 0; k < kGroup; ++k) s[k] = hn::Mul(v[k], Lanes::round_logistic(d, s[k]));
    if constexpr (kFactor) {
      Lanes::load(d, args[1], v);
      for (size_t k = 0; k < kGroup; ++k) s[k] = hn::Mul(Lanes::round(d, s[k]), v[k]);
    }
    Lanes::template store<kStreams>(d, s, outs[0]);
  }
};
// The function of f32_gate_grad_kernel, likewise; all is read before anything is written.
template <int kNOuts>
struct GateGrad {
  using Rest = GateGrad;
  static constexpr int kArgs = kNOuts == 1 ? 2 : 3, kOuts = kNOuts;
  template <class Lanes>
  static HWY_INLINE void run(DF d, Group& s, const std::byte* const* args, std::byte* const* outs) {
    const VF one = hn::Set(d, 1.0f);
    Group x, dy, results[kOuts];
    Lanes::load(d, args[0], x);
    Lanes::load(d, args[kArgs - 1], dy);
    if constexpr (kOuts > 1) {
      Group y;
      Lanes::load(d, args[1], y);
      for (size_t k = 0; k < kGroup; ++k) {
        const VF silu = Lanes::round(d, hn::Mul(x[k], Lanes::round_logistic(d, s[k])));
        results[1][k] = hn::Mul(dy[k], silu);
        if constexpr (kOuts > 2) results[2][k] = hn::Mul(silu, y[k]);
        dy[k] = Lanes::round(d, hn::Mul(dy[k], y[k]));
      }
    }
    for (size_t k = 0; k < kGroup; ++k) {
      const VF sigma = Lanes::round_logistic(d, s[k]);
      const VF slope = Lanes::round(d, hn::Mul(sigma, Lanes::round(d, hn::Sub(one, sigma))));
      const VF bent = Lanes::round(d, hn::Mul(Lanes::round(d, hn::Mul(dy[k], x[k])), slope));
      results[0][k] = hn::Add(Lanes::round(d, hn::Mul(dy[k], sigma)), bent);
    }
    for (int o = 0; o < kOuts; ++o) Lanes::store(d, results[o], outs[o]);
  }
};

template <class Lanes, class Of>
void gate_row(const std::byte* const* from, std::byte* const* to, size_t n,
              Prefetcher* prefetcher) {
  constexpr int kArgs = Of::kArgs, kOuts = Of::kOuts;
  const DF d;
  const size_t elems = kGroup * hn::Lanes(d), bytes = elems * Lanes::kBytes;
  const std::byte* args[kArgs];
  std::byte* outs[kOuts];
  std::copy_n(from, kArgs, args);
  std::copy_n(to, kOuts, outs);
  const auto move_on = [&] {
    for (auto& a : args) a += bytes;
    for (auto& o : outs) o += bytes;
  };
  Group now, next;
  if (n >= elems) {
    logistic_group<Lanes>(d, args[0], now);
    for (size_t i = 2 * elems; i <= n; i += elems) {
      logistic_group<Lanes>(d, args[0] + bytes, next);
      Of::template run<Lanes>(d, now, args, outs);
      for (size_t k = 0; k < kGroup; ++k) now[k] = next[k];
      move_on();
      if (prefetcher != nullptr && i % kTick == 0) prefetcher->tick();
    }
    Of::template run<Lanes>(d, now, args, outs);
    move_on();
  }
  const size_t rest = n % elems * Lanes::kBytes;
  if (rest == 0) return;
  HWY_ALIGN std::byte pad[3][kGroup * kMaxLanes * sizeof(float)] = {};
  const std::byte* pad_args[] = {pad[0], pad[1], pad[2]};
  std::byte* pad_outs[] = {pad[0], pad[1], pad[2]};
  for (int k = 0; k < kArgs; ++k) std::memcpy(pad[k], args[k], rest);
  logistic_group<Lanes>(d, pad[0], now);
  Of::Rest::template run<Lanes>(d, now, pad_args, pad_outs);
  for (int o = 0; o < kOuts; ++o) std::memcpy(outs[o], pad[o], rest);
}

#if HWY_TARGET == HWY_AVX3
constexpr size_t kPairs = kGroup / 2;
using Pairs = __m512i[kPairs];

// By name, as functions for this target may not have the instruction: its intrinsic is refused. The
// lower half comes first.
HWY_INLINE void narrow_flushing(const Group& v, Pairs& both) {
#pragma GCC unroll 4
  for (size_t k = 0; k < kPairs; ++k)
    asm("vcvtne2ps2bf16 %1, %2, %0" : "=v"(both[k]) : "v"(v[2 * k].raw), "v"(v[2 * k + 1].raw));
}
HWY_INLINE void widen_pairs(const Pairs& both, Group& v) {
  constexpr __mmask32 kUpper = 0xaaaaaaaa;
  const __m512i of_low = hn::ShiftRight<1>(hn::Iota(hn::ScalableTag<uint16_t>(), 0)).raw;
  const __m512i of_high = _mm512_add_epi16(of_low, _mm512_set1_epi16(16));
#pragma GCC unroll 4
  for (size_t k = 0; k < kPairs; ++k) {
    v[2 * k].raw = _mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(kUpper, of_low, both[k]));
    v[2 * k + 1].raw =
        _mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(kUpper, of_high, both[k]));
  }
}
HWY_INLINE void load_pairs(const std::byte* p, Group& v) {
  Pairs both;
#pragma GCC unroll 4
  for (size_t k = 0; k < kPairs; ++k) both[k] = _mm512_loadu_si512(p + k * sizeof(__m512i));
  widen_pairs(both, v);
}

// silu(x) y of bf16 on machines with AVX-512-BF16, whose instruction rounds two vectors at once but
// takes and makes zeros for subnormal numbers. Five groups are on their way, each a stage behind
// the next: the machine looks some sixty instructions ahead, fewer than stand between an x and its
// result.
template <bool kStreams>
void gate_row_flushing(const std::byte* const* args, std::byte* const* outs, size_t n,
                       Prefetcher* prefetcher) {
  constexpr size_t kElems = kGroup * 16, kBytes = kElems * 2, kAhead = 4;
  constexpr int kInfinity = 0x7f80;
  const DF d;
  const std::byte *x = args[0], *y = args[1];
  std::byte* out = outs[0];
  const size_t groups = n / kElems;
  if (groups > 2 * kAhead) {
    Group t, fraction, power, t_of_power, logistic;
    Pairs silu;
    // The stages before the last: of what reaches silu, x, and of what is begun.
    const auto advance = [&](const std::byte* at, const std::byte* begun) HWY_ATTR
        __attribute__((always_inline)) {
      Group v;
      load_pairs(at, v);
#pragma GCC unroll 4
      for (size_t k = 0; k < kGroup; ++k) logistic[k] = BF16Lanes::round_logistic(d, logistic[k]);
#pragma GCC unroll 4
      for (size_t k = 0; k < kGroup; ++k) v[k] = hn::Mul(v[k], logistic[k]);
      narrow_flushing(v, silu);

#pragma GCC unroll 4
      for (size_t k = 0; k < kGroup; ++k)
        logistic[k] = logistic_bf16_of(d, power[k], t_of_power[k]);
      logistic_bf16_power(d, fraction, power);
#pragma GCC unroll 4
      for (size_t k = 0; k < kGroup; ++k) t_of_power[k] = t[k];

      load_pairs(begun, v);
      logistic_bf16_exponent(d, v, t, fraction);
    };
#pragma GCC unroll 4
    for (size_t k = 0; k < kGroup; ++k)
      t[k] = fraction[k] = power[k] = t_of_power[k] = logistic[k] = hn::Zero(d);
    for (size_t k = 0; k < kAhead; ++k) advance(x, x + k * kBytes);
    const std::byte* const last = x + (groups - 1) * kBytes;
    for (size_t i = 0; i < groups; ++i, x += kBytes, y += kBytes, out += kBytes) {
      Group v, w;
      Pairs product;
      widen_pairs(silu, w);
      load_pairs(y, v);
#pragma GCC unroll 4
      for (size_t k = 0; k < kGroup; ++k) w[k] = hn::Mul(w[k], v[k]);
      narrow_flushing(w, product);

      advance(std::min(x + kBytes, last), std::min(x + kAhead * kBytes, last));

      __m512i most = _mm512_setzero_si512();
#pragma GCC unroll 4
      for (const __m512i p : product) {  // twice its magnitude, and of zero the most
        const __m512i magnitude = _mm512_add_epi16(_mm512_add_epi16(p, p), _mm512_set1_epi16(-2));
        most = _mm512_max_epu16(most, magnitude);
      }
      const __m512i limit = _mm512_set1_epi16(static_cast<int16_t>(2 * kInfinity - 2));
      if (HWY_LIKELY(_mm512_cmpge_epu16_mask(most, limit) == 0)) {
#pragma GCC unroll 4
        for (size_t k = 0; k < kPairs; ++k)
          store_vector<kStreams>(DU32(), hn::Vec<DU32>{product[k]},
                                 reinterpret_cast<uint32_t*>(out) + k * 16);
      } else {
        const std::byte* const from[] = {x, y};
        gate_row<BF16Lanes, Gate<true, kStreams>>(from, &out, kElems, nullptr);
      }
      if (prefetcher != nullptr) prefetcher->tick();
    }
    n %= kElems;
  }
  const std::byte* const from[] = {x, y};
  gate_row<BF16Lanes, Gate<true, kStreams>>(from, &out, n, prefetcher);
}
#endif

// The gate of operands in any form.
template <Form kRound, bool kFactor>
struct RowGate {
  static HWY_INLINE VF round(DF d, VF x) {
    return kRound == Form::kBF16 ? round_bf16(d, x) : kRound == Form::kF16 ? round_f16(d, x) : x;
  }
  HWY_INLINE VF operator()(DF d, VF x) const { return hn::Mul(x, round(d, logistic_f32(d, x))); }
  HWY_INLINE VF operator()(DF d, VF x, VF y) const { return hn::Mul(round(d, (*this)(d, x)), y); }
};

template <bool kFactor>
void gate(const KernelCall& c) {
  constexpr int kArgs = Gate<kFactor>::kArgs;
  const auto all_are = [&](Form form) {
    bool all = c.out_form == form && c.round == form;
    for (int k = 0; k < kArgs; ++k) all = all && !c.args[k].splat && c.args[k].form == form;
    return all;
  };
  const auto rows = [&](auto row) {
    for (int64_t r = 0; r < c.rows; ++r) {
      const std::byte* args[kArgs];
      for (int k = 0; k < kArgs; ++k) args[k] = c.args[k].data + r * c.args[k].row_step;
      std::byte* const out = c.out + r * c.out_row_step;
      row(args, &out, static_cast<size_t>(c.cols), c.ahead);
    }
  };
  const auto rows_of = [&](auto lanes) {
    using Lanes = decltype(lanes);
    c.streams ? rows(gate_row<Lanes, Gate<kFactor, true>>) : rows(gate_row<Lanes, Gate<kFactor>>);
  };
  if (all_are(Form::kNative)) return rows_of(F32Lanes());
#if HWY_TARGET == HWY_AVX3
  if (kFactor && all_are(Form::kBF16) && can_multiply_pairs())
    return rows(c.streams ? gate_row_flushing<true> : gate_row_flushing<false>);
#endif
  if (all_are(Form::kBF16)) return rows_of(BF16Lanes());
  if (c.round == Form::kNative) return map_f32<RowGate<Form::kNative, kFactor>, kArgs>(c);
  if (c.round == Form::kBF16) return map_f32<RowGate<Form::kBF16, kFactor>, kArgs>(c);
  map_f32<RowGate<Form::kF16, kFactor>, kArgs>(c);
}
MapKernel find_gate(bool has_factor) {
  return has_factor ? gate<true> : gate<false>;
}

// As F32Lanes, with every result rounded to a half's values.
template <Form kRound>
struct RoundedLanes : F32Lanes {
  static HWY_INLINE VF round(DF d, VF x) {
    return kRound == Form::kBF16 ? round_bf16(d, x) : round_f16(d, x);
  }
  static HWY_INLINE VF round_logistic(DF d, VF x) { return round(d, x); }
};

// The gradient of a gate with operands in any form: kTick elements at a time, widened before and
// narrowed after.
template <class Lanes, int kOuts>
void gate_grad_forms(const std::byte* const* from, const Form* from_forms, std::byte* const* to,
                     const Form* to_forms, Form round, size_t n, Prefetcher* prefetcher) {
  constexpr int kArgs = GateGrad<kOuts>::kArgs;
  HWY_ALIGN float wide[3][kTick];
  const std::byte* args[3];
  std::byte* outs[3];
  for (int k = 0; k < 3; ++k) args[k] = outs[k] = reinterpret_cast<std::byte*>(wide[k]);
  for (size_t i = 0; i < n; i += kTick) {
    const size_t some = HWY_MIN(kTick, n - i);
    for (int k = 0; k < kArgs; ++k)
      widen_elems(from[k] + i * form_bytes(from_forms[k]), from_forms[k], some, wide[k]);
    gate_row<Lanes, GateGrad<kOuts>>(args, outs, some, nullptr);
    for (int o = 0; o < kOuts; ++o)
      narrow_elems(wide[o], some, to[o] + i * form_bytes(to_forms[o]), to_forms[o], round);
    if (prefetcher != nullptr && some == kTick) prefetcher->tick();
  }
}

template <int kOuts>
void gate_grad(const KernelCall& c) {
  constexpr int kArgs = GateGrad<kOuts>::kArgs;
  Form arg_forms[kArgs], out_forms[kOuts] = {c.out_form};
  for (int k = 0; k < kArgs; ++k) arg_forms[k] = c.args[k].form;
  for (int o = 1; o < kOuts; ++o) out_forms[o] = c.more[o - 1].form;
  const auto all_are = [&](Form form) {
    const auto is = [&](Form f) { return f == form; };
    return is(c.round) && std::all_of(arg_forms, arg_forms + kArgs, is) &&
           std::all_of(out_forms, out_forms + kOuts, is);
  };
  const bool native = all_are(Form::kNative), bf16 = all_are(Form::kBF16);
  for (int64_t r = 0; r < c.rows; ++r) {
    const std::byte* args[kArgs];
    std::byte* outs[kOuts] = {c.out + r * c.out_row_step};
    for (int k = 0; k < kArgs; ++k) args[k] = c.args[k].data + r * c.args[k].row_step;
    for (int o = 1; o < kOuts; ++o)
      outs[o] = const_cast<std::byte*>(c.more[o - 1].data) + r * c.more[o - 1].row_step;
    const auto n = static_cast<size_t>(c.cols);
    const auto in_forms = [&](auto lanes) {
      gate_grad_forms<decltype(lanes), kOuts>(args, arg_forms, outs, out_forms, c.round, n,
                                              c.ahead);
    };
    if (native) gate_row<F32Lanes, GateGrad<kOuts>>(args, outs, n, c.ahead);
    else if (bf16) gate_row<BF16Lanes, GateGrad<kOuts>>(args, outs, n, c.ahead);
    else if (c.round == Form::kBF16) in_forms(RoundedLanes<Form::kBF16>());
    else if (c.round == Form::kF16) in_forms(RoundedLanes<Form::kF16>());
    else in_forms(F32Lanes());
  }
}
MapKernel find_gate_grad(int n_outs) {
  return n_outs == 1 ? gate_grad<1> : n_outs == 2 ? gate_grad<2> : gate_grad<3>;
}

}  // namespace stow::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stow::cpu {
HWY_EXPORT(find_gate);
HWY_EXPORT(find_gate_grad);
MapKernel f32_gate_kernel(bool has_factor) {
  return HWY_DYNAMIC_DISPATCH(find_gate)(has_factor);
}
MapKernel f32_gate_grad_kernel(int n_outs) {
  return HWY_DYNAMIC_DISPATCH(find_gate_grad)(n_outs);
}
}  // namespace stow::cpu
#endif  // HWY_ONCE
