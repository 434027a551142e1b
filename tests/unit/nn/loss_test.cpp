// The loss in chunks: the values and gradients of the loss over all logits, without all logits; and
// products that add to the sums which its loop carries, with the bits of an addition.
#include "stowage/nn/loss.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/core/sums.h"
#include "stowage/stowage.h"

namespace stow {
namespace {

using ::testing::HasSubstr;

struct Case {
  int64_t batch, length, chunk;
};
// The boundaries that SkyRL tx tests: chunks that divide the tokens, that do not, that are longer.
constexpr Case kCases[] = {{2, 4, 3}, {2, 4, 8}, {2, 4, 16}, {1, 8, 3}, {4, 1, 2}, {1, 1, 1}};
constexpr int64_t kWidth = 6, kVocab = 11;

Array hidden_of(const Case& c) {
  return random::normal(random::key(1), {c.batch, c.length, kWidth});
}
Array targets_of(const Case& c) {
  return random::randint(random::key(3), {c.batch, c.length}, 0, kVocab);
}
Array head() { return random::normal(random::key(2), {kWidth, kVocab}); }

Array whole(const Array& h, const Array& w, const Array& t) {
  return mean(cross_entropy(matmul(h, w.astype(h.dtype())), t));
}

void expect_near(const Array& a, const Array& b, double tolerance, const std::string& what) {
  const std::vector<float> x = a.to_vector<float>(), y = b.to_vector<float>();
  ASSERT_EQ(x.size(), y.size());
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], y[i], tolerance) << what << " " << i;
}

template <typename Call>
std::string message(Call call) {
  try {
    call();
  } catch (const TraceError& e) {
    return e.what();
  }
  return "none";
}

TEST(LinearCrossEntropy, IsTheMeanOverAllLogits) {
  for (const Case& c : kCases)
    for (const DType compute : {DType::kF32, DType::kBF16}) {
      const std::string what =
          fmt::format("{} {} {} {}", c.batch, c.length, c.chunk, dtype_name(compute));
      const Array h = hidden_of(c).astype(compute), w = head(), t = targets_of(c);
      const auto run = [&](auto loss) {
        return jit([&](const Array& x, const Array& y) {
          return value_and_grad<0, 1>(
              [&](const Array& p, const Array& q) { return loss(p, q, t) * 3.0; })(x, y);
        })(h, w);
      };
      const auto in_chunks = [&](const Array& x, const Array& y, const Array& z) {
        return nn::linear_cross_entropy(x, y, z, c.chunk);
      };
      const auto [loss, grads] = run(in_chunks);
      const auto [expected, expected_grads] = run(whole);
      const double tolerance = compute == DType::kF32 ? 1e-6 : 2e-2;
      expect_near(loss, expected, 5e-6, what);
      expect_near(std::get<0>(grads).astype(DType::kF32),
                  std::get<0>(expected_grads).astype(DType::kF32), tolerance, what);
      expect_near(std::get<1>(grads), std::get<1>(expected_grads), tolerance, what);
      EXPECT_EQ(std::get<0>(grads).dtype(), compute);
      // Without a derivative, too.
      expect_near(jit(in_chunks)(h, w, t), expected / 3.0, 5e-6, what);
    }
}

TEST(LinearCrossEntropy, OfF64IsF64) {
  const Case& c = kCases[0];
  const Array h = hidden_of(c).astype(DType::kF64), w = head().astype(DType::kF64),
              t = targets_of(c);
  const auto in_chunks = [&](const Array& x, const Array& y) {
    return nn::linear_cross_entropy(x, y, t, c.chunk);
  };
  const auto at_once = [&](const Array& x, const Array& y) { return whole(x, y, t); };
  const auto [loss, grads] = value_and_grad<0, 1>(in_chunks)(h, w);
  const auto [expected, expected_grads] = value_and_grad<0, 1>(at_once)(h, w);
  EXPECT_EQ(loss.dtype(), DType::kF64);
  EXPECT_NEAR(loss.item<double>(), expected.item<double>(), 1e-13);
  EXPECT_LT(max(abs(std::get<0>(grads) - std::get<0>(expected_grads))).item<double>(), 1e-13);
  EXPECT_LT(max(abs(std::get<1>(grads) - std::get<1>(expected_grads))).item<double>(), 1e-13);
  EXPECT_EQ(in_chunks(hidden_of(c), w).dtype(),
            DType::kF32);  // a head of f64 alone does not widen it
}

