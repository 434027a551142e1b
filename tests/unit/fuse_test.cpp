// What the compiler makes one row program of, where that shows in its schedule alone.
#include <gtest/gtest.h>

#include "stowage/api/grad.h"
#include "stowage/api/jit.h"
#include "stowage/api/linalg.h"
#include "stowage/api/nn.h"
#include "stowage/api/reduce.h"
#include "stowage/api/shaping.h"
#include "stowage/ir/schedule.h"

namespace stow {
namespace {

int n_row_programs(const Executable& executable) {
  int n = 0;
  for (const Instruction& instruction : executable.schedule().instructions)
    n += instruction.kernel() != nullptr && instruction.kernel()->kind == KernelKind::kRows;
  return n;
}

const Array kX = Array::abstract(Shape{64, 32}), kWeight = Array::abstract(Shape{32});

// Both of its units read x and dy and wait for nothing else.
TEST(Fuse, TheGradientOfANormIsOneRowProgram) {
  const auto gradient = [](const Array& x, const Array& w, const Array& dy) {
    return vjp([](const Array& a, const Array& b) { return rms_norm(a, b); }, x, w).second(dy);
  };
  EXPECT_EQ(n_row_programs(jit(gradient).lower(kX, kWeight, kX).compile().executable()), 1);
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

}  // namespace
}  // namespace stow
