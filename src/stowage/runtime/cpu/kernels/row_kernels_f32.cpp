#include "stowage/runtime/cpu/kernels/row_kernels.h"
#include "stowage/runtime/cpu/kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stowage/runtime/cpu/kernels/row_kernels_f32.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "stowage/runtime/cpu/kernels/row_extremes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stow::cpu::HWY_NAMESPACE {

struct RowCopy {
  HWY_INLINE VF operator()(DF, VF a) const { return a; }
};
struct RowNeg {
  HWY_INLINE VF operator()(DF, VF a) const { return hn::Neg(a); }
};
struct RowAbs {
  HWY_INLINE VF operator()(DF, VF a) const { return hn::Abs(a); }
};
struct RowSign {
  HWY_INLINE VF operator()(DF d, VF a) const {
    const VF one = hn::CopySign(hn::Set(d, 1.0f), a);
    return hn::IfThenElse(hn::Gt(hn::Abs(a), hn::Zero(d)), one, a);  // ±0 and NaN are their own
  }
};
// Without an instruction for it Highway rounds by way of integers, which have no -0.
HWY_INLINE VF with_sign_of(VF rounded, VF a) {
#if HWY_TARGET <= HWY_AVX2
  (void)a;
  return rounded;
#else
  return hn::CopySign(rounded, a);
#endif
}
struct RowFloor {
  HWY_INLINE VF operator()(DF, VF a) const { return with_sign_of(hn::Floor(a), a); }
};
struct RowCeil {
  HWY_INLINE VF operator()(DF, VF a) const { return with_sign_of(hn::Ceil(a), a); }
};
struct RowRound {
  HWY_INLINE VF operator()(DF, VF a) const { return with_sign_of(hn::Round(a), a); }
};
struct RowAdd {
  HWY_INLINE VF operator()(DF, VF a, VF b) const { return hn::Add(a, b); }
};
struct RowSub {
  HWY_INLINE VF operator()(DF, VF a, VF b) const { return hn::Sub(a, b); }
};
struct RowMul {
  HWY_INLINE VF operator()(DF, VF a, VF b) const { return hn::Mul(a, b); }
};
struct RowDiv {
  HWY_INLINE VF operator()(DF, VF a, VF b) const { return hn::Div(a, b); }
};
struct RowMax {
  HWY_INLINE VF operator()(DF, VF a, VF b) const { return max_f32(a, b); }
};
struct RowMin {
  HWY_INLINE VF operator()(DF, VF a, VF b) const { return min_f32(a, b); }
};

// From floats to another form and back there is nothing between widening and narrowing.
void copy_f32(const KernelCall& c) {
  const bool native = c.out_form == Form::kNative && c.round == Form::kNative;
  const KernelArg& arg = c.args[0];
  if (arg.splat || native == (arg.form == Form::kNative)) return map_f32<RowCopy, 1>(c);
  const int64_t whole = c.cols / int64_t{kTick} * int64_t{kTick};
  const size_t from_size = form_bytes(arg.form), to_size = form_bytes(c.out_form);
  for (int64_t r = 0; r < c.rows; ++r) {
    const std::byte* from = arg.data + r * arg.row_step;
    std::byte* to = c.out + r * c.out_row_step;
    for (int64_t i = 0; i < whole; i += kTick, from += kTick * from_size, to += kTick * to_size) {
      if (native)
        widen_elems(from, arg.form, kTick, reinterpret_cast<float*>(to));
      else
        narrow_elems(reinterpret_cast<const float*>(from), kTick, to, c.out_form, c.round);
      if (c.ahead != nullptr) c.ahead->tick();
    }
  }
  if (whole == c.cols) return;
  KernelCall rest = c;
  rest.cols -= whole;
  rest.out += static_cast<size_t>(whole) * to_size;
  rest.args[0].data += static_cast<size_t>(whole) * from_size;
  map_f32<RowCopy, 1>(rest);
}