// Chunks of a product's block change no bit, whatever is left over behind them.
TEST(LinearCrossEntropy, OfF32InBlocksHasTheBitsOfAllLogits) {
  constexpr int64_t width = 130, vocab = 150;  // products that machines with tiles compute on these
  const Array w = random::normal(random::key(2), {width, vocab});
  for (const int64_t length : {100, 256, 257, 300, 400}) {  // 200 to 800 tokens
    const Array h = random::normal(random::key(1), {2, length, width});
    const Array t = random::randint(random::key(3), {2, length}, 0, vocab);
    const auto run = [&](auto loss) {
      return jit([&](const Array& x, const Array& y) {
        return value_and_grad<0, 1>([&](const Array& p, const Array& q) { return loss(p, q, t); })(
            x, y);
      })(h, w);
    };
    const auto in_chunks = [](const Array& x, const Array& y, const Array& z) {
      return nn::linear_cross_entropy(x, y, z, kProductBlock);
    };
    const auto [loss, grads] = run(in_chunks);
    const auto [expected, expected_grads] = run(whole);
    EXPECT_EQ(loss.item<float>(), expected.item<float>()) << length;
    EXPECT_EQ(std::get<0>(grads).to_vector<float>(), std::get<0>(expected_grads).to_vector<float>())
        << length;
    EXPECT_EQ(std::get<1>(grads).to_vector<float>(), std::get<1>(expected_grads).to_vector<float>())
        << length;
    EXPECT_EQ(jit(in_chunks)(h, w, t).item<float>(), expected.item<float>()) << length;
  }
}

TEST(LinearCrossEntropy, NeverHoldsAllLogits) {
  constexpr int64_t tokens = 512, width = 8, vocab = 1000;
  const auto bytes_of = [&](int64_t chunk) {
    return jit([=](const Array& h, const Array& w, const Array& t) {
             return value_and_grad<0, 1>([&](const Array& x, const Array& y) {
               return chunk > 0 ? nn::linear_cross_entropy(x, y, t, chunk) : whole(x, y, t);
             })(h, w);
           })
        .lower(Array::abstract(Shape{tokens, width}), Array::abstract(Shape{width, vocab}),
               Array::abstract(Shape{tokens}, DType::kI32))
        .compile()
        .memory_analysis()
        .device()
        .temp_bytes;
  };
  EXPECT_GT(bytes_of(0), tokens * vocab * 4);
  EXPECT_LT(bytes_of(0), tokens * vocab * 4 * 5 / 4);  // their gradient lies over them
  // Logits of one chunk, some for the rows, and scratch of the products.
  EXPECT_LT(bytes_of(32), tokens * vocab * 4 / 2);
}

TEST(CrossEntropy, WritesItsGradientOverTheLogits) {
  constexpr int64_t tokens = 512, vocab = 1000;
  const auto analysis =
      jit(
          [](const Array& logits, const Array& t) {
            return value_and_grad([&](const Array& x) { return mean(cross_entropy(x, t)); })(
                logits);
          },
          {.donate_argnums = {0}})
          .lower(Array::abstract(Shape{tokens, vocab}), Array::abstract(Shape{tokens}, DType::kI32))
          .compile()
          .memory_analysis()
          .device();
  EXPECT_EQ(analysis.alias_bytes, tokens * vocab * 4);
  EXPECT_LT(analysis.temp_bytes, tokens * vocab * 4 / 8);
}

// Chunks within shares of the batch change the order of the sums alone.
TEST(LinearCrossEntropy, ChunksOfSharesSumToTheSame) {
  const Array h = random::normal(random::key(1), {4, 6, kWidth}), w = head(),
              t = random::randint(random::key(3), {4, 6}, 0, kVocab),
              share = random::uniform(random::key(4), {4, 6});
  using Loss = std::function<Array(const Array&, const Array&, int64_t)>;
  const Loss losses[] = {
      [&](const Array& x, const Array& y, int64_t parts) {
        return nn::linear_cross_entropy(x, y, t, 5, parts);
      },
      [&](const Array& x, const Array& y, int64_t parts) {
        return nn::weighted_linear_cross_entropy(x, y, t, share, 5, parts);
      },
      [&](const Array& x, const Array& y, int64_t parts) {
        return sum(nn::linear_log_probs(x, y, t, 5, {}, parts) * share);
      }};
  for (const Loss& loss : losses) {
    const auto run = [&](int64_t parts) {
      return jit([&](const Array& x, const Array& y) {
        return value_and_grad<0, 1>(
            [&](const Array& p, const Array& q) { return loss(p, q, parts); })(x, y);
      })(h, w);
    };
    const auto one = run(1);
    for (const int64_t parts : {2, 4}) {
      const auto cut = run(parts);
      expect_near(cut.first, one.first, 1e-6, "loss");
      expect_near(std::get<0>(cut.second), std::get<0>(one.second), 1e-6, "hidden");
      expect_near(std::get<1>(cut.second), std::get<1>(one.second), 2e-6, "head");
    }
  }
  EXPECT_THAT(message([&] { nn::linear_cross_entropy(h, w, t, 5, 5); }),
              HasSubstr("expected parts that divide 24 tokens, got 5"));
}

