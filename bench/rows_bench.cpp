// Row programs beside STREAM's triad and beside one hand-fused vector loop each.
// Every benchmark reports GB/s of the operands' bytes; compare within one run.
// Arguments: threads.
#include <benchmark/benchmark.h>
#include <omp.h>

#include <bit>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "hwy/highway.h"
#include "stowage/runtime/cpu/kernels/row_program.h"
#include "stowage/runtime/cpu/kernels/simd_math-inl.h"

namespace stow::cpu {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
namespace math = HWY_NAMESPACE;
const hn::ScalableTag<float> d;
using V = hn::Vec<decltype(d)>;
const int64_t kLanes = static_cast<int64_t>(hn::Lanes(d));

constexpr int64_t kN = 24 << 20;  // elements of an elementwise benchmark: well beyond the caches
constexpr int64_t kRows = 8192;

struct Free {
  void operator()(void* p) const { std::free(p); }
};
template <typename T>
std::unique_ptr<T, Free> make_array(int64_t n) {
  auto* p = static_cast<T*>(std::aligned_alloc(
      4096, static_cast<size_t>((n * static_cast<int64_t>(sizeof(T)) + 4095) / 4096 * 4096)));
#pragma omp parallel for
  for (int64_t i = 0; i < n; ++i)
    p[i] = sizeof(T) == 2 ? static_cast<T>(0x3f80 + i % 64)
                          : static_cast<T>(0.25 + static_cast<double>(i % 1000) / 1000);
  return std::unique_ptr<T, Free>(p);
}

class Builder {
 public:
  Builder(Dims dims, int n_row_dims) { p.dims = std::move(dims), p.n_row_dims = n_row_dims; }
  int load(DType t, Dims strides) {
    p.inputs.push_back({t, std::move(strides)});
    return add(
        {.kind = StepKind::kLoad, .dtype = t, .index = static_cast<int>(p.inputs.size()) - 1});
  }
  int constant(float x) {
    return add({.kind = StepKind::kConstant, .imm = std::bit_cast<uint32_t>(x)});
  }
  int op(OpKind kind, int a, int b = -1, int c = -1, DType t = DType::kF32) {
    return add({.kind = StepKind::kCompute, .op = kind, .dtype = t, .args = {a, b, c}});
  }
  int mul(int a, int b) { return op(OpKind::kMul, a, b); }
  int sum(int a, int b) { return op(OpKind::kAdd, a, b); }
  int sub(int a, int b) { return op(OpKind::kSub, a, b); }
  int reduce(OpKind kind, int a) {
    return add({.kind = StepKind::kReduceRow, .op = kind, .args = {a, -1, -1}});
  }
  void store(int a, Dims strides, DType t = DType::kF32) {
    output(StepKind::kStore, a, std::move(strides), t);
  }
  void columns(int a, Dims strides) {
    output(StepKind::kReduceColumns, a, std::move(strides), DType::kF32);
  }
  RowProgram p;

