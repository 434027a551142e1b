// GFLOP/s of gemm() and of oneDNN's matmul, alternating in one run.
#include <benchmark/benchmark.h>
#include <fmt/core.h>
#include <omp.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "arguments.h"
#include "hold.h"
#include "stowage/runtime/cpu/kernels/gemm.h"
#include "stowage/runtime/cpu/kernels/half.h"

namespace stow {
namespace {

struct Case {
  int64_t batch, m, n, k;
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

// One thread is timed by its processor time, which a busy neighbour disturbs less.
double now(int threads) {
  timespec t;
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

template <typename F>
double seconds(F& f, int repeats, int threads) {
  const double start = now(threads);
  for (int i = 0; i < repeats; ++i) f();
  return (now(threads) - start) / repeats;
}

// The two alternate in short turns, so that a busy neighbour meets both; the best turn counts.
void compare(const Case& c, int threads) {
  Aligned a = random_buffer(c.t, c.batch * c.m * c.k), b = random_buffer(c.t, c.batch * c.k * c.n);
  Aligned out(c.batch * c.m * c.n * dtype_bytes(c.t));
  Ours ours(c, a.data.get(), b.data.get(), out.data.get(), threads);
  omp_set_num_threads(threads);
  OneDnn theirs(c, a.data.get(), b.data.get(), out.data.get());
  const double flops = 2.0 * double(c.batch * c.m * c.n) * double(c.k);
  ours(), theirs();
  const int repeats = int(std::max(1.0, 0.02 / std::max(seconds(ours, 1, threads), 1e-7)));
  double best_ours = 1e30, best_theirs = 1e30;
  for (int turn = 0; turn < 15; ++turn) {
    best_ours = std::min(best_ours, seconds(ours, repeats, threads));
    best_theirs = std::min(best_theirs, seconds(theirs, repeats, threads));
  }
  fmt::print("{:>4} {} {:>4} x {:>5} x {:>5} x {:>5} {:>4}: {:7.1f} {:7.1f} GFLOP/s  {:5.2f}  {}\n",
             threads, c.layout, c.batch, c.m, c.n, c.k, dtype_name(c.t), flops / best_ours * 1e-9,
             flops / best_theirs * 1e-9, best_theirs / best_ours, theirs.name);
  std::fflush(stdout);
}

void run_ours(benchmark::State& state) {
  const Case c{1, state.range(0), state.range(1), state.range(2), "nn"};
  Aligned a = random_buffer(c.t, c.m * c.k), b = random_buffer(c.t, c.k * c.n);
  Aligned out(c.m * c.n * 4);
  Ours ours(c, a.data.get(), b.data.get(), out.data.get(), omp_get_max_threads());
  for (auto _ : state) ours();
  state.counters["GFLOP/s"] = benchmark::Counter(
      2e-9 * double(c.m) * double(c.n) * double(c.k), benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(run_ours)->Args({2048, 768, 768})->Args({512, 512, 512})->UseRealTime();

constexpr const char* kUsage =
    "usage: gemm_bench [THREADS]                              a table of shapes, f32 and bf16\n"
    "       gemm_bench THREADS M N K LAYOUT DTYPE [BATCH]     one shape\n"
    "       gemm_bench --benchmark_…                          Google Benchmark's flags: ours alone\n"
    "LAYOUT: of A and B, nn, nt, tn or tt; DTYPE: f32 or bf16\n";

void compare_table(int threads) {
  for (const char* layout : {"nn", "nt", "tn"})
    for (const auto& [m, n, k] : std::vector<std::array<int64_t, 3>>{
             {2048, 768, 768}, {2048, 2048, 768}, {1024, 65536, 512}, {1024, 512, 65536},
             {512, 512, 512}, {4096, 256, 256}, {4096, 768, 256}})
      compare({1, m, n, k, layout}, threads);
  for (const char* layout : {"nn", "nt"})
    for (const auto& [m, n, k] : std::vector<std::array<int64_t, 3>>{
             {1, 4096, 4096}, {4096, 1, 4096}, {8, 4096, 4096}, {1024, 1024, 1}, {64, 64, 64},
             {128, 128, 128}, {256, 256, 256}})
      compare({1, m, n, k, layout}, threads);
  for (const char* layout : {"nn", "nt"})
    for (const auto& [b, m, n, k] : std::vector<std::array<int64_t, 4>>{
             {512, 64, 64, 64}, {16, 64, 64, 64}, {64, 256, 256, 64}, {2048, 16, 16, 16}, {64, 16, 16, 16}, {64, 1, 512, 64}})
      compare({b, m, n, k, layout}, threads);
  for (const auto& [m, n, k] : std::vector<std::array<int64_t, 3>>{{2048, 768, 768}, {1024, 512, 4096}})
    compare({1, m, n, k, "nn", DType::kBF16}, threads);
}

void run(Arguments arguments) {
  constexpr int64_t kMost = 1 << 20;
  const int threads = arguments.left() ? arguments.number("THREADS", 1, 1024) : omp_get_max_threads();
  std::optional<Case> one;
  if (arguments.left()) {
    one.emplace(Case{1, 0, 0, 0, {}});
    one->m = arguments.number("M", int64_t{1}, kMost);
    one->n = arguments.number("N", int64_t{1}, kMost);
    one->k = arguments.number("K", int64_t{1}, kMost);
    one->layout = arguments.word("LAYOUT", {"nn", "nt", "tn", "tt"});
    if (arguments.word("DTYPE", {"f32", "bf16"}) == "bf16") one->t = DType::kBF16;
    if (arguments.left()) one->batch = arguments.number("BATCH", int64_t{1}, kMost);
    arguments.end();
  }
  fmt::print("threads layout batch x M x N x K: ours, oneDNN, ratio\n");
  if (one) compare(*one, threads);
  else compare_table(threads);
}

}  // namespace
}  // namespace stow

int main(int argc, char** argv) {
  stow::hold_instruction_set();  // to STOW_ISA=avx2, as ONEDNN_MAX_CPU_ISA=AVX2 holds oneDNN
  const bool is_ours_alone = argc > 1 && std::string_view(argv[1]).starts_with("--benchmark_");
  if (is_ours_alone) benchmark::Initialize(&argc, argv);
  return stow::run_bench_program(argc, argv, stow::kUsage, [&](const stow::Arguments& arguments) {
    if (!is_ours_alone) return stow::run(arguments);
    arguments.end();
    benchmark::RunSpecifiedBenchmarks();
  });
}
