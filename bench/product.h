// A product of the library over memory of its caller, for the benchmarks that time one.
// Not oneDNN's; that is gemm_bench.cpp's.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "stowage/core/dtype.h"
#include "stowage/runtime/cpu/kernels/gemm.h"

namespace stow {

struct ProductCase {
  int64_t batch = 1, m = 1, n = 1, k = 1;
  std::string layout;  // a letter each for A and B: n = rows contiguous as written, t = transposed
  DType t = DType::kF32;
};

struct Aligned {
  explicit Aligned(int64_t bytes)
      : data(std::aligned_alloc(kPage, size_t((bytes + kPage) / kPage * kPage)), &std::free) {
    madvise(data.get(), size_t(bytes), MADV_HUGEPAGE);  // as a device's heap is
  }
  static constexpr int64_t kPage = 2 << 20;
  std::unique_ptr<void, decltype(&std::free)> data;
};

class Product {
 public:
  Product(const ProductCase& c, const void* a, const void* b, void* out, int threads)
      : a_(a), b_(b), c_(out), threads_(threads), workspace_(1) {
    const bool ta = c.layout[0] == 't', tb = c.layout[1] == 't';
    spec_ = {c.t, c.t, c.t, {{c.batch, c.m * c.k, c.k * c.n, c.m * c.n}},
             {{c.m, ta ? 1 : c.k, 0, c.n}}, {{c.n, 0, tb ? c.k : 1, 1}},
             {{c.k, ta ? c.m : 1, tb ? 1 : c.n, 0}}};
    workspace_ = Aligned(cpu::gemm_workspace_bytes(spec_, threads));
  }
  void operator()() { cpu::gemm(spec_, a_, b_, c_, workspace_.data.get(), threads_); }

 private:
  const void *a_, *b_;
  void* c_;
  int threads_;
  cpu::GemmSpec spec_;
  Aligned workspace_;
};

}  // namespace stow
