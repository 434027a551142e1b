// Kernels bound by memory that the compiler makes of everyday functions, row programs and gathers,
// beside streams of the same traffic.
//
// A function is compiled as a training step holds it, what training donates in place, over arrays
// far beyond the caches. Its kernels then take turns with STREAM's triad (a = b + 3 c) and with
// a plain loop over as many bytes read, updated in place and written fresh, in memory of the same
// pages. The fastest turn of each counts: of one thread by processor time, of two by the clock.
// Bytes are each argument and result once; a store to memory that is in no cache reads it first,
// which nobody counts ("allocate" is its share on top). No loop's stores are non-temporal unless
// its name says so; a program's are where it likes. "in_cache" is the rate of one thread over so
// few rows that all lies in the second cache, where no memory holds it back; calls over few rows
// cost something, too. Each runs on one thread and on two.
#include <benchmark/benchmark.h>
#include <omp.h>

#include <array>
#include <cstring>
#include <memory>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "measure.h"
#include "stowage/api/grad.h"
#include "stowage/api/jit.h"
#include "stowage/api/math.h"
#include "stowage/api/nn.h"
#include "stowage/api/reduce.h"
#include "stowage/api/shaping.h"
#include "stowage/ir/schedule.h"
#include "stowage/optim/optimizers.h"
#include "stowage/runtime/cpu/bound_kernel.h"

namespace stow {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kTokens = 8192, kWidth = 1024, kWide = 2048;
constexpr int64_t kElems = int64_t{16} << 20;
// Bytes of all arrays that are to lie in the second cache.
constexpr int64_t kCacheBytes = 384 << 10;
constexpr int kTurnsUntilFilled = 16;  // what is updated in place must not die out

// Integers are each index of the array once, neighbours far apart.
void fill(DType dtype, std::byte* data, int64_t bytes) {
  constexpr int64_t kPrime = 7919;
  const int64_t width = dtype_bytes(dtype);
  for (int64_t i = 0; i * width < bytes; ++i) {
    const float f = 0.25f + static_cast<float>(i % 1000) / 1000;
    const auto n = static_cast<int32_t>(i * kPrime % (bytes / width));
    const auto half = static_cast<uint16_t>(0x3f00 + i % 64);  // of bf16
    const void* from = width == 2 ? static_cast<const void*>(&half)
                       : is_float(dtype) ? static_cast<const void*>(&f)
                                         : static_cast<const void*>(&n);
    std::memcpy(data + i * width, from, static_cast<size_t>(width));
  }
}

// The kernels of a compiled function, each of its buffers in memory of its own.
class Kernels {
 public:
  Kernels(const Executable& program, int threads) : schedule_(program.schedule()) {
    for (const Buffer& b : schedule_.buffers) buffers_.push_back(Device::cpu()->allocate(b.bytes));
    int64_t scratch = 0;
    for (const Instruction& instruction : schedule_.instructions) {
      const Kernel* k = instruction.kernel();
      if (k == nullptr) continue;
      Bound bound{std::make_unique<cpu::BoundKernel>(*k, threads), {}, {}};
      for (const View& v : k->inputs) bound.inputs.push_back(place(v));
      for (const View& v : k->outputs) bound.outputs.push_back(place(v));
      scratch = std::max(scratch, cpu::kernel_scratch_bytes(*k, threads));
      kernels_.push_back(std::move(bound));
    }
    scratch_ = Device::cpu()->allocate(scratch);
    std::vector<bool> over(program.input_types().size());
    for (int input : program.output_aliases())
      if (input >= 0) over[static_cast<size_t>(input)] = true;
    for (size_t i = 0; i < over.size(); ++i)
      (over[i] ? updated_bytes : read_bytes) += program.input_types()[i].bytes();
    for (size_t i = 0; i < program.output_types().size(); ++i)
      if (program.output_aliases()[i] < 0) written_bytes += program.output_types()[i].bytes();
    refill();
  }
  void refill() {
    for (const View& v : schedule_.inputs)
      fill(v.dtype, place(v), v.elems() * dtype_bytes(v.dtype));
  }
  void operator()() {
    for (const Bound& k : kernels_) k.kernel->run(k.inputs, k.outputs, scratch_->data());
  }
  size_t n_kernels() const { return kernels_.size(); }
  int64_t read_bytes = 0, updated_bytes = 0, written_bytes = 0;
  int64_t bytes() const { return read_bytes + 2 * updated_bytes + written_bytes; }

