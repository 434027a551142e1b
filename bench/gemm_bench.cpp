// GFLOP/s of gemm() and of oneDNN's matmul, alternating in short turns of one run.
#include <benchmark/benchmark.h>
#include <fmt/core.h>
#include <omp.h>
#include <sys/mman.h>

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
#include "stowage/runtime/cpu/kernels/gemm.h"
#include "stowage/runtime/cpu/kernels/half.h"

namespace stow {
namespace {

struct Case {
  int64_t batch = 1, m = 1, n = 1, k = 1;
  std::string layout;  // of A and B: n = rows contiguous as written, t = transposed
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

Aligned random_buffer(DType t, int64_t n) {
  Aligned out(n * dtype_bytes(t));
  uint32_t x = 1;
  for (int64_t i = 0; i < n; ++i) {
    x = x * 1664525u + 1013904223u;
    const float value = float(int32_t(x)) * 0x1p-31f;
    if (t == DType::kF32) static_cast<float*>(out.data.get())[i] = value;
    else cpu::narrow(value, static_cast<cpu::Bf16*>(out.data.get())[i]);
  }
  return out;
}

class Ours {
 public:
  Ours(const Case& c, const void* a, const void* b, void* out, int threads)
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

class OneDnn {
 public:
  OneDnn(const Case& c, void* a, void* b, void* out) : engine_(dnnl::engine::kind::cpu, 0),
                                                       stream_(engine_) {
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

// The two alternate in short turns, so that a busy neighbour meets both; the best turn counts.
void compare(benchmark::State& state, const Case& c, int threads) {
  Aligned a = random_buffer(c.t, c.batch * c.m * c.k), b = random_buffer(c.t, c.batch * c.k * c.n);
  Aligned out(c.batch * c.m * c.n * dtype_bytes(c.t));
  Ours ours(c, a.data.get(), b.data.get(), out.data.get(), threads);
  omp_set_num_threads(threads);
  std::optional<OneDnn> peer;
  try {
    peer.emplace(c, a.data.get(), b.data.get(), out.data.get());
  } catch (const dnnl::error& e) {
    return state.SkipWithError(fmt::format("oneDNN: {}", e.message).c_str());
  }
  OneDnn& theirs = *peer;
  ours(), theirs();
  const int calls = calls_in_a_turn(ours, threads);
  double best_ours = 1e30, best_theirs = 1e30;
  for (auto _ : state) {
    const double s = seconds_of(ours, calls, threads);
    best_ours = std::min(best_ours, s);
    best_theirs = std::min(best_theirs, seconds_of(theirs, calls, threads));
    state.SetIterationTime(s);
  }
  const double flops = 2.0 * double(c.batch * c.m * c.n) * double(c.k);
  state.counters["GFLOP/s"] = 1e-9 * flops / best_ours;
  state.counters["oneDNN"] = 1e-9 * flops / best_theirs;
  state.counters["of_oneDNN"] = best_theirs / best_ours;
  state.SetLabel(theirs.name);
}

std::vector<Case> table() {
  std::vector<Case> cases;
  for (const char* layout : {"nn", "nt", "tn"})
    for (const auto& [m, n, k] : std::vector<std::array<int64_t, 3>>{
             {2048, 768, 768}, {2048, 2048, 768}, {1024, 65536, 512}, {1024, 512, 65536},
             {512, 512, 512}, {4096, 256, 256}, {4096, 768, 256}})
      cases.push_back({1, m, n, k, layout});
  for (const char* layout : {"nn", "nt"})
    for (const auto& [m, n, k] : std::vector<std::array<int64_t, 3>>{
             {1, 4096, 4096}, {4096, 1, 4096}, {2, 4096, 4096}, {4, 4096, 4096}, {8, 4096, 4096},
             {12, 4096, 4096}, {16, 4096, 4096}, {1024, 1024, 1}, {64, 64, 64}, {128, 128, 128}, {256, 256, 256}})
      cases.push_back({1, m, n, k, layout});
  for (const char* layout : {"nn", "nt"})
    for (const auto& [b, m, n, k] : std::vector<std::array<int64_t, 4>>{
             {512, 64, 64, 64}, {16, 64, 64, 64}, {64, 256, 256, 64}, {2048, 16, 16, 16}, {64, 16, 16, 16},
             {64, 1, 512, 64}})
      cases.push_back({b, m, n, k, layout});
  for (const auto& [m, n, k] : std::vector<std::array<int64_t, 3>>{{2048, 768, 768}, {1024, 512, 4096}})
    cases.push_back({1, m, n, k, "nn", DType::kBF16});
  return cases;
}

constexpr const char* kUsage =
    "usage: gemm_bench [THREADS [M N K LAYOUT DTYPE [BATCH]]] [--benchmark_…]\n"
    "a table of shapes or one, beside oneDNN's matmul; LAYOUT: of A and B, nn, nt, tn or tt; DTYPE: f32 or bf16\n";

void add(Arguments arguments) {
  constexpr int64_t kMost = 1 << 20;
  const int threads = arguments.left() ? arguments.number("THREADS", 1, 1024) : omp_get_max_threads();
  std::vector<Case> cases;
  if (arguments.left()) {
    Case& one = cases.emplace_back();
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
  for (const Case& c : cases)
    benchmark::RegisterBenchmark(
        fmt::format("{}/{}/{}x{}x{}x{}/threads:{}", dtype_name(c.t), c.layout, c.batch, c.m, c.n, c.k, threads).c_str(),
        [=](benchmark::State& state) { compare(state, c, threads); })
        ->UseManualTime()
        ->Iterations(kTurns);
}

}  // namespace
}  // namespace stow

// ONEDNN_MAX_CPU_ISA=AVX2 holds oneDNN as STOW_ISA=avx2 holds us.
int main(int argc, char** argv) { return stow::run_kernel_benchmarks(argc, argv, stow::kUsage, stow::add); }
