// What the compiler makes one row program of, where that shows in its schedule alone.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "stowage/ir/schedule_walk.h"
#include "stowage/passes/view.h"
#include "stowage/session/compile.h"
#include "stowage/stowage.h"

namespace stow {
namespace {

int n_row_programs(const Executable& executable) {
  int n = 0;
  for (const Instruction& instruction : executable.schedule().instructions)
    n += instruction.kernel() != nullptr && instruction.kernel()->kind == KernelKind::kRows;
  return n;
}

const Array kX = Array::abstract(Shape{64, 32}), kWeight = Array::abstract(Shape{32});

// A convolution of channels last writes them last: what reads it, or returns it, moves nothing.
TEST(Layout, OfAConvolutionIsThatOfItsReaders) {
  const ConvOptions last{
      .padding = "SAME", .lhs_axes = "NHWC", .rhs_axes = "HWIO", .out_axes = "NHWC"};
  const Array x = Array::abstract({2, 9, 7, 8}), k = Array::abstract({3, 3, 8, 8});
  const auto n_instructions = [&](auto f) {
    return jit(f).lower(x, k).compile().executable().schedule().instructions.size();
  };
  const auto conv = [&](const Array& a, const Array& b) {
    return conv_general_dilated(a, b, last);
  };
  EXPECT_EQ(n_instructions(conv), 1u);
  EXPECT_EQ(
      n_instructions([&](const Array& a, const Array& b) { return conv(relu(conv(a, b)), b); }),
      3u);
  const auto layers = jit([&](const Array& a, const Array& b) { return relu(conv(a, b)); })
                          .lower(x, k).compile();
  const Kernel* const reader = layers.executable().schedule().instructions.back().kernel();
  ASSERT_NE(reader, nullptr);
  EXPECT_TRUE(is_contiguous(reader->inputs[0]));
  // Where a reader sees the channels first as well, they stay there.
  const auto both = [&](const Array& a, const Array& b) {
    const Array y = conv_general_dilated(transpose(a, {0, 3, 1, 2}), transpose(b, {3, 2, 0, 1}),
                                         {.padding = "SAME"});
    return std::pair(y, transpose(y, {0, 2, 3, 1}) * 2.0);
  };
  EXPECT_EQ(n_instructions(both), 2u);
}

// Both of its units read x and dy and wait for nothing else.
TEST(Fuse, TheGradientOfANormIsOneRowProgram) {
  const auto gradient = [](const Array& x, const Array& w, const Array& dy) {
    return vjp([](const Array& a, const Array& b) { return rms_norm(a, b); }, x, w).second(dy);
  };
  EXPECT_EQ(n_row_programs(jit(gradient).lower(kX, kWeight, kX).compile().executable()), 1);
}

// Work that only needs what the forward part, or its repetition, has made does not join that
// program if it then waits for a later product, as a derivative does, beside a value that waits as
// well.
TEST(Fuse, DerivativesAreTakenWhereTheyAreNeeded) {
  constexpr int kLayers = 6;
  constexpr int64_t kRows = 4096, kColumns = 64;
  using Weights = std::vector<Array>;
  struct Net {
    std::string name;
    std::function<Array(const Array&, const Array&)> layer;
    double plain, repeated;  // activations beside the layers' own
  };
  const Net nets[] = {
      {"cos(tanh(h w))", [](const Array& h, const Array& w) { return cos(tanh(matmul(h, w))); },
       1.5, 3.5},
      {"tanh(cos(h) w)", [](const Array& h, const Array& w) { return tanh(matmul(cos(h), w)); },
       1.5, 2.5},
      {"h + tanh(h w)", [](const Array& h, const Array& w) { return h + tanh(matmul(h, w)); }, 3.5,
       3.5}};
  for (const Net& net : nets) {
    const auto loss = [&](const Weights& ws, const Array& x) {
      Array h = x;
      for (const Array& w : ws) h = net.layer(h, w);
      return sum(square(h));
    };
    const auto activations = [&](auto f) {
      const auto compiled = jit(grad(f))
                                .lower(Weights(kLayers, Array::abstract({kColumns, kColumns})),
                                       Array::abstract({kRows, kColumns}))
                                .compile();
      return static_cast<double>(compiled.memory_analysis().device().temp_bytes) /
             (4.0 * kRows * kColumns);
    };
    EXPECT_LT(activations(loss), kLayers + net.plain) << net.name;
    EXPECT_LT(activations(checkpoint(loss, nothing_saveable())), kLayers + net.repeated)
        << net.name;
  }
}

// What a product reads would wait for the other gradient beside it.
TEST(Fuse, ANormThatAThirdReadsStaysApartFromItsGradient) {
  const auto gradient = [](const Array& x, const Array& w, const Array& dy) {
    const auto [y, back] = vjp([](const Array& a, const Array& b) { return rms_norm(a, b); }, x, w);
    return std::pair(matmul(transpose(y), dy), back(dy));
  };
  EXPECT_EQ(n_row_programs(jit(gradient).lower(kX, kWeight, kX).compile().executable()), 2);
}

// The comparison of targets with columns waits for nothing and comes to the softmax; neither it nor
// the iota in it is ever an array.
TEST(Fuse, TheGradientOfACrossEntropyIsOneRowProgramOverTheLogits) {
  const auto loss = [](const Array& logits, const Array& targets) {
    return value_and_grad([&](const Array& x) { return mean(cross_entropy(x, targets)); })(logits);
  };
  const auto compiled =
      jit(loss).lower(kX, Array::abstract(Shape{64}, DType::kI32)).compile();
  int n = 0;
  for (const Instruction& instruction : compiled.executable().schedule().instructions) {
    const Kernel* kernel = instruction.kernel();
    if (kernel == nullptr || kernel->kind != KernelKind::kRows) continue;
    n += Shape(kernel->program->dims).elems() == 64 * 32;
    EXPECT_TRUE(kernel->program->dims != Dims{32}) << "an iota";
  }
  EXPECT_EQ(n, 1);
}

// ---- row programs behind products ----

int n_epilogues(const Executable& executable) {
  int n = 0;
  for_each_kernel(executable.schedule().instructions, [&](const Kernel& kernel) {
    n += kernel.op == OpKind::kDotGeneral && kernel.program != nullptr;
  });
  return n;
}

int n_prologues(const Executable& executable) {
  int n = 0;
  for_each_kernel(executable.schedule().instructions, [&](const Kernel& kernel) {
    for (const Kernel::Prologue& prologue : kernel.prologues) n += prologue.program != nullptr;
  });
  return n;
}

// `f` compiled; its results have the bits that they have with every op a kernel of its own.
template <typename F, typename... Args>
auto compiled_with_the_bits_of_single_ops(const F& f, const CompileOptions& options,
                                          const Args&... args) {
  CompileOptions apart;
  apart.fuse = apart.reuse = false;
  const auto lowered = jit(f).lower(args...);
  const auto compiled = lowered.compile(options);
  const auto got = tree_leaves(compiled(args...)),
             want = tree_leaves(lowered.compile(apart)(args...));
  for (size_t i = 0; i < want.size(); ++i) {
    const std::vector<float> a = got[i].astype(DType::kF32).template to_vector<float>();
    const std::vector<float> b = want[i].astype(DType::kF32).template to_vector<float>();
    EXPECT_EQ(std::memcmp(a.data(), b.data(), 4 * b.size()), 0) << "result " << i;
  }
  return compiled;
}
// How many products of `f` are followed by a program; results as above.
template <typename F, typename... Args>
int epilogues_of(const F& f, const Args&... args) {
  CompileOptions all;
  all.least_epilogue = 0;
  return n_epilogues(compiled_with_the_bits_of_single_ops(f, all, args...).executable());
}

Array values(uint64_t seed, const Shape& shape, DType dtype = DType::kF32) {
  return random::normal(random::key(seed), shape).astype(dtype);
}

// How many row programs over `elems` points or more `f` is, loops' bodies once; results as above.
template <typename F, typename... Args>
int row_programs_of(int64_t elems, const F& f, const Args&... args) {
  int n = 0;
  const auto compiled = compiled_with_the_bits_of_single_ops(f, {}, args...);
  for_each_kernel(compiled.executable().schedule().instructions, [&](const Kernel& kernel) {
    n += kernel.kind == KernelKind::kRows && Shape(kernel.program->dims).elems() >= elems;
  });
  return n;
}

// The halves of a rotary embedding: the gradient turns what it has computed.
TEST(Fuse, WhatIsComputedAndThenReversedIsComputedBackwards) {
  const Array x = values(1, {6, 4, 2, 16}), c = values(2, {6, 1, 1, 16}),
              s = values(3, {6, 1, 2, 16});
  const auto turn = [](const Array& a, const Array& by, const Array& across) {
    return a * by + flip(a, 2) * across;
  };
  EXPECT_EQ(row_programs_of(1, turn, x, c, s), 1);
  const auto gradient = [&](const Array& a, const Array& by, const Array& across, const Array& d) {
    return vjp([&](const Array& in) { return turn(in, by, across); }, a).second(d);
  };
  EXPECT_EQ(row_programs_of(1, gradient, x, c, s, values(4, {6, 4, 2, 16})), 1);
  // Over several axes, through more than one op, and as the result itself.
  const auto chain = [](const Array& a, const Array& b) { return flip(exp(a * b) - b, {0, 2}); };
  EXPECT_EQ(row_programs_of(1, chain, x, values(5, {6, 4, 2, 16})), 1);
  // What others read as well is made once.
  const auto shared = [](const Array& a, const Array& b) {
    const Array p = a * b;
    return std::pair(p, flip(p, 1) + b);
  };
  EXPECT_EQ(row_programs_of(1, shared, x, values(5, {6, 4, 2, 16})), 2);
}

// What a loop stacks in another shape than it computes it in.
TEST(Fuse, AStackedReshapeIsMadeInItsPlace) {
  const auto loop = [](const Array& h, const Array& steps) {
    const auto body = [](const Array& a, const Array& s) {
      const Array b = tanh(a * s);
      return std::pair(b, (b * 2.0).reshape({4, 2, 3}));
    };
    return scan(body, h, steps);
  };
  // The body, and the copy of the first carry.
  EXPECT_EQ(row_programs_of(24, loop, values(1, {4, 6}), values(2, {5, 4, 6})), 2);
}

TEST(Epilogue, IsWhatReadsAProductPieceByPiece) {
  for (const DType t : {DType::kF32, DType::kBF16})
    for (const int64_t k : {40, 700}) {
      const Array x = values(1, {2, 150, 48}, t), a = values(2, {2, 150, k}, t);
      const Array w = values(3, {k, 48}, t), b = values(4, {48}, t), w2 = values(5, {48, k}, t);
      SCOPED_TRACE(fmt::format("{} {}", dtype_name(t), k));
      // A residual, and what it is added to.
      EXPECT_EQ(epilogues_of([](const Array& r, const Array& m, const Array& m2) {
                  return r + matmul(tanh(matmul(r, m2)), m);
                }, x, w, w2), 2);
      // A bias and an activation; then again.
      EXPECT_EQ(epilogues_of(
                    [](const Array& h, const Array& m, const Array& bias, const Array& m2) {
                      const Array inner = gelu(matmul(h, m) + bias);
                      return tanh(matmul(inner, m2));
                    },
                    a, w, b, w2),
                2);
      // Whole rows: a softmax of a product.
      EXPECT_EQ(
          epilogues_of([](const Array& h, const Array& m) { return softmax(matmul(h, m)); }, a, w),
          1);
      // A gate: the later product is followed.
      EXPECT_EQ(epilogues_of([](const Array& h, const Array& m) {
                  return silu(matmul(h, m)) * matmul(h, m * 0.5);
                }, a, w), 1);
      // Rows over columns in memory.
      EXPECT_EQ(epilogues_of(
                    [](const Array& h, const Array& m) {
                      return exp(matmul(swapaxes(m, 0, 1),
                                        swapaxes(h, 1, 2).reshape({300, -1}).reshape({-1, 300})));
                    },
                    a, w),
                1);
    }
}

TEST(Epilogue, NeedsAProductThatNothingElseReadsAndMemoryThatIsThere) {
  const Array a = values(1, {96, 40}), w = values(2, {40, 64});
  // Others read it.
  EXPECT_EQ(epilogues_of([](const Array& x, const Array& m) {
              const Array p = matmul(x, m);
              return std::pair(p, exp(p));
            }, a, w), 0);
  // Few rows that are needed whole, whose columns threads share; and little at all.
  const auto count = [](const auto& f, const Array& x, const Array& m) {
    return n_epilogues(jit(f).lower(x, m).compile().executable());
  };
  const auto rows = [](const Array& x, const Array& m) { return softmax(matmul(x, m)); };
  const auto points = [](const Array& x, const Array& m) { return exp(matmul(x, m)); };
  EXPECT_EQ(count(rows, values(1, {64, 40}), values(2, {40, 256})), 1);
  EXPECT_EQ(count(rows, values(1, {63, 40}), values(2, {40, 512})), 0);
  EXPECT_EQ(count(points, values(1, {8, 40}), values(2, {40, 2048})), 1);
  EXPECT_EQ(count(points, a, w), 0);
  // Sums over rows, and results of another size.
  EXPECT_EQ(epilogues_of([](const Array& x, const Array& m) { return sum(exp(matmul(x, m)), {0}); },
                         a, w),
            0);
  EXPECT_EQ(epilogues_of([](const Array& x, const Array& m) {
              return matmul(x, m).astype(DType::kBF16);
            }, a, w), 0);
  // With a batch.
  EXPECT_EQ(epilogues_of([](const Array& x, const Array& m) { return exp(matmul(x, m)); },
                         values(1, {3, 96, 40}), values(2, {3, 40, 64})), 0);
  // What else it reads comes after the product.
  EXPECT_EQ(epilogues_of([](const Array& x, const Array& m) {
              const Array p = matmul(x, m);
              return p + sum(sort(x.reshape({-1})));
            }, a, w), 0);
  EXPECT_EQ(epilogues_of([](const Array& x, const Array& m) { return exp(matmul(x, m)); },
                         Array(values(1, {96, 0})), values(2, {0, 64})), 1);
}

// An update of an argument that is given away lies over it.
TEST(Epilogue, LeavesAnUpdateInPlace) {
  const Array w = values(1, {64, 48}), x = values(2, {80, 64}), dy = values(3, {80, 48});
  const auto update = [](const Array& m, const Array& a, const Array& d) {
    return m - matmul(swapaxes(a, 0, 1), d) * 0.1;
  };
  EXPECT_EQ(epilogues_of(update, w, x, dy), 0);
}

// How many operands of products of `f` are made in passing; results as above.
template <typename F, typename... Args>
int prologues_of(const F& f, const Args&... args) {
  epilogues_of(f, args...);
  CompileOptions all;
  all.least_epilogue = 0;
  return n_prologues(jit(f).lower(args...).compile(all).executable());
}

TEST(Prologue, MakesAnOperandThatNothingElseReads) {
  for (const DType t : {DType::kF32, DType::kBF16})
    for (const int64_t k : {40, 700}) {
      SCOPED_TRACE(fmt::format("{} {}", dtype_name(t), k));
      const Array x = values(1, {2, 150, k}, t), w = values(2, {k, 70}, t);
      // Weights that are cast; of either operand.
      const auto cast = [&](const Array& a, const Array& m) {
        const DType other = t == DType::kF32 ? DType::kBF16 : DType::kF32;
        return matmul(a.astype(other), m.astype(other));
      };
      EXPECT_EQ(prologues_of(cast, x, w), 2);
      // Not much work, which might be done several times.
      EXPECT_EQ(
          prologues_of([](const Array& a, const Array& m) { return matmul(silu(a) * a, m); }, x, w),
          0);
      EXPECT_EQ(
          prologues_of([](const Array& a, const Array& m) { return matmul(a, exp(m)); }, x, w), 0);
      // Sums over rows: a gradient of weights. The left operand is stored with k outside.
      EXPECT_EQ(prologues_of([](const Array& a, const Array& d) {
                  return dot_general(a * 2.0, d * 0.5, {0, 1}, {0, 1});
                }, x, values(3, {2, 150, 33}, t)), 2);
      // Beside an epilogue, and added to a sum.
      EXPECT_EQ(
          prologues_of([](const Array& a, const Array& m) { return tanh(matmul(a * a, m)); }, x, w),
          1);
      EXPECT_EQ(prologues_of([](const Array& a, const Array& m) {
                  return matmul(a, m) + matmul(a * a, m);
                }, x, w), 1);
      // Broadcasts and iotas are steps.
      EXPECT_EQ(prologues_of([](const Array& a, const Array& m) {
                  const Array rows = iota(a.shape(), 2, DType::kF32).astype(a.dtype());
                  return matmul(a * rows + m.slice(1, 0, 1).reshape({-1}), m);
                }, x, w), 1);
    }
}

TEST(Prologue, NeedsMemoryThatIsThereAndASoleReader) {
  const Array x = values(1, {90, 40}), w = values(2, {40, 64});
  EXPECT_EQ(prologues_of([](const Array& a, const Array& m) {
              const Array s = a * 2.0;
              return std::pair(matmul(s, m), s);
            }, x, w), 0);
  EXPECT_EQ(prologues_of(
                [](const Array& a, const Array& m) { return matmul(swapaxes(a * 2.0, 0, 1), m); },
                values(1, {40, 90}), w),
            0);
  EXPECT_EQ(
      prologues_of([](const Array& a, const Array& m) { return matmul(softmax(a), m); }, x, w), 0);
  // Two arrays that would live on for one.
  EXPECT_EQ(prologues_of([](const Array& a, const Array& m) {
              return matmul(cumsum(a, 0) * cumsum(a, 1), m);
            }, x, w), 0);
  EXPECT_EQ(prologues_of(
                [](const Array& a, const Array& m) { return matmul(cumsum(a, 0) * 0.5, m); }, x, w),
            1);
}

// A loop over layers, and its gradient, under each policy.
TEST(Epilogue, OfALoopOverLayersKeepsBits) {
  const Array x = values(1, {128, 32});
  const std::pair<Array, Array> w = {values(2, {4, 32, 80}) * 0.2, values(3, {4, 80, 32}) * 0.2};
  for (const PolicyPtr& policy : {everything_saveable(), nothing_saveable(), dots_saveable()}) {
    const auto loss = [&](const Array& h, const std::pair<Array, Array>& m) {
      const auto layer = checkpoint(
          [](const Array& in, const std::pair<Array, Array>& of) {
            return in + matmul(silu(matmul(in, of.first)), of.second);
          },
          policy);
      return sum(square(scan(layer, h, m)));
    };
    EXPECT_GE(epilogues_of(grad<0, 1>(loss), x, w), 1) << policy->name;
  }
}

}  // namespace
}  // namespace stow