 private:
  struct Bound {
    std::unique_ptr<cpu::BoundKernel> kernel;
    std::vector<const std::byte*> inputs;
    std::vector<std::byte*> outputs;
  };
  std::byte* place(const View& v) const {
    return buffers_[v.buffer.index()]->data() + v.offset_bytes;
  }
  const Schedule& schedule_;
  std::vector<DeviceBufferPtr> buffers_;
  DeviceBufferPtr scratch_;
  std::vector<Bound> kernels_;
};

// Reads R arrays, updates U in place and writes W.
template <int R, int U, int W, bool kNonTemporal = false>
class Stream {
 public:
  Stream(int64_t bytes, int threads)
      : n_(bytes / 4 / (R + 2 * U + W) / 64 * 64),
        threads_(threads),
        sinks_(static_cast<size_t>(threads) * 16) {
    for (int i = 0; i < R + U + W; ++i) {
      arrays_.push_back(Device::cpu()->allocate(4 * n_));
      fill(DType::kF32, arrays_.back()->data(), 4 * n_);
    }
  }
  int64_t bytes() const { return 4 * n_ * (R + 2 * U + W); }
  void operator()() {
    if (threads_ == 1) return run(0, n_, 0);
#pragma omp parallel num_threads(threads_)
    {
      const int64_t t = omp_get_thread_num(), lines = n_ / 64;
      run(lines * t / threads_ * 64, lines * (t + 1) / threads_ * 64, t);
    }
  }

 private:
  void run(int64_t i, int64_t to, int64_t thread) {
    const hn::ScalableTag<float> d;
    std::array<float*, R + U + W> a;
    for (size_t k = 0; k < a.size(); ++k) a[k] = reinterpret_cast<float*>(arrays_[k]->data());
    auto sums = std::array{hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
    const auto three = hn::Set(d, 3.0f);
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    for (; i < to; i += 4 * lanes)
      for (int64_t q = 0; q < 4; ++q) {
        const int64_t at = i + q * lanes;
        auto x = hn::Zero(d);
        if constexpr (R > 0) x = hn::Load(d, a[0] + at);
        for (size_t k = 1; k < R; ++k) x = hn::Add(x, hn::Mul(three, hn::Load(d, a[k] + at)));
        for (size_t k = R; k < R + U; ++k)
          hn::Store(hn::Add(x, hn::Mul(three, hn::Load(d, a[k] + at))), d, a[k] + at);
        for (size_t k = R + U; k < R + U + W; ++k) {
          if (kNonTemporal) hn::Stream(x, d, a[k] + at);
          else hn::Store(x, d, a[k] + at);
        }
        if constexpr (U + W == 0)
          sums[static_cast<size_t>(q)] = hn::Add(sums[static_cast<size_t>(q)], x);
      }
    if constexpr (kNonTemporal) hwy::FlushStream();
    if constexpr (U + W == 0)
      sinks_[static_cast<size_t>(thread) * 16] = hn::GetLane(
          hn::SumOfLanes(d, hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]))));
    benchmark::ClobberMemory();
  }
  int64_t n_;
  int threads_;
  std::vector<float> sinks_;
  std::vector<DeviceBufferPtr> arrays_;
};
using Triad = Stream<2, 0, 1>;

// Bytes a second of one thread over rows that stay in its second cache.
template <typename F>
double rate_in_cache(F& make, int64_t bytes) {
  constexpr int kTurns = 40, kCalls = 50;
  const auto compiled = make(std::max<int64_t>(1, (bytes + kCacheBytes - 1) / kCacheBytes));
  Kernels kernels(compiled.executable(), 1);
  double best = 1e30;
  for (int turn = 0; turn < kTurns; ++turn) {
    kernels.refill();
    best = std::min(best, seconds_of(kernels, kCalls, 1));
  }
  return static_cast<double>(kernels.bytes()) / best;
}

// `make(share)` compiles the function over so many times fewer rows.
template <int R, int U, int W, typename F>
void measure(benchmark::State& state, F make) {
  const int threads = static_cast<int>(state.range(0));
  const auto compiled = make(1);
  Kernels kernels(compiled.executable(), threads);
  Stream<R, U, W> stream(kernels.bytes(), threads);
  Triad triad(12 * kElems, threads);
  kernels();  // touches what no argument lies in
  double best = 1e30, best_stream = 1e30, best_triad = 1e30;
  int turn = 0;
  for (auto _ : state) {
    if (++turn % kTurnsUntilFilled == 0) kernels.refill();
    const double s = seconds_of(kernels, 1, threads);
    best = std::min(best, s);
    best_stream = std::min(best_stream, seconds_of(stream, 1, threads));
    best_triad = std::min(best_triad, seconds_of(triad, 1, threads));
    state.SetIterationTime(s);
  }
  const double rate = static_cast<double>(kernels.bytes()) / best;
  const double stream_rate = static_cast<double>(stream.bytes()) / best_stream;
  const double triad_rate = static_cast<double>(triad.bytes()) / best_triad;
  state.counters["GB/s"] = 1e-9 * rate;
  state.counters["triad"] = 1e-9 * triad_rate;
  state.counters["stream"] = 1e-9 * stream_rate;
  state.counters["of_triad"] = rate / triad_rate;
  state.counters["of_stream"] = rate / stream_rate;
  state.counters["allocate"] =
      static_cast<double>(kernels.written_bytes) / static_cast<double>(kernels.bytes());
  if (threads == 1) state.counters["in_cache"] = 1e-9 * rate_in_cache(make, kernels.bytes());
  state.counters["kernels"] = static_cast<double>(kernels.n_kernels());
}

