// GFLOP/s of gemm() and of oneDNN's matmul, alternating in short turns of one run.
#include <benchmark/benchmark.h>
#include <fmt/core.h>
#include <omp.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "measure.h"
#include "product.h"
#include "stowage/core/half.h"

namespace stow {
namespace {

Aligned random_buffer(DType t, int64_t n) {
  Aligned out(n * dtype_bytes(t));
  uint32_t x = 1;
  for (int64_t i = 0; i < n; ++i) {
    x = x * 1664525u + 1013904223u;
    const float value = float(int32_t(x)) * 0x1p-31f;
    if (t == DType::kF32) static_cast<float*>(out.data.get())[i] = value;
    else narrow(value, static_cast<Bf16*>(out.data.get())[i]);
  }
  return out;
}

class OneDnn {
 public:
  OneDnn(const ProductCase& c, void* a, void* b, void* out)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    using M = dnnl::memory;
    const auto type = c.t == DType::kF32 ? M::data_type::f32 : M::data_type::bf16;
    const bool ta = c.layout[0] == 't', tb = c.layout[1] == 't';
    const M::desc da({c.batch, c.m, c.k}, type, ta ? M::format_tag::acb : M::format_tag::abc);
    const M::desc db({c.batch, c.k, c.n}, type, tb ? M::format_tag::acb : M::format_tag::abc);
    const M::desc dc({c.batch, c.m, c.n}, type, M::format_tag::abc);
    dnnl::matmul::primitive_desc pd(dnnl::matmul::desc(da, db, dc), engine_);
    name = pd.impl_info_str();
    matmul_ = dnnl::matmul(pd);
    args_ = {{DNNL_ARG_SRC, M(da, engine_, a)}, {DNNL_ARG_WEIGHTS, M(db, engine_, b)},
             {DNNL_ARG_DST, M(dc, engine_, out)}};
  }
  void operator()() {
    matmul_.execute(stream_, args_);
    stream_.wait();
  }
  std::string name;

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::matmul matmul_;
  std::unordered_map<int, dnnl::memory> args_;
};

void compare(benchmark::State& state, const ProductCase& c, int threads) {
  Aligned a = random_buffer(c.t, c.batch * c.m * c.k), b = random_buffer(c.t, c.batch * c.k * c.n);
  Aligned out(c.batch * c.m * c.n * dtype_bytes(c.t));
  Product ours(c, a.data.get(), b.data.get(), out.data.get(), threads);
  omp_set_num_threads(threads);
  std::optional<OneDnn> peer;
  try {
    peer.emplace(c, a.data.get(), b.data.get(), out.data.get());
  } catch (const dnnl::error& e) {
    return state.SkipWithError(fmt::format("oneDNN: {}", e.message).c_str());
  }
  const auto [ours_s, theirs_s] = best_of_turns(state, threads, ours, *peer);
  const double flops = 2.0 * double(c.batch * c.m * c.n) * double(c.k);
  state.counters["GFLOP/s"] = 1e-9 * flops / ours_s;
  state.counters["oneDNN"] = 1e-9 * flops / theirs_s;
  state.counters["of_oneDNN"] = theirs_s / ours_s;
  state.SetLabel(peer->name);
}

std::vector<ProductCase> table() {
  std::vector<ProductCase> cases;
  for (const char* layout : {"nn", "nt", "tn"})
    for (const auto& [m, n, k] : std::vector<std::array<int64_t, 3>>{
             {2048, 768, 768}, {2048, 2048, 768}, {1024, 65536, 512}, {1024, 512, 65536},
             {512, 512, 512}, {4096, 256, 256}, {4096, 768, 256}})
      cases.push_back({1, m, n, k, layout});
  for (const char* layout : {"nn", "nt"})
    for (const auto& [m, n, k] : std::vector<std::array<int64_t, 3>>{{1, 4096, 4096},
                                                                     {4096, 1, 4096},
                                                                     {2, 4096, 4096},
                                                                     {4, 4096, 4096},
                                                                     {8, 4096, 4096},
                                                                     {12, 4096, 4096},
                                                                     {16, 4096, 4096},
                                                                     {1024, 1024, 1},
                                                                     {64, 64, 64},
                                                                     {128, 128, 128},
                                                                     {256, 256, 256}})
      cases.push_back({1, m, n, k, layout});
  for (const char* layout : {"nn", "nt"})
    for (const auto& [b, m, n, k] : std::vector<std::array<int64_t, 4>>{{512, 64, 64, 64},
                                                                        {16, 64, 64, 64},
                                                                        {64, 256, 256, 64},
                                                                        {2048, 16, 16, 16},
                                                                        {64, 16, 16, 16},
                                                                        {64, 1, 512, 64}})
      cases.push_back({b, m, n, k, layout});
  for (const auto& [m, n, k] :
       std::vector<std::array<int64_t, 3>>{{2048, 768, 768}, {1024, 512, 4096}})
    cases.push_back({1, m, n, k, "nn", DType::kBF16});
  return cases;
}

constexpr const char* kUsage =
    "usage: gemm_bench [THREADS [M N K LAYOUT DTYPE [BATCH]]] [--benchmark_…]\n"
    "a table of shapes or one, beside oneDNN's matmul; LAYOUT: of A and B, nn, nt, tn or tt; DTYPE: f32 or bf16\n";

void add(Arguments arguments) {
  constexpr int64_t kMost = 1 << 20;
  const int threads =
      arguments.left() ? arguments.number("THREADS", 1, 1024) : omp_get_max_threads();
  std::vector<ProductCase> cases;
  if (arguments.left()) {
    ProductCase& one = cases.emplace_back();
    one.m = arguments.number("M", int64_t{1}, kMost);
    one.n = arguments.number("N", int64_t{1}, kMost);
    one.k = arguments.number("K", int64_t{1}, kMost);
    one.layout = arguments.word("LAYOUT", {"nn", "nt", "tn", "tt"});
    if (arguments.word("DTYPE", {"f32", "bf16"}) == "bf16") one.t = DType::kBF16;
    if (arguments.left()) one.batch = arguments.number("BATCH", int64_t{1}, kMost);
    arguments.end();
  } else {
    cases = table();
  }
  constexpr int kTurns = 15;
  for (const ProductCase& c : cases)
    benchmark::RegisterBenchmark(fmt::format("{}/{}/{}x{}x{}x{}/threads:{}", dtype_name(c.t),
                                             c.layout, c.batch, c.m, c.n, c.k, threads)
                                     .c_str(),
                                 [=](benchmark::State& state) { compare(state, c, threads); })
        ->UseManualTime()
        ->Iterations(kTurns);
}

}  // namespace
}  // namespace stow

// ONEDNN_MAX_CPU_ISA=AVX2 holds oneDNN as STOW_ISA=avx2 holds us.
int main(int argc, char** argv) {
  return stow::run_kernel_benchmarks(argc, argv, stow::kUsage, stow::add);
}