TEST(LinearCrossEntropy, RefusesWhatDoesNotFit) {
  const Array h = Array::abstract(Shape{2, 3, 4}), w = Array::abstract(Shape{4, 7});
  const Array t = Array::abstract(Shape{2, 3}, DType::kI32);
  EXPECT_THAT(message([&] { nn::linear_cross_entropy(h, w, t, 0); }),
              HasSubstr("[linear_cross_entropy] expected a positive chunk, got 0"));
  EXPECT_THAT(message([&] { nn::linear_cross_entropy(h, Array::abstract(Shape{5, 7}), t, 2); }),
              HasSubstr("[linear_cross_entropy] expected floats [..., d] and [d, V], got hidden "
                        "f32[2,3,4] and head f32[5,7]"));
  EXPECT_THAT(
      message([&] {
        nn::linear_cross_entropy(h, w, Array::abstract(Shape{3, 2}, DType::kI32), 2);
      }),
      HasSubstr("[linear_cross_entropy] targets for hidden f32[2,3,4] must be of shape (2,3), "
                "got i32[3,2]"));
}

// One word, some that divide the vocabulary, some that do not, all, and more than all.
constexpr int64_t kBlocks[] = {1, 4, kVocab, 2 * kVocab};

TEST(LinearCrossEntropyInBlocks, IsTheMeanOverAllLogits) {
  for (const int64_t block : kBlocks)
    for (const int axis : {0, 1})
      for (const DType compute : {DType::kF32, DType::kBF16}) {
        const std::string what = fmt::format("{} {} {}", block, axis, dtype_name(compute));
        const Case c = kCases[0];
        const Array h = hidden_of(c).astype(compute), t = targets_of(c);
        const Array w = axis == 1 ? head() : swapaxes(head(), 0, 1);
        const auto turned = [&](const Array& y) { return axis == 1 ? y : swapaxes(y, 0, 1); };
        const auto run = [&](auto loss) {
          return jit([&](const Array& x, const Array& y) {
            return value_and_grad<0, 1>(
                [&](const Array& p, const Array& q) { return loss(p, q) * 3.0; })(x, y);
          })(h, w);
        };
        const auto [loss, grads] = run([&](const Array& x, const Array& y) {
          return nn::linear_cross_entropy_in_blocks(x, y, t, block, axis);
        });
        const auto [expected, expected_grads] =
            run([&](const Array& x, const Array& y) { return whole(x, turned(y), t); });
        const double tolerance = compute == DType::kF32 ? 1e-6 : 2e-2;
        expect_near(loss, expected, 5e-6, what);
        expect_near(std::get<0>(grads).astype(DType::kF32),
                    std::get<0>(expected_grads).astype(DType::kF32), tolerance, what);
        expect_near(std::get<1>(grads), std::get<1>(expected_grads), tolerance, what);
        EXPECT_EQ(std::get<0>(grads).dtype(), compute);
        expect_near(nn::linear_in_blocks(h, w, block, axis).astype(DType::kF32),
                    matmul(h, turned(w).astype(compute)).astype(DType::kF32), tolerance, what);
      }
}

// Infinite logits, and targets that are no words, as without blocks.
TEST(LinearCrossEntropyInBlocks, SpecialValuesAreThoseOfAllLogits) {
  const Array h = Array::from<float>({1, -1, 1, 1, 0}, {5, 1});
  constexpr float infinity = std::numeric_limits<float>::infinity();
  using Row = std::vector<float>;
  for (const Row& row : {Row{3, -200, 100}, Row{1, infinity, 2}, Row{-infinity, -infinity, 5},
                       Row{-infinity, -infinity, -infinity}})
    for (const std::vector<int32_t>& targets :
         {std::vector<int32_t>{0, 1, 2, 0, 1}, std::vector<int32_t>{0, 3, -1, 7, 2}})
      for (const int64_t block : {1, 2, 3}) {
        const Array w = Array::from<float>(row, {1, 3}), t = Array::from<int32_t>(targets, {5});
        for (int64_t i = 0; i < 5; ++i) {
          const Array x = h.slice(0, i, i + 1), y = t.slice(0, i, i + 1);
          const float a = nn::linear_cross_entropy_in_blocks(x, w, y, block).item<float>();
          const float b = whole(x, w, y).item<float>();
          if (std::isnan(b))
            EXPECT_TRUE(std::isnan(a)) << a << " " << block << " " << i;
          else if (std::isinf(b))
            EXPECT_EQ(a, b) << block << " " << i;
          else
            EXPECT_NEAR(a, b, 1e-5 * std::abs(b)) << block << " " << i;
        }
      }
}

