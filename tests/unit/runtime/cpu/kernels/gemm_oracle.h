// Matrix products for tests, and a naive implementation of gemm()'s bitwise contract.
// Not fast.
#pragma once

#include <bit>
#include <cmath>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/runtime/cpu/kernels/gemm.h"
#include "stowage/runtime/cpu/kernels/gemm_thread.h"
#include "tests/unit/runtime/cpu/kernels/kernel_data.h"

namespace stow::testing {

/// Extents of a product; dims of a class are outermost first.
struct GemmShape {
  std::vector<int64_t> batch, m, n, k;
};

/// A product with operands laid out by `seed`; the logical values do not depend on it.
struct GemmProblem {
  cpu::GemmSpec spec;
  Buffer a, b, c;

  GemmProblem(const GemmShape& shape, DType ta, DType tb, DType tc, uint64_t seed,
              bool accumulate = false)
      : spec(make_spec(shape, ta, tb, tc, seed, accumulate)),
        a(sizes_[0] * dtype_bytes(ta)), b(sizes_[1] * dtype_bytes(tb)),
        c(sizes_[2] * dtype_bytes(tc)) {
    fill(spec.a, a, &cpu::GemmDim::a_stride, spec.m, spec.k, 1);
    fill(spec.b, b, &cpu::GemmDim::b_stride, spec.k, spec.n, 2);
    fill(spec.c, c, &cpu::GemmDim::c_stride, spec.m, spec.n, 3);
  }

  /// Runs gemm on a workspace of exactly the formula's size, full of NaN, and checks the guards.
  void run(int threads, const cpu::GemmHooks& hooks = {}) {
    Buffer workspace(cpu::gemm_workspace_bytes(spec, threads));
    std::memset(workspace.data(), 0xff, size_t(workspace.bytes()));
    cpu::gemm(spec, spec.a_prologue ? nullptr : a.data(), spec.b_prologue ? nullptr : b.data(),
              c.data(), workspace.data(), threads, hooks);
    EXPECT_TRUE(workspace.guard_intact());
    EXPECT_TRUE(a.guard_intact() && b.guard_intact() && c.guard_intact());
  }

  /// C's elements in logical order.
  std::vector<double> result() const {
    std::vector<double> out;
    for (int64_t o : offsets(&cpu::GemmDim::c_stride, {&spec.batch, &spec.m, &spec.n}))
      out.push_back(read_element(spec.c, c.data(), o));
    return out;
  }

  static std::vector<int64_t> offsets(int64_t cpu::GemmDim::*stride,
                                      std::vector<const std::vector<cpu::GemmDim>*> classes) {
    std::vector<int64_t> out = {0};
    for (const auto* dims : classes)
      for (const cpu::GemmDim& d : *dims) {
        std::vector<int64_t> next;
        for (int64_t o : out)
          for (int64_t i = 0; i < d.extent; ++i) next.push_back(o + i * (d.*stride));
        out = std::move(next);
      }
    return out;
  }

 private:
  cpu::GemmSpec make_spec(const GemmShape& shape, DType ta, DType tb, DType tc, uint64_t seed,
                          bool accumulate) {
    cpu::GemmSpec s{ta, tb, tc, {}, {}, {}, {}, accumulate};
    auto add = [](std::vector<cpu::GemmDim>& dims, const std::vector<int64_t>& extents) {
      for (int64_t e : extents) dims.push_back({e});
    };
    add(s.batch, shape.batch), add(s.m, shape.m), add(s.n, shape.n), add(s.k, shape.k);
    auto lay = [&](int64_t cpu::GemmDim::*stride, std::vector<std::vector<cpu::GemmDim>*> classes,
                   int which) {
      std::vector<int64_t> extents;
      for (auto* dims : classes)
        for (auto& d : *dims) extents.push_back(d.extent);
      const auto strides =
          random_strides(extents, seed ? seed * 3 + uint64_t(which) : 0, &sizes_[which]);
      size_t i = 0;
      for (auto* dims : classes)
        for (auto& d : *dims) d.*stride = strides[i++];
    };
    lay(&cpu::GemmDim::a_stride, {&s.batch, &s.m, &s.k}, 0);
    lay(&cpu::GemmDim::b_stride, {&s.batch, &s.k, &s.n}, 1);
    lay(&cpu::GemmDim::c_stride, {&s.batch, &s.m, &s.n}, 2);
    return s;
  }

