// Times of attention forward and backward.
// bench/attention_peer.py prints the same for PyTorch; `bench tables` runs them turn about.
#include <fmt/core.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <string_view>
#include <vector>

#include "arguments.h"
#include "hold.h"
#include "stowage/runtime/cpu/kernels/attention.h"
#include "stowage/runtime/cpu/kernels/half.h"

namespace stow {
namespace {

struct Case {
  int64_t batch, heads, kv_heads, q_len, kv_len, dim;
  bool causal;
};

// One thread is timed by its processor time, which a busy neighbour disturbs less.
double now(int threads) {
  timespec t;
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

template <typename F>
double best_seconds(int threads, F f) {
  double best = 1e30;
  for (int turn = 0; turn < 12; ++turn) {
    const double start = now(threads);
    f();
    best = std::min(best, now(threads) - start);
  }
  return best;
}

template <typename T>
std::vector<T> random_values(int64_t n) {
  std::vector<T> out(static_cast<size_t>(n));
  uint32_t x = 1;
  for (T& value : out)
    cpu::narrow(float(int32_t(x = x * 1664525u + 1013904223u)) * 0x1p-31f, value);
  return out;
}

template <typename T>
void measure(const Case& c, int threads, DType dtype) {
  auto strides = [&](int64_t len, int64_t heads) {
    return std::array<int64_t, 4>{len * heads * c.dim, heads * c.dim, c.dim, 1};
  };
  const auto sq = strides(c.q_len, c.heads), skv = strides(c.kv_len, c.kv_heads);
  const cpu::AttentionSpec spec{dtype, c.batch, c.heads, c.kv_heads, c.q_len, c.kv_len, c.dim,
                                float(1 / std::sqrt(double(c.dim))), c.causal,
                                sq, skv, skv, sq, sq, sq, skv, skv,
                                c.causal ? c.kv_len - c.q_len : 0};
  const int64_t nq = c.batch * sq[0], nkv = c.batch * skv[0];
  const auto q = random_values<T>(nq), k = random_values<T>(nkv), v = random_values<T>(nkv);
  const auto d_out = random_values<T>(nq);
  std::vector<T> out(q.size()), dq(q.size()), dk(k.size()), dv(k.size());
  std::vector<float> lse(size_t(c.batch * c.heads * c.q_len));
  const int64_t bytes = std::max(cpu::attention_forward_workspace_bytes(spec, threads),
                                 cpu::attention_backward_workspace_bytes(spec, threads));
  void* workspace = std::aligned_alloc(64, size_t(bytes));
  const double forward = best_seconds(threads, [&] {
    cpu::attention_forward(spec, q.data(), k.data(), v.data(), out.data(), lse.data(), workspace,
                           threads);
  });
  double backward = 0;
  if (c.q_len > 1)
    backward = best_seconds(threads, [&] {
      cpu::attention_backward(spec, q.data(), k.data(), v.data(), out.data(), lse.data(),
                              d_out.data(), dq.data(), dk.data(), dv.data(), workspace, threads);
    });
  std::free(workspace);
  const double flops = 4.0 * double(c.batch * c.heads * c.q_len) * double(c.kv_len * c.dim) *
                       (c.causal && c.q_len > 1 ? 0.5 : 1.0);
  fmt::print("{} {} B{} H{}/{} T{} S{} D{} {:6}: forward {:8.3f} ms {:6.1f} GFLOP/s", dtype_name(dtype), threads,
             c.batch, c.heads, c.kv_heads, c.q_len, c.kv_len, c.dim, c.causal ? "causal" : "full",
             forward * 1e3, flops / forward * 1e-9);
  if (backward > 0)
    fmt::print(", backward {:8.3f} ms {:6.1f} GFLOP/s", backward * 1e3,
               2.5 * flops / backward * 1e-9);
  fmt::print(", workspace {} KiB\n", bytes >> 10);
}

void measure(const Case& c, int threads, std::string_view dtype) {
  if (dtype == "bf16") return measure<cpu::Bf16>(c, threads, DType::kBF16);
  measure<float>(c, threads, DType::kF32);
}

constexpr const char* kUsage =
    "usage: attention_bench [THREADS [DTYPE]]                             a table of shapes\n"
    "       attention_bench THREADS B H G T S D causal|full [DTYPE]      one shape\n"
    "B examples, H heads of G key heads, T queries, S keys, heads of D; DTYPE: f32 or bf16\n";

void run(Arguments arguments) {
  constexpr int64_t kMost = 1 << 20;
  const auto size = [&](const char* what) { return arguments.number(what, int64_t{1}, kMost); };
  const auto dtype = [&] { return arguments.left() ? arguments.word("DTYPE", {"f32", "bf16"}) : "f32"; };
  const int threads = arguments.left() ? arguments.number("THREADS", 1, 1024) : omp_get_max_threads();
  std::vector<Case> cases = {{4, 12, 12, 512, 512, 64, true},   {2, 12, 12, 1024, 1024, 64, true},
                             {1, 12, 12, 2048, 2048, 64, true}, {1, 12, 12, 2048, 2048, 64, false},
                             {1, 4, 4, 4096, 4096, 64, true},   {1, 2, 2, 8192, 8192, 64, true},
                             {1, 8, 2, 1024, 1024, 64, true},   {1, 16, 16, 1024, 1024, 128, true},
                             {16, 8, 8, 128, 128, 32, true},    {1, 12, 12, 1, 2048, 64, true},
                             {1, 32, 8, 1, 2048, 128, true}};
  if (arguments.left() > 1) {
    // Elements of a list are read from left to right.
    cases = {{size("B"), size("H"), size("G"), size("T"), size("S"), size("D"),
              arguments.word("the mask", {"causal", "full"}) == "causal"}};
    if (cases[0].heads % cases[0].kv_heads != 0)
      throw BadArgument(fmt::format("H is a multiple of G, {} is not of {}", cases[0].heads, cases[0].kv_heads));
  }
  const std::string_view type = dtype();
  arguments.end();
  for (const Case& c : cases) measure(c, threads, type);
}

}  // namespace
}  // namespace stow

int main(int argc, char** argv) {
  stow::hold_instruction_set();
  return stow::run_bench_program(argc, argv, stow::kUsage, stow::run);
}