MapKernel find_map(OpKind op) {
  if (op == OpKind::kReshape) return copy_f32;
  if (op == OpKind::kNeg) return map_f32<RowNeg, 1>;
  if (op == OpKind::kAbs) return map_f32<RowAbs, 1>;
  if (op == OpKind::kSign) return map_f32<RowSign, 1>;
  if (op == OpKind::kFloor) return map_f32<RowFloor, 1>;
  if (op == OpKind::kCeil) return map_f32<RowCeil, 1>;
  if (op == OpKind::kRound) return map_f32<RowRound, 1>;
  if (op == OpKind::kAdd) return map_f32<RowAdd, 2>;
  if (op == OpKind::kSub) return map_f32<RowSub, 2>;
  if (op == OpKind::kMul) return map_f32<RowMul, 2>;
  if (op == OpKind::kDiv) return map_f32<RowDiv, 2>;
  if (op == OpKind::kMax) return map_f32<RowMax, 2>;
  if (op == OpKind::kMin) return map_f32<RowMin, 2>;
  return nullptr;
}

// A test of floats: bool results, a byte each.
template <class Op, int N>
void test_f32(const KernelCall& c) {
  const DF d;
  const DI32 di;
  const DU8 d8;
  const Op op;
  const size_t lanes = hn::Lanes(d), n = static_cast<size_t>(c.cols);
  HWY_ALIGN float splats[2][kTick];
  HWY_ALIGN std::byte pad[2][kMaxLanes * sizeof(float)] = {};
  HWY_ALIGN uint8_t pad_out[kMaxLanes];
  for (int64_t r = 0; r < c.rows; ++r) {
    Row rows[2];
    for (int k = 0; k < N; ++k) rows[k] = begin_row(d, c.args[k], r, splats[k]);
    if (N == 1) rows[1] = rows[0];
    auto* out = reinterpret_cast<uint8_t*>(c.out + r * c.out_row_step);
    for (size_t i = 0; i < n; i += lanes) {
      const bool whole = i + lanes <= n;
      VF v[2];
      for (int k = 0; k < N; ++k) {
        const std::byte* data = rows[k].data;
        size_t at = i & rows[k].mask;
        if (!whole && rows[k].mask != 0) {
          const size_t bytes = form_bytes(rows[k].form);
          std::memcpy(pad[k], data + i * bytes, (n - i) * bytes);
          data = pad[k];
          at = 0;
        }
        v[k] = load_form(d, data, at, rows[k].form);
      }
      MaskF mask;
      if constexpr (N == 1)
        mask = op(d, v[0]);
      else
        mask = op(d, v[0], v[1]);
      const auto bits = hn::BitCast(di, hn::IfThenElseZero(mask, hn::BitCast(d, hn::Set(di, 1))));
      const auto bytes = hn::DemoteTo(d8, bits);
      if (HWY_LIKELY(whole)) {
        hn::StoreU(bytes, d8, out + i);
      } else {
        hn::StoreU(bytes, d8, pad_out);
        std::memcpy(out + i, pad_out, n - i);
      }
    }
  }
}
struct TestEq {
  HWY_INLINE MaskF operator()(DF, VF a, VF b) const { return hn::Eq(a, b); }
};
struct TestNe {  // Highway's own Ne is false for NaN on x86
  HWY_INLINE MaskF operator()(DF, VF a, VF b) const { return hn::Not(hn::Eq(a, b)); }
};
struct TestLt {
  HWY_INLINE MaskF operator()(DF, VF a, VF b) const { return hn::Lt(a, b); }
};
struct TestLe {
  HWY_INLINE MaskF operator()(DF, VF a, VF b) const { return hn::Le(a, b); }
};
struct TestGt {
  HWY_INLINE MaskF operator()(DF, VF a, VF b) const { return hn::Gt(a, b); }
};
struct TestGe {
  HWY_INLINE MaskF operator()(DF, VF a, VF b) const { return hn::Ge(a, b); }
};
struct TestFinite {
  HWY_INLINE MaskF operator()(DF, VF a) const { return hn::IsFinite(a); }
};
struct TestNonzero {
  HWY_INLINE MaskF operator()(DF d, VF a) const { return hn::Not(hn::Eq(a, hn::Zero(d))); }
};

