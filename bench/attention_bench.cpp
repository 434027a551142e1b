// Times of attention forward and backward, each beside the rate of a product of the same dtype and
// as many threads, which bounds it; alternating in short turns. bench/attention_peer.py times
// PyTorch's on the same shapes; `bench tables` runs them turn about.
#include <benchmark/benchmark.h>
#include <fmt/core.h>
#include <omp.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "measure.h"
#include "product.h"
#include "stowage/core/half.h"
#include "stowage/runtime/cpu/kernels/attention.h"

namespace stow {
namespace {

struct Case {
  int64_t batch, heads, kv_heads, q_len, kv_len, dim;
  std::string mask;  // full, causal, or of intervals under a causal mask: window, packed
  int64_t size = 0;  // keys of a window, queries of a packed example

  bool causal() const { return mask != "full"; }
  // The keys [first, last) that a query sees.
  std::pair<int64_t, int64_t> visible(int64_t i) const {
    const int64_t last = causal() ? i + kv_len - q_len + 1 : kv_len;
    if (mask == "window") return {std::max<int64_t>(last - size, 0), last};
    if (mask == "packed") return {(last - 1) / size * size, last};
    return {0, last};
  }
};

using Memory = std::unique_ptr<void, decltype(&std::free)>;
Memory workspace_of(int64_t bytes) {
  return Memory(std::aligned_alloc(64, static_cast<size_t>(bytes)), &std::free);
}

template <typename T>
std::vector<T> random_values(int64_t n) {
  std::vector<T> out(static_cast<size_t>(n));
  uint32_t x = 1;
  for (T& value : out)
    narrow(float(int32_t(x = x * 1664525u + 1013904223u)) * 0x1p-31f, value);
  return out;
}

template <typename T>
void measure(benchmark::State& state, const Case& c, int threads, DType dtype, bool is_backward) {
  auto strides = [&](int64_t len, int64_t heads) {
    return std::array<int64_t, 4>{len * heads * c.dim, heads * c.dim, c.dim, 1};
  };
  const auto sq = strides(c.q_len, c.heads), skv = strides(c.kv_len, c.kv_heads);
  cpu::AttentionSpec spec{dtype, c.batch, c.heads, c.kv_heads, c.q_len, c.kv_len, c.dim,
                                float(1 / std::sqrt(double(c.dim))), c.causal(),
                                sq, skv, skv, sq, sq, sq, skv, skv,
                                c.causal() ? c.kv_len - c.q_len : 0};
  spec.intervals = c.size > 0;
  spec.lo = spec.hi = {0, 1};
  std::vector<int32_t> lo, hi;
  double seen = 0, first_key = double(c.kv_len), last_key = 0;
  for (int64_t i = 0; i < c.q_len; ++i) {
    const auto [first, last] = c.visible(i);
    lo.push_back(int32_t(first)), hi.push_back(int32_t(last));
    seen += double(last - first);
    first_key = std::min(first_key, double(first)), last_key = std::max(last_key, double(last));
  }
  const cpu::KeyIntervals intervals{lo.data(), hi.data()};
  const int64_t nq = c.batch * sq[0], nkv = c.batch * skv[0];
  const auto q = random_values<T>(nq), k = random_values<T>(nkv), v = random_values<T>(nkv);
  const auto d_out = random_values<T>(nq);
  std::vector<T> out(q.size()), dq(q.size()), dk(k.size()), dv(k.size());
  std::vector<float> lse(size_t(c.batch * c.heads * c.q_len));
  const int64_t bytes = is_backward ? cpu::attention_backward_workspace_bytes(spec, threads)
                                    : cpu::attention_forward_workspace_bytes(spec, threads);
  const Memory workspace =
      workspace_of(std::max(bytes, cpu::attention_forward_workspace_bytes(spec, threads)));
  const auto forward = [&] {
    cpu::attention_forward(spec, q.data(), k.data(), v.data(), out.data(), lse.data(),
                           workspace.get(), threads, intervals);
  };
  forward();
  auto attend = [&] {
    if (!is_backward) return forward();
    cpu::attention_backward(spec, q.data(), k.data(), v.data(), out.data(), lse.data(),
                            d_out.data(), dq.data(), dk.data(), dv.data(), workspace.get(), threads,
                            intervals);
  };
  // What stands for what the machine reaches.
  constexpr int64_t kSide = 1024;
  const auto factor = random_values<T>(kSide * kSide);
  std::vector<T> result(factor.size());
  Product product({1, kSide, kSide, kSide, "nn", dtype}, factor.data(), factor.data(),
                  result.data(), threads);
  const auto [best, product_s] = best_of_turns(state, threads, attend, product);
  const double product_rate = 2.0 * kSide * kSide * kSide / product_s;
  const double flops = (is_backward ? 10.0 : 4.0) * double(c.batch * c.heads * c.dim) * seen;
  state.counters["best_ms"] = 1e3 * best;
  state.counters["GFLOP/s"] = 1e-9 * flops / best;
  state.counters["product"] = 1e-9 * product_rate;
  state.counters["of_product"] = flops / best / product_rate;
  // Keys and values that some query sees, read once.
  state.counters["GB/s"] = 1e-9 * double(2 * c.batch * c.kv_heads * c.dim * int64_t(sizeof(T))) *
                           (last_key - first_key) / best;
  state.counters["workspace_KiB"] = static_cast<double>(bytes) / 1024;
}

constexpr const char* kUsage =
    "usage: attention_bench [THREADS [DTYPE]] [--benchmark_…]                           a table of shapes\n"
    "       attention_bench THREADS B H G T S D MASK [DTYPE] [--benchmark_…]            one shape\n"
    "MASK: causal, full, window N (N keys up to the causal one) or packed N (examples of N tokens)\n"
    "B examples, H heads of G key heads, T queries, S keys, heads of D; DTYPE: f32 or bf16\n";

void add(Arguments arguments) {
  constexpr int64_t kMost = 1 << 20;
  const auto size = [&](const char* what) { return arguments.number(what, int64_t{1}, kMost); };
  const auto dtype = [&] {
    return arguments.left() ? arguments.word("DTYPE", {"f32", "bf16"}) : "f32";
  };
  const int threads =
      arguments.left() ? arguments.number("THREADS", 1, 1024) : omp_get_max_threads();
  std::vector<Case> cases = {
      {4, 12, 12, 512, 512, 64, "causal"},        {2, 12, 12, 1024, 1024, 64, "causal"},
      {1, 12, 12, 2048, 2048, 64, "causal"},      {1, 12, 12, 2048, 2048, 64, "full"},
      {1, 4, 4, 4096, 4096, 64, "causal"},        {1, 2, 2, 8192, 8192, 64, "causal"},
      {1, 8, 2, 1024, 1024, 64, "causal"},        {1, 16, 16, 1024, 1024, 128, "causal"},
      {16, 8, 8, 128, 128, 32, "causal"},         {1, 12, 12, 1, 2048, 64, "causal"},
      {1, 32, 8, 1, 2048, 128, "causal"},         {1, 12, 12, 2048, 2048, 64, "window", 64},
      {1, 12, 12, 2048, 2048, 64, "packed", 256}, {1, 12, 12, 1, 8192, 64, "window", 1000}};
  if (arguments.left() > 1) {
    // Elements of a list are read from left to right.
    cases = {{size("B"), size("H"), size("G"), size("T"), size("S"), size("D"),
              std::string(arguments.word("the mask", {"causal", "full", "window", "packed"}))}};
    if (cases[0].mask == "window" || cases[0].mask == "packed") cases[0].size = size("N");
    if (cases[0].causal() && cases[0].q_len > cases[0].kv_len)
      throw BadArgument(fmt::format("under a causal mask T is at most S, {} is more than {}",
                                    cases[0].q_len, cases[0].kv_len));
    if (cases[0].heads % cases[0].kv_heads != 0)
      throw BadArgument(
          fmt::format("H is a multiple of G, {} is not of {}", cases[0].heads, cases[0].kv_heads));
  }
  const std::string type(dtype());
  arguments.end();
  constexpr int kTurns = 12;
  for (const Case& c : cases)
    for (const bool is_backward : {false, true}) {
      if (is_backward && c.q_len == 1) continue;
      const std::string name = fmt::format("{}/B{}/H{}/G{}/T{}/S{}/D{}/{}/{}/threads:{}", type,
                                           c.batch, c.heads, c.kv_heads, c.q_len, c.kv_len, c.dim,
                                           c.size ? c.mask + std::to_string(c.size) : c.mask,
                                           is_backward ? "backward" : "forward", threads);
      const auto run = [=](benchmark::State& state) {
        if (type == "bf16") measure<Bf16>(state, c, threads, DType::kBF16, is_backward);
        else measure<float>(state, c, threads, DType::kF32, is_backward);
      };
      benchmark::RegisterBenchmark(name.c_str(), run)->UseManualTime()->Iterations(kTurns);
    }
}

}  // namespace
}  // namespace stow

int main(int argc, char** argv) {
  return stow::run_kernel_benchmarks(argc, argv, stow::kUsage, stow::add);
}