Array matrix(int64_t rows, int64_t cols, DType dtype = DType::kF32) {
  return Array::abstract(Shape{rows, cols}, dtype);
}

void adamw(benchmark::State& state) {
  measure<1, 3, 0>(state, [](int64_t share) {
    using Parameters = std::map<std::string, Array>;
    const auto optimizer = optim::adamw(1e-3);
    const Parameters p = {{"w", Array::abstract(Shape{kElems / share})}};
    return jit(
               [=](const Parameters& params, const optim::OptState& before,
                   const Parameters& gradients) {
                 const auto [updates, after] = optimizer.update(gradients, before, params);
                 return std::pair(optim::apply_updates(params, updates), after);
               },
               {.donate_argnums = {0, 1}})
        .lower(p, optimizer.init(p), p)
        .compile();
  });
}
void rms_norm_forward(benchmark::State& state) {
  measure<1, 0, 1>(state, [](int64_t share) {
    return jit([](const Array& x, const Array& w) { return rms_norm(x, w); })
        .lower(matrix(kTokens / share, kWidth), Array::abstract(Shape{kWidth}))
        .compile();
  });
}
void rms_norm_backward(benchmark::State& state) {
  measure<1, 1, 0>(state, [](int64_t share) {
    return jit(
               [](const Array& x, const Array& w, const Array& dy) {
                 return vjp([](const Array& a, const Array& b) { return rms_norm(a, b); }, x, w)
                     .second(dy);
               },
               {.donate_argnums = {2}})
        .lower(matrix(kTokens / share, kWidth), Array::abstract(Shape{kWidth}),
               matrix(kTokens / share, kWidth))
        .compile();
  });
}
void residual_add(benchmark::State& state) {
  measure<1, 1, 0>(state, [](int64_t share) {
    return jit([](const Array& x, const Array& y) { return x + y; }, {.donate_argnums = {0}})
        .lower(matrix(kTokens / share, kWide), matrix(kTokens / share, kWide))
        .compile();
  });
}
void swiglu_forward(benchmark::State& state) {
  measure<2, 0, 1>(state, [](int64_t share) {
    return jit([](const Array& gate, const Array& up) { return silu(gate) * up; })
        .lower(matrix(kTokens / share, kWide), matrix(kTokens / share, kWide))
        .compile();
  });
}
void swiglu_backward(benchmark::State& state) {
  measure<1, 2, 0>(state, [](int64_t share) {
    return jit(
               [](const Array& gate, const Array& up, const Array& dy) {
                 return vjp([](const Array& a, const Array& b) { return silu(a) * b; }, gate, up)
                     .second(dy);
               },
               {.donate_argnums = {0, 1}})
        .lower(matrix(kTokens / share, kWide), matrix(kTokens / share, kWide),
               matrix(kTokens / share, kWide))
        .compile();
  });
}
void swiglu_forward_bf16(benchmark::State& state) {
  measure<2, 0, 1>(state, [](int64_t share) {
    const Array x = matrix(kTokens / share, 2 * kWide, DType::kBF16);
    return jit([](const Array& gate, const Array& up) { return silu(gate) * up; })
        .lower(x, x)
        .compile();
  });
}
// Of 16 heads of 64 a token: their two halves as the coordinates of 32 points.
Array rotated(const Array& x, const Array& cos, const Array& sin) {
  const Array halves = x.reshape({x.dim(0), kWidth / 64, 2, 32});
  return (halves * cos + flip(halves, 2) * sin).reshape({x.dim(0), kWidth});
}
Array angles(int64_t rows, int64_t halves) {
  return Array::abstract(Shape{rows, 1, halves, 32});
}
void rotary_forward(benchmark::State& state) {
  measure<1, 0, 1>(state, [](int64_t share) {
    const int64_t rows = kTokens / share;
    return jit(rotated).lower(matrix(rows, kWidth), angles(rows, 1), angles(rows, 2)).compile();
  });
}
void rotary_backward(benchmark::State& state) {
  measure<1, 0, 1>(state, [](int64_t share) {
    const int64_t rows = kTokens / share;
    return jit([=](const Array& dy, const Array& c, const Array& s) {
             return vjp([&](const Array& x) { return rotated(x, c, s); },
                        zeros(Shape{rows, kWidth}))
                 .second(dy);
           })
        .lower(matrix(rows, kWidth), angles(rows, 1), angles(rows, 2))
        .compile();
  });
}
void clip_scale(benchmark::State& state) {
  measure<0, 1, 0>(state, [](int64_t share) {
    return jit([](const Array& g, const Array& norm) { return g * (1.0 / maximum(norm, 1.0)); },
               {.donate_argnums = {0}})
        .lower(matrix(kTokens / share, kWide), Array::abstract(Shape{}))
        .compile();
  });
}
void sum_of_squares(benchmark::State& state) {
  measure<1, 0, 0>(state, [](int64_t share) {
    return jit([](const Array& g) { return sum(square(g)); })
        .lower(matrix(kTokens / share, kWide))
        .compile();
  });
}
void cross_entropy_gradient(benchmark::State& state) {
  measure<0, 1, 0>(state, [](int64_t share) {
    const int64_t rows = std::max<int64_t>(1, 1024 / share);
    return jit(
               [](const Array& logits, const Array& targets) {
                 return value_and_grad(
                     [&](const Array& x) { return mean(cross_entropy(x, targets)); })(logits);
               },
               {.donate_argnums = {0}})
        .lower(matrix(rows, 32768), Array::abstract(Shape{rows}, DType::kI32))
        .compile();
  });
}
void cast_to_bf16(benchmark::State& state) {
  measure<2, 0, 1>(state, [](int64_t share) {
    return jit([](const Array& x) { return x.astype(DType::kBF16); })
        .lower(matrix(kTokens / share, kWide))
        .compile();
  });
}
// Each row of a table once; its gradient, zeros to begin with, likewise.
void embedding_forward(benchmark::State& state) {
  measure<1, 0, 1>(state, [](int64_t share) {
    const int64_t rows = kTokens / share;
    return jit([](const Array& table, const Array& ids) {
             return take(table, ids, 0, IndexMode::kClip);
           })
        .lower(matrix(rows, kWidth), Array::abstract(Shape{rows}, DType::kI32))
        .compile();
  });
}
void embedding_backward(benchmark::State& state) {
  measure<1, 0, 1>(state, [](int64_t share) {
    const int64_t rows = kTokens / share;
    return jit([=](const Array& ids, const Array& dy) {
             const auto look_up = [&](const Array& table) {
               return take(table, ids, 0, IndexMode::kClip);
             };
             return vjp(look_up, zeros(Shape{rows, kWidth})).second(dy);
           })
        .lower(Array::abstract(Shape{rows}, DType::kI32), matrix(rows, kWidth))
        .compile();
  });
}
// The triad once more with stores that go past the caches.
void triad_non_temporal(benchmark::State& state) {
  const int threads = static_cast<int>(state.range(0));
  Stream<2, 0, 1, true> stream(12 * kElems, threads);
  double best = 1e30;
  for (auto _ : state) {
    const double s = seconds_of(stream, 1, threads);
    best = std::min(best, s);
    state.SetIterationTime(s);
  }
  state.counters["GB/s"] = 1e-9 * static_cast<double>(stream.bytes()) / best;
}

#define STOW_BENCH(name) BENCHMARK(name)->ArgName("threads")->Arg(1)->Arg(2)->UseManualTime()
STOW_BENCH(adamw);
STOW_BENCH(rms_norm_forward);
STOW_BENCH(rms_norm_backward);
STOW_BENCH(residual_add);
STOW_BENCH(swiglu_forward);
STOW_BENCH(swiglu_backward);
STOW_BENCH(swiglu_forward_bf16);
STOW_BENCH(rotary_forward);
STOW_BENCH(rotary_backward);
STOW_BENCH(clip_scale);
STOW_BENCH(sum_of_squares);
STOW_BENCH(cross_entropy_gradient);
STOW_BENCH(cast_to_bf16);
STOW_BENCH(embedding_forward);
STOW_BENCH(embedding_backward);
STOW_BENCH(triad_non_temporal);

constexpr const char* kUsage =
    "usage: rows_bench [--benchmark_…]     Google Benchmark's flags, as --benchmark_filter=adamw\n";

}  // namespace
}  // namespace stow

int main(int argc, char** argv) {
  return stow::run_kernel_benchmarks(argc, argv, stow::kUsage,
                                     [](const stow::Arguments& arguments) { arguments.end(); });
}