TEST(LinearCrossEntropyInBlocks, SecondDerivativesAreThoseOfAllLogits) {
  const Case c = kCases[0];
  const Array h = hidden_of(c), w = head(), t = targets_of(c);
  const auto run = [&](auto loss) {
    return grad([&](const Array& y) {
      return sum(square(grad([&](const Array& z) { return loss(h, z); })(y)));
    })(w);
  };
  expect_near(run([&](const Array& x, const Array& y) {
                return nn::linear_cross_entropy_in_blocks(x, y, t, 4);
              }),
              run([&](const Array& x, const Array& y) { return whole(x, y, t); }), 1e-6, "");
}

// A head on the host comes in, and its gradient leaves, block by block.
TEST(LinearCrossEntropyInBlocks, NeverHoldsAWholeHead) {
  constexpr int64_t tokens = 64, width = 128, vocab = 5000, block = 64;
  for (const int axis : {0, 1}) {
    const Shape shape = axis == 1 ? Shape{width, vocab} : Shape{vocab, width};
    const auto memory =
        jit([=](const Array& h, const Array& w, const Array& t) {
          return value_and_grad<0, 1>([&](const Array& x, const Array& y) {
            return nn::linear_cross_entropy_in_blocks(x, y, t, block, axis) * 0.5;
          })(h, w);
        })
            .lower(Array::abstract(Shape{tokens, width}),
                   Array::abstract({DType::kF32, shape, MemoryKind::kPinnedHost}),
                   Array::abstract(Shape{tokens}, DType::kI32))
            .compile()
            .memory_analysis();
    EXPECT_LT(memory.device().total_bytes, shape.elems() * 4 / 4) << axis;
  }
}

TEST(LinearCrossEntropyInBlocks, RefusesWhatDoesNotFit) {
  const Array h = Array::abstract(Shape{2, 3, 4}), w = Array::abstract(Shape{4, 7});
  const Array t = Array::abstract(Shape{2, 3}, DType::kI32);
  EXPECT_THAT(
      message([&] { nn::linear_cross_entropy_in_blocks(h, w, t, 0); }),
      HasSubstr("[linear_cross_entropy_in_blocks] expected a block of at least 1 word, got 0"));
  EXPECT_THAT(message([&] { nn::linear_cross_entropy_in_blocks(h, w, t, 2, 2); }),
              HasSubstr("expected axis 0 or 1 of the head, got 2"));
  EXPECT_THAT(
      message([&] { nn::linear_cross_entropy_in_blocks(h, w, t, 2, 0); }),
      HasSubstr("expected floats [..., d] and [V, d], got hidden f32[2,3,4] and head f32[4,7]"));
  EXPECT_THAT(message([&] {
                nn::linear_cross_entropy_in_blocks(h, w, Array::abstract(Shape{2, 3}), 2);
              }),
              HasSubstr("targets must be integers, got f32[2,3]"));
  EXPECT_THAT(message([&] { nn::linear_in_blocks(h, Array::abstract(Shape{4, 0}), 2); }),
              HasSubstr("[linear_in_blocks] expected a head with words, got f32[4,0]"));
}

// Sums of products over the slices of a scan, as gradients of what a loop reads are.
TEST(Accumulation, AProductAddsToTheSumWithTheSameBits) {
  constexpr int64_t n = 5, m = 96, d = 128;
  const auto sums = [](auto add) {
    return jit([=](const Array& start, const std::pair<Array, Array>& ab) {
      return scan(
          [=](const Array& total, const std::pair<Array, Array>& x) {
            return add(total, matmul(swapaxes(x.first, 0, 1), x.second));
          },
          start, ab);
    });
  };
  for (const int64_t k : {200, 300}) {
    const Array start = random::normal(random::key(1), {m, d});
    const std::pair<Array, Array> ab = {random::normal(random::key(2), {n, k, m}),
                                        random::normal(random::key(3), {n, k, d})};
    const auto lowered =
        sums([](const Array& a, const Array& b) { return b + a; }).lower(start, ab);
    CompileOptions plain;
    plain.fuse = plain.reuse = false;
    const std::vector<float> expected = lowered.compile(plain)(start, ab).to_vector<float>();
    EXPECT_EQ(lowered.compile()(start, ab).to_vector<float>(), expected) << k;
    if (k > 256) continue;  // needs a place for partial sums
    // A product by itself needs room beside the sum.
    const auto temp_bytes = [](const auto& compiled) {
      return compiled.memory_analysis().device().temp_bytes;
    };
    const auto apart = sums([](const Array& a, const Array& b) { return a - b; }).lower(start, ab);
    EXPECT_EQ(temp_bytes(apart.compile()) - temp_bytes(lowered.compile()), m * d * 4);
  }
}

}  // namespace
}  // namespace stow
