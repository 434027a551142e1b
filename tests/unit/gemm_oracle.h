// A product in memory for tests, and two naive judges of gemm(): its contract on bits, spelled out
// element by element, and the sum in f64.
// Not fast.
#pragma once

#include <bit>
#include <cmath>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/runtime/cpu/kernels/gemm.h"
#include "stowage/runtime/cpu/kernels/gemm_thread.h"
#include "tests/unit/kernel_data.h"

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
    cpu::gemm(spec, spec.a_prologue ? nullptr : a.data(), spec.b_prologue ? nullptr : b.data(), c.data(),
              workspace.data(), threads, hooks);
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

/// Part 0, 1 or 2 of x as a sum of three bf16.
inline float bf16_part(float x, int part) {
  const auto nearest = [](float y) {
    return std::bit_cast<float>((std::bit_cast<uint32_t>(y) + 0x8000) & 0xffff0000);
  };
  for (; part > 0; --part) x -= nearest(x);
  return nearest(x);
}

/// What the contract says C holds after gemm(), in logical order, given C before.
/// `fma`: whether the running target fuses.
inline std::vector<double> gemm_contract(const GemmProblem& p, bool fma) {
  const auto a_batch = p.offsets(&cpu::GemmDim::a_stride, {&p.spec.batch});
  const auto b_batch = p.offsets(&cpu::GemmDim::b_stride, {&p.spec.batch});
  const auto a_m = p.offsets(&cpu::GemmDim::a_stride, {&p.spec.m});
  const auto b_n = p.offsets(&cpu::GemmDim::b_stride, {&p.spec.n});
  const auto a_k = p.offsets(&cpu::GemmDim::a_stride, {&p.spec.k});
  const auto b_k = p.offsets(&cpu::GemmDim::b_stride, {&p.spec.k});
  std::vector<double> c = p.result();
  const cpu::GemmForm form = cpu::gemm_form(p.spec);
  const bool tiles = form == cpu::GemmForm::kTiled, triples = form == cpu::GemmForm::kTripled;
  auto product = [&]<typename T>(T, int64_t ao, int64_t bo) -> double {
    T total = 0;
    for (size_t k = 0; tiles && k < a_k.size(); k += 32) {
      T halves[2] = {0, 0};
      for (size_t i = k; i < std::min(k + 32, a_k.size()); ++i)
        halves[i % 2] = std::fma(T(read_element(p.spec.a, p.a.data(), ao + a_k[i])),
                                 T(read_element(p.spec.b, p.b.data(), bo + b_k[i])), halves[i % 2]);
      total += halves[0] + halves[1];
    }
    if (tiles) return double(total);
    for (size_t block = 0; triples && block < a_k.size(); block += 256) {
      constexpr int kProducts[][2] = {{2, 0}, {1, 0}, {1, 1}, {0, 1}, {0, 0}, {0, 2}};
      const size_t end = std::min(block + 256, a_k.size());
      T sum = 0;
      for (size_t k = block; k < end; k += 32)
        for (const auto& [of_a, of_b] : kProducts) {
          T halves[2] = {0, 0};
          for (size_t i = k; i < std::min(k + 32, end); ++i)
            halves[i % 2] =
                std::fma(T(bf16_part(float(read_element(p.spec.a, p.a.data(), ao + a_k[i])), of_a)),
                         T(bf16_part(float(read_element(p.spec.b, p.b.data(), bo + b_k[i])), of_b)),
                         halves[i % 2]);
          sum += halves[0] + halves[1];
        }
      total = block == 0 ? sum : total + sum;
    }
    if (triples) return double(total);
    for (size_t k = 0; k < a_k.size(); k += 256) {
      T sum = 0;
      for (size_t i = k; i < std::min(k + 256, a_k.size()); ++i) {
        const T x = T(read_element(p.spec.a, p.a.data(), ao + a_k[i]));
        const T y = T(read_element(p.spec.b, p.b.data(), bo + b_k[i]));
        sum = fma ? std::fma(x, y, sum) : T(x * y) + sum;
      }
      total = k == 0 ? sum : total + sum;
    }
    return double(total);
  };
  auto rounded = [&](double x) {
    double slot = 0;
    write_element(p.spec.c, &slot, 0, x);
    return read_element(p.spec.c, &slot, 0);
  };
  size_t at = 0;
  for (size_t batch = 0; batch < a_batch.size(); ++batch)
    for (int64_t am : a_m)
      for (int64_t bn : b_n) {
        const int64_t ao = a_batch[batch] + am, bo = b_batch[batch] + bn;
        double x = rounded(p.spec.c == DType::kF64 ? product(double{}, ao, bo)
                                                   : product(float{}, ao, bo));
        if (p.spec.accumulate)
          x = p.spec.c == DType::kF64 ? c[at] + x : rounded(double(float(c[at]) + float(x)));
        c[at++] = x;
      }
  return c;
}

}  // namespace stow::testing