MapKernel find_test(OpKind op) {
  if (op == OpKind::kEq) return test_f32<TestEq, 2>;
  if (op == OpKind::kNe) return test_f32<TestNe, 2>;
  if (op == OpKind::kLt) return test_f32<TestLt, 2>;
  if (op == OpKind::kLe) return test_f32<TestLe, 2>;
  if (op == OpKind::kGt) return test_f32<TestGt, 2>;
  if (op == OpKind::kGe) return test_f32<TestGe, 2>;
  if (op == OpKind::kIsFinite) return test_f32<TestFinite, 1>;
  if (op == OpKind::kConvert) return test_f32<TestNonzero, 1>;
  return nullptr;
}

// Bits are moved as they are, so i32 and u32 go this way too.
void select32(const KernelCall& c) {
  const DF d;
  const DI32 di;
  const DU8 d8;
  const size_t lanes = hn::Lanes(d), n = static_cast<size_t>(c.cols);
  HWY_ALIGN float splats[2][kTick];
  HWY_ALIGN uint8_t pad8[kMaxLanes] = {};
  HWY_ALIGN std::byte pad[kMaxLanes * sizeof(float)] = {};
  for (int64_t r = 0; r < c.rows; ++r) {
    const auto* condition =
        reinterpret_cast<const uint8_t*>(c.args[0].data) + r * c.args[0].row_step;
    if (c.args[0].splat) std::memset(pad8, *condition, sizeof(pad8));
    Row rows[2];
    for (int k = 0; k < 2; ++k) rows[k] = begin_row(d, c.args[k + 1], r, splats[k]);
    std::byte* out = c.out + r * c.out_row_step;
    for (size_t i = 0; i < n; i += lanes) {
      const bool whole = i + lanes <= n;
      const uint8_t* bytes = condition + i;
      if (c.args[0].splat) {
        bytes = pad8;
      } else if (!whole) {
        std::memcpy(pad8, bytes, n - i);
        bytes = pad8;
      }
      const auto wide = hn::PromoteTo(di, hn::LoadU(d8, bytes));
      const auto mask = hn::RebindMask(d, hn::Ne(wide, hn::Zero(di)));
      VF v[2];
      for (int k = 0; k < 2; ++k) {
        const std::byte* data = rows[k].data;
        size_t at = i & rows[k].mask;
        if (!whole && rows[k].mask != 0) {
          const size_t size = form_bytes(rows[k].form);
          std::memcpy(pad, data + i * size, (n - i) * size);
          data = pad;
          at = 0;
        }
        v[k] = load_form(d, data, at, rows[k].form);
      }
      const VF y = hn::IfThenElse(mask, v[0], v[1]);
      if (HWY_LIKELY(whole)) {
        store_form(d, y, out, i, c.out_form, c.round);
      } else {
        const size_t size = form_bytes(c.out_form);
        store_form(d, y, pad, 0, c.out_form, c.round);
        std::memcpy(out + i * size, pad, (n - i) * size);
      }
    }
  }
}
MapKernel find_select() {
  return select32;
}

}  // namespace stow::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stow::cpu {
HWY_EXPORT(find_map);
HWY_EXPORT(find_test);
HWY_EXPORT(find_select);
MapKernel f32_map_kernel(OpKind op) {
  return HWY_DYNAMIC_DISPATCH(find_map)(op);
}
MapKernel f32_test_kernel(OpKind op) {
  return HWY_DYNAMIC_DISPATCH(find_test)(op);
}
MapKernel select32_kernel() {
  return HWY_DYNAMIC_DISPATCH(find_select)();
}
}  // namespace stow::cpu
#endif  // HWY_ONCE
