#include "stowage/runtime/cpu/kernels/gemm_small.h"

#include "stowage/runtime/cpu/kernels/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stowage/runtime/cpu/kernels/gemm_small.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace stow::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D1 = hn::FixedTag<float, 1>;

// R elements of C, one row or column after the other: their sums side by side, as each waits for
// itself.
template <int R>
void few_elements(const float* a, const float* b, float* c, int64_t a_step, int64_t b_step,
                  int64_t c_step, const GemmDim& k, bool add) {
  const D1 d;
  hn::Vec<D1> acc[R];
  for (int r = 0; r < R; ++r) acc[r] = hn::Zero(d);
  for (int64_t i = 0; i < k.extent; ++i, a += k.a_stride, b += k.b_stride)
    for (int r = 0; r < R; ++r)
      acc[r] = hn::MulAdd(hn::Set(d, a[r * a_step]), hn::Set(d, b[r * b_step]), acc[r]);
  for (int r = 0; r < R; ++r) {
    float& to = c[r * c_step];
    to = add ? hn::GetLane(hn::Add(hn::Set(d, to), acc[r])) : hn::GetLane(acc[r]);
  }
}

void by_elements(const GemmDim& m, const GemmDim& n, const GemmDim& k, bool add, const float* a,
                 const float* b, float* c) {
  const bool along_m = m.extent >= n.extent;
  const GemmDim &inner = along_m ? m : n, &outer = along_m ? n : m;
  const int64_t a_step = along_m ? m.a_stride : 0, b_step = along_m ? 0 : n.b_stride;
  for (int64_t o = 0; o < outer.extent; ++o) {
    const float *x = a + (along_m ? 0 : o * m.a_stride), *y = b + (along_m ? o * n.b_stride : 0);
    float* to = c + o * outer.c_stride;
    int64_t i = 0;
    for (; i + 4 <= inner.extent; i += 4)
      few_elements<4>(x + i * a_step, y + i * b_step, to + i * inner.c_stride, a_step, b_step,
                      inner.c_stride, k, add);
    for (; i < inner.extent; ++i)
      few_elements<1>(x + i * a_step, y + i * b_step, to + i * inner.c_stride, a_step, b_step,
                      inner.c_stride, k, add);
  }
}

#if HWY_TARGET <= HWY_AVX2
// R rows of C and a vector of its columns, which are adjacent, as those of B are.
template <int R>
void few_rows(const float* a, const float* b, float* c, const GemmDim& m, const GemmDim& k,
              size_t cols, bool add) {
  const hn::ScalableTag<float> d;
  const bool whole = cols == hn::Lanes(d);
  const auto some = hn::FirstN(d, cols);
  hn::Vec<decltype(d)> acc[R];
  for (int r = 0; r < R; ++r) acc[r] = hn::Zero(d);
  for (int64_t i = 0; i < k.extent; ++i, a += k.a_stride, b += k.b_stride) {
    const auto v = whole ? hn::LoadU(d, b) : hn::MaskedLoad(some, d, b);
    for (int r = 0; r < R; ++r) acc[r] = hn::MulAdd(hn::Set(d, a[r * m.a_stride]), v, acc[r]);
  }
  for (int r = 0; r < R; ++r) {
    float* const to = c + r * m.c_stride;
    if (add) acc[r] = hn::Add(whole ? hn::LoadU(d, to) : hn::MaskedLoad(some, d, to), acc[r]);
    if (whole)
      hn::StoreU(acc[r], d, to);
    else
      hn::BlendedStore(acc[r], some, d, to);
  }
}

void by_vectors(const GemmDim& m, const GemmDim& n, const GemmDim& k, bool add, const float* a,
                const float* b, float* c) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<float>()));
  for (int64_t j = 0; j < n.extent; j += lanes) {
    const auto cols = static_cast<size_t>(std::min(lanes, n.extent - j));
    int64_t i = 0;
    for (; i + 4 <= m.extent; i += 4)
      few_rows<4>(a + i * m.a_stride, b + j, c + i * m.c_stride + j, m, k, cols, add);
    for (; i < m.extent; ++i)
      few_rows<1>(a + i * m.a_stride, b + j, c + i * m.c_stride + j, m, k, cols, add);
  }
}
#endif

void run_small(const GemmPlan& p, const float* a, const float* b, float* c) {
  const auto only = [](const GemmDims& dims) { return dims.count > 0 ? dims.dims[0] : GemmDim(); };
  const GemmDim m = only(p.m), n = only(p.n), k = only(p.k);
#if HWY_TARGET <= HWY_AVX2
  if (n.extent > 1 && n.b_stride == 1 && n.c_stride == 1)
    return by_vectors(m, n, k, p.accumulate, a, b, c);
#endif
  by_elements(m, n, k, p.accumulate, a, b, c);
}

}  // namespace stow::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stow::cpu {

HWY_EXPORT(run_small);

bool gemm_is_small(const GemmPlan& p) {
  constexpr int64_t kMostAlone = 256, kMostInVectors = 4096;  // multiply-adds
  if (p.form != GemmForm::kPlain || p.a != DType::kF32 || p.b != DType::kF32 ||
      p.c != DType::kF32 || p.epilogue || p.epilogue_bytes > 0 || p.a_prologue.exists ||
      p.b_prologue.exists ||
      p.batch.extent != 1 || p.m.count > 1 || p.n.count > 1 || p.k.count > 1 || p.k.extent == 0 ||
      p.k.extent > kGemmBlockK)
    return false;
  const bool in_vectors = p.n.count == 1 && p.n.dims[0].b_stride == 1 && p.n.dims[0].c_stride == 1;
  return p.m.extent * p.n.extent * p.k.extent <= (in_vectors ? kMostInVectors : kMostAlone);
}

void gemm_small(const GemmPlan& plan, const float* a, const float* b, float* c) {
  HWY_DYNAMIC_DISPATCH(run_small)(plan, a, b, c);
}

}  // namespace stow::cpu
#endif