  void fill(DType t, Buffer& to, int64_t cpu::GemmDim::*stride,
            const std::vector<cpu::GemmDim>& rows, const std::vector<cpu::GemmDim>& cols,
            uint64_t seed) {
    uint64_t i = 0;
    for (int64_t o : offsets(stride, {&spec.batch, &rows, &cols}))
      write_element(t, to.data(), o, value_at(seed, i++));
  }

  int64_t sizes_[3] = {};
};

/// Returns part 0, 1 or 2 of x written as a sum of three bf16.
inline float bf16_part(float x, int part) {
  const auto nearest = [](float y) {
    return std::bit_cast<float>((std::bit_cast<uint32_t>(y) + 0x8000) & 0xffff0000);
  };
  for (; part > 0; --part) x -= nearest(x);
  return nearest(x);
}

/// Returns a row of A, or the matrix B, as T, row-major. `part`: -1: the elements; else bf16_part()
/// of each.
template <typename T>
std::vector<T> widened(DType t, const void* data, int64_t base, const std::vector<int64_t>& rows,
                       const std::vector<int64_t>& cols, int part = -1) {
  std::vector<T> out;
  out.reserve(rows.size() * cols.size());
  for (int64_t row : rows)
    for (int64_t col : cols) {
      const T x = T(read_element(t, data, base + row + col));
      out.push_back(part < 0 ? x : T(bf16_part(float(x), part)));
    }
  return out;
}

/// Computes sums[j] = fma(a, b[j], sums[j]), by libm or by the machine's instruction, with the same
/// bits.
template <typename T>
void fuse_row(T a, const T* b, T* sums, size_t n) {
  for (size_t j = 0; j < n; ++j) sums[j] = std::fma(a, b[j], sums[j]);
}
#ifdef __x86_64__
inline bool has_fma() { return __builtin_cpu_supports("fma") != 0; }
template <typename T>
__attribute__((target("fma"))) void fuse_row_at_once(T a, const T* b, T* sums, size_t n) {
  for (size_t j = 0; j < n; ++j) sums[j] = std::fma(a, b[j], sums[j]);
}
#else
inline bool has_fma() { return false; }
template <typename T>
void fuse_row_at_once(T a, const T* b, T* sums, size_t n) {
  fuse_row(a, b, sums, n);
}
#endif

/// Computes sums[n] = fma(a[k], b[k, n], sums[n]) for k = first, first + step, … below last.
template <typename T>
void fuse_into(std::vector<T>& sums, const std::vector<T>& a, const std::vector<T>& b, size_t first,
               size_t last, size_t step = 1) {
  const auto row = has_fma() ? fuse_row_at_once<T> : fuse_row<T>;
  const size_t n = sums.size();
  for (size_t k = first; k < last; k += step) row(a[k], b.data() + k * n, sums.data(), n);
}

/// Computes such sums for k = first, first + 2, … and for the k between them, both from 0, and adds
/// their sum to `sums`.
template <typename T>
void add_halves(std::vector<T>& sums, const std::vector<T>& a, const std::vector<T>& b,
                size_t first, size_t last) {
  std::vector<T> even(sums.size()), odd(sums.size());
  fuse_into(even, a, b, first, last, 2);
  fuse_into(odd, a, b, first + 1, last, 2);
  for (size_t j = 0; j < sums.size(); ++j) sums[j] += even[j] + odd[j];
}

/// Returns a row of A times the matrix B in the contract's order of sums, not rounded to C's dtype.
/// `a` and `b` hold one element for each part of a tripled product, in the order of bf16_part().
template <typename T>
std::vector<T> contract_row(cpu::GemmForm form, bool fma, const std::vector<std::vector<T>>& a,
                            const std::vector<std::vector<T>>& b, size_t n_k, size_t n) {
  std::vector<T> total(n);
  if (form == cpu::GemmForm::kTiled) {
    for (size_t k = 0; k < n_k; k += 32) add_halves(total, a[0], b[0], k, std::min(k + 32, n_k));
    return total;
  }
  for (size_t block = 0; block < n_k; block += 256) {
    const size_t end = std::min(block + 256, n_k);
    std::vector<T> sum(n);
    if (form == cpu::GemmForm::kTripled) {
      constexpr size_t kProducts[][2] = {{2, 0}, {1, 0}, {1, 1}, {0, 1}, {0, 0}, {0, 2}};
      for (size_t k = block; k < end; k += 32)
        for (const auto& [of_a, of_b] : kProducts)
          add_halves(sum, a[of_a], b[of_b], k, std::min(k + 32, end));
    } else if (fma) {
      fuse_into(sum, a[0], b[0], block, end);
    } else {
      for (size_t k = block; k < end; ++k)
        for (size_t j = 0; j < n; ++j) sum[j] = T(a[0][k] * b[0][k * n + j]) + sum[j];
    }
    for (size_t j = 0; j < n; ++j) total[j] = block == 0 ? sum[j] : total[j] + sum[j];
  }
  return total;
}

/// Returns the contents of C that the contract requires after gemm(), in logical order. `p` has the
/// contents before. `fma`: true if the running target has fused multiply-add.
inline std::vector<double> gemm_contract(const GemmProblem& p, bool fma) {
  const auto a_batch = p.offsets(&cpu::GemmDim::a_stride, {&p.spec.batch});
  const auto b_batch = p.offsets(&cpu::GemmDim::b_stride, {&p.spec.batch});
  const auto a_m = p.offsets(&cpu::GemmDim::a_stride, {&p.spec.m});
  const auto b_n = p.offsets(&cpu::GemmDim::b_stride, {&p.spec.n});
  const auto a_k = p.offsets(&cpu::GemmDim::a_stride, {&p.spec.k});
  const auto b_k = p.offsets(&cpu::GemmDim::b_stride, {&p.spec.k});
  std::vector<double> c = p.result();
  const cpu::GemmForm form = cpu::gemm_form(p.spec);
  const int first_part = form == cpu::GemmForm::kTripled ? 0 : -1;
  const int last_part = form == cpu::GemmForm::kTripled ? 2 : -1;
  auto rounded = [&](double x) {
    double slot = 0;
    write_element(p.spec.c, &slot, 0, x);
    return read_element(p.spec.c, &slot, 0);
  };
  size_t at = 0;
  const auto run = [&]<typename T>(T) {
    for (size_t batch = 0; batch < a_batch.size(); ++batch) {
      std::vector<std::vector<T>> a, b;
      for (int part = first_part; part <= last_part; ++part)
        b.push_back(widened<T>(p.spec.b, p.b.data(), b_batch[batch], b_k, b_n, part));
      for (int64_t row : a_m) {
        a.clear();
        for (int part = first_part; part <= last_part; ++part)
          a.push_back(widened<T>(p.spec.a, p.a.data(), a_batch[batch], {row}, a_k, part));
        for (const T sum : contract_row(form, fma, a, b, a_k.size(), b_n.size())) {
          double x = rounded(double(sum));
          if (p.spec.accumulate)
            x = p.spec.c == DType::kF64 ? c[at] + x : rounded(double(float(c[at]) + float(x)));
          c[at++] = x;
        }
      }
    }
  };
  p.spec.c == DType::kF64 ? run(double{}) : run(float{});
  return c;
}

}  // namespace stow::testing