 private:
  int add(const Step& s) {
    p.steps.push_back(s);
    return static_cast<int>(p.steps.size()) - 1;
  }
  void output(StepKind kind, int a, Dims strides, DType t) {
    p.outputs.push_back({t, std::move(strides)});
    add({.kind = kind,
         .op = OpKind::kReduceSum,
         .dtype = t,
         .index = static_cast<int>(p.outputs.size()) - 1,
         .args = {a, -1, -1}});
  }
};

void run_program(benchmark::State& state, const RowProgram& program,
                 const std::vector<const void*>& in, const std::vector<void*>& out, int64_t bytes) {
  const int threads = static_cast<int>(state.range(0));
  const CompiledRowProgram compiled(program);
  auto scratch = make_array<float>(compiled.scratch_bytes(threads) / 4 + 16);
  std::vector<const std::byte*> inputs;
  std::vector<std::byte*> outputs;
  for (const void* p : in) inputs.push_back(static_cast<const std::byte*>(p));
  for (void* p : out) outputs.push_back(static_cast<std::byte*>(p));
  for (auto _ : state) compiled.run(inputs, outputs, scratch.get(), threads);
  state.SetBytesProcessed(state.iterations() * bytes);
}
template <typename F>
void run_by_hand(benchmark::State& state, int64_t n, int64_t bytes, F f) {
  const int threads = static_cast<int>(state.range(0));
  for (auto _ : state) {
#pragma omp parallel num_threads(threads)
    {
      const int64_t t = omp_get_thread_num(), all = omp_get_num_threads();
      const int64_t from = n / 16 * t / all * 16, to = n / 16 * (t + 1) / all * 16;
      f(from, to);
    }
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * bytes);
}

struct Arrays {
  explicit Arrays(int64_t n, int count) {
    for (int i = 0; i < count; ++i) a.push_back(make_array<float>(n));
  }
  float* operator[](size_t i) const { return a[i].get(); }
  std::vector<std::unique_ptr<float, Free>> a;
};

// a = b + s c
void triad_hand(benchmark::State& state) {
  const int64_t n = state.range(1);
  const Arrays x(n, 3);
  run_by_hand(state, n, 12 * n, [&](int64_t i, int64_t to) {
    const V s = hn::Set(d, 3.0f);
    for (; i < to; i += kLanes)
      hn::Store(hn::Add(hn::Load(d, x[1] + i), hn::Mul(s, hn::Load(d, x[2] + i))), d, x[0] + i);
  });
}
void triad_rows(benchmark::State& state) {
  const int64_t n = state.range(1);
  const Arrays x(n, 3);
  Builder b({n}, 0);
  const int p = b.load(DType::kF32, {1}), q = b.load(DType::kF32, {1});
  b.store(b.sum(p, b.mul(q, b.constant(3))), {1});
  run_program(state, b.p, {x[1], x[2]}, {x[0]}, 12 * n);
}

// AdamW in place over p, m, v, with decoupled decay: 28 bytes an element.
void adamw_hand(benchmark::State& state) {
  const int64_t n = state.range(1);
  const Arrays x(n, 4);
  run_by_hand(state, n, 28 * n, [&](int64_t i, int64_t to) {
    const auto c = [](float v) { return hn::Set(d, v); };
    for (; i < to; i += kLanes) {
      const V p = hn::Load(d, x[0] + i), g = hn::Load(d, x[3] + i);
      const V m = hn::Add(hn::Mul(hn::Load(d, x[1] + i), c(.9f)), hn::Mul(g, c(.1f)));
      const V v =
          hn::Add(hn::Mul(hn::Load(d, x[2] + i), c(.999f)), hn::Mul(hn::Mul(g, g), c(.001f)));
      const V step = hn::Div(hn::Mul(m, c(1.1f)), hn::Add(hn::Sqrt(hn::Mul(v, c(1.2f))), c(1e-8f)));
      const V update = hn::Add(step, hn::Mul(p, c(.01f)));
      hn::Store(m, d, x[1] + i);
      hn::Store(v, d, x[2] + i);
      hn::Store(hn::Sub(p, hn::Mul(update, c(1e-3f))), d, x[0] + i);
    }
  });
}
void adamw_rows(benchmark::State& state) {
  const int64_t n = state.range(1);
  const Arrays x(n, 4);
  const DType t = DType::kF32;
  Builder b({n}, 0);
  const int p = b.load(t, {1}), m0 = b.load(t, {1}), v0 = b.load(t, {1}), g = b.load(t, {1});
  const int m = b.sum(b.mul(m0, b.constant(.9f)), b.mul(g, b.constant(.1f)));
  const int v = b.sum(b.mul(v0, b.constant(.999f)), b.mul(b.mul(g, g), b.constant(.001f)));
  const int root = b.op(OpKind::kSqrt, b.mul(v, b.constant(1.2f)));
  const int step = b.op(OpKind::kDiv, b.mul(m, b.constant(1.1f)), b.sum(root, b.constant(1e-8f)));
  const int update = b.sum(step, b.mul(p, b.constant(.01f)));
  const int p1 = b.sub(p, b.mul(update, b.constant(1e-3f)));
  b.store(p1, {1});
  b.store(m, {1});
  b.store(v, {1});
  run_program(state, b.p, {x[0], x[1], x[2], x[3]}, {x[0], x[1], x[2]}, 28 * n);
}

// y = x rsqrt(mean(x^2) + eps) w
void rmsnorm_hand(benchmark::State& state) {
  const int64_t cols = state.range(1), n = kRows * cols;
  const Arrays x(n, 2), w(cols, 1);
  run_by_hand(state, kRows, 8 * n, [&](int64_t r, int64_t to) {
    for (; r < to; ++r) {
      const float* row = x[0] + r * cols;
      V s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
      for (int64_t i = 0; i < cols; i += 4 * kLanes) {
        const V a = hn::Load(d, row + i), b = hn::Load(d, row + i + kLanes);
        const V c = hn::Load(d, row + i + 2 * kLanes), e = hn::Load(d, row + i + 3 * kLanes);
        s0 = hn::MulAdd(a, a, s0), s1 = hn::MulAdd(b, b, s1);
        s2 = hn::MulAdd(c, c, s2), s3 = hn::MulAdd(e, e, s3);
      }
      const float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
      const V scale = hn::Set(d, 1 / std::sqrt(sum / static_cast<float>(cols) + 1e-6f));
      for (int64_t i = 0; i < cols; i += kLanes)
        hn::Store(hn::Mul(hn::Mul(hn::Load(d, row + i), scale), hn::Load(d, w[0] + i)), d,
                  x[1] + r * cols + i);
    }
  });
}
void rmsnorm_rows(benchmark::State& state) {
  const int64_t cols = state.range(1), n = kRows * cols;
  const Arrays x(n, 2), w(cols, 1);
  Builder b({kRows, cols}, 1);
  const int a = b.load(DType::kF32, {cols, 1}), g = b.load(DType::kF32, {0, 1});
  const int mean =
      b.mul(b.reduce(OpKind::kReduceSum, b.mul(a, a)), b.constant(1.0f / static_cast<float>(cols)));
  const int scale = b.op(OpKind::kRsqrt, b.sum(mean, b.constant(1e-6f)));
  b.store(b.mul(b.mul(a, scale), g), {cols, 1});
  run_program(state, b.p, {x[0], w[0]}, {x[1]}, 8 * n);
}

void softmax_hand(benchmark::State& state) {
  const int64_t cols = state.range(1), n = kRows * cols;
  const Arrays x(n, 2);
  run_by_hand(state, kRows, 8 * n, [&](int64_t r, int64_t to) {
    for (; r < to; ++r) {
      const float* row = x[0] + r * cols;
      float* out = x[1] + r * cols;
      V m = hn::Load(d, row);
      for (int64_t i = kLanes; i < cols; i += kLanes) m = hn::Max(m, hn::Load(d, row + i));
      m = hn::MaxOfLanes(d, m);
      V s = hn::Zero(d);
      for (int64_t i = 0; i < cols; i += kLanes) {
        const V e = math::exp_f32(d, hn::Sub(hn::Load(d, row + i), m));
        s = hn::Add(s, e);
        hn::Store(e, d, out + i);
      }
      const V sum = hn::SumOfLanes(d, s);
      for (int64_t i = 0; i < cols; i += kLanes)
        hn::Store(hn::Div(hn::Load(d, out + i), sum), d, out + i);
    }
  });
}
void softmax_rows(benchmark::State& state) {
  const int64_t cols = state.range(1), n = kRows * cols;
  const Arrays x(n, 2);
  Builder b({kRows, cols}, 1);
  const int a = b.load(DType::kF32, {cols, 1});
  const int e = b.op(OpKind::kExp, b.sub(a, b.reduce(OpKind::kReduceMax, a)));
  b.store(b.op(OpKind::kDiv, e, b.reduce(OpKind::kReduceSum, e)), {cols, 1});
  run_program(state, b.p, {x[0]}, {x[1]}, 8 * n);
}

// dx of a layer norm (given x hat, 1/sigma) and the sums of dw, db over rows.
void norm_grad_rows(benchmark::State& state) {
  const int64_t cols = state.range(1), n = kRows * cols;
  const Arrays x(n, 3), w(cols, 3), s(kRows, 1);
  Builder b({kRows, cols}, 1);
  const DType t = DType::kF32;
  const int dy = b.load(t, {cols, 1}), hat = b.load(t, {cols, 1}), g = b.load(t, {0, 1});
  const int inv = b.load(t, {1, 0}), k = b.constant(1.0f / static_cast<float>(cols));
  const int dyh = b.mul(dy, hat), dg = b.mul(dy, g);
  const int m1 = b.mul(b.reduce(OpKind::kReduceSum, dg), k);
  const int m2 = b.mul(b.reduce(OpKind::kReduceSum, b.mul(dg, hat)), k);
  b.store(b.mul(b.sub(b.sub(dg, m1), b.mul(hat, m2)), inv), {cols, 1});
  b.columns(dyh, {0, 1});
  b.columns(dy, {0, 1});
  run_program(state, b.p, {x[0], x[1], w[0], s[0]}, {x[2], w[1], w[2]}, 12 * n);
}

// Tanh gelu of bf16, computed in f32: 4 bytes an element.
void gelu_bf16_rows(benchmark::State& state) {
  const int64_t n = state.range(1);
  const auto x = make_array<uint16_t>(n), y = make_array<uint16_t>(n);
  Builder b({n}, 0);
  const int a = b.op(OpKind::kConvert, b.load(DType::kBF16, {1}));
  const int cube = b.mul(b.mul(a, a), a);
  const int inner = b.mul(b.sum(a, b.mul(cube, b.constant(.044715f))), b.constant(.7978846f));
  const int h = b.mul(b.mul(a, b.constant(.5f)), b.sum(b.op(OpKind::kTanh, inner), b.constant(1)));
  b.store(b.op(OpKind::kConvert, h, -1, -1, DType::kBF16), {1}, DType::kBF16);
  run_program(state, b.p, {x.get()}, {y.get()}, 4 * n);
}
// Bias of each column and a residual, in bf16 throughout.
void bias_bf16_rows(benchmark::State& state) {
  const int64_t cols = 4096, rows = kN / cols;
  const auto x = make_array<uint16_t>(kN), r = make_array<uint16_t>(kN),
             y = make_array<uint16_t>(kN);
  const auto bias = make_array<uint16_t>(cols);
  Builder b({rows, cols}, 1);
  const DType t = DType::kBF16;
  const int a = b.load(t, {cols, 1}), c = b.load(t, {0, 1}), e = b.load(t, {cols, 1});
  b.store(b.op(OpKind::kAdd, b.op(OpKind::kAdd, a, c, -1, t), e, -1, t), {cols, 1}, t);
  run_program(state, b.p, {x.get(), bias.get(), r.get()}, {y.get()}, 6 * kN);
}
// Column sums alone.
void column_sum_rows(benchmark::State& state) {
  const int64_t cols = 4096, rows = kN / cols;
  const Arrays x(kN, 1), y(cols, 1);
  Builder b({rows, cols}, 1);
  b.columns(b.load(DType::kF32, {cols, 1}), {0, 1});
  run_program(state, b.p, {x[0]}, {y[0]}, 4 * kN);
}
// The sum of squares of everything: one row.
void norm_rows(benchmark::State& state) {
  const Arrays x(kN, 1), y(1, 1);
  Builder b({kN}, 0);
  const int a = b.load(DType::kF32, {1});
  b.store(b.reduce(OpKind::kReduceSum, b.mul(a, a)), {0});
  run_program(state, b.p, {x[0]}, {y[0]}, 4 * kN);
}
void transpose_rows(benchmark::State& state) {
  const int64_t cols = 4096, rows = kN / cols;
  const Arrays x(kN, 2);
  Builder b({rows, cols}, 1);
  b.store(b.mul(b.load(DType::kF32, {1, rows}), b.constant(2)), {cols, 1});
  run_program(state, b.p, {x[0]}, {x[1]}, 8 * kN);
}

#define STOW_BENCH(name) BENCHMARK(name)->ArgName("threads")->Arg(1)->Arg(2)->UseRealTime()
#define STOW_BENCH_ELEMS(name)         \
  BENCHMARK(name)                      \
      ->ArgNames({"threads", "elems"}) \
      ->Args({1, 1 << 14})             \
      ->Args({1, 12 << 20})            \
      ->Args({2, 12 << 20})            \
      ->UseRealTime()
#define STOW_BENCH_COLS(name)         \
  BENCHMARK(name)                     \
      ->ArgNames({"threads", "cols"}) \
      ->Args({1, 64})                 \
      ->Args({1, 1024})               \
      ->Args({2, 1024})               \
      ->Args({1, 4096})               \
      ->Args({1, 8192})               \
      ->UseRealTime()
STOW_BENCH_ELEMS(triad_hand);
STOW_BENCH_ELEMS(triad_rows);
STOW_BENCH_ELEMS(adamw_hand);
STOW_BENCH_ELEMS(adamw_rows);
STOW_BENCH_COLS(rmsnorm_hand);
STOW_BENCH_COLS(rmsnorm_rows);
STOW_BENCH_COLS(softmax_hand);
STOW_BENCH_COLS(softmax_rows);
STOW_BENCH_COLS(norm_grad_rows);
STOW_BENCH_ELEMS(gelu_bf16_rows);
STOW_BENCH(bias_bf16_rows);
STOW_BENCH(column_sum_rows);
STOW_BENCH(norm_rows);
STOW_BENCH(transpose_rows);

}  // namespace
}  // namespace stow::cpu

BENCHMARK_MAIN();
