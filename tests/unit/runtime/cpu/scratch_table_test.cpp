// Scratch that is kept is that of the same program computed anew.
#include <gtest/gtest.h>

#include "stowage/base/inside.h"
#include "stowage/ir/schedule_walk.h"
#include "stowage/passes/lower.h"
#include "stowage/runtime/cpu/bound_kernel.h"
#include "stowage/runtime/cpu/scratch_table.h"
#include "stowage/stowage.h"
#include "tests/support/realized.h"

namespace stow {
namespace {

TEST(ScratchTable, IsThatOfThePrograms) {
  const auto f = [](const Array& x) {
    std::vector<Array> results;
    for (DType dtype : {DType::kF32, DType::kBF16, DType::kF64}) {
      const Array y = astype(x, dtype);
      results.push_back(softmax(y));
      results.push_back(y / sqrt(mean(square(y), {1}, true)));
      results.push_back(y - mean(y, {0}, true));
      results.push_back(cumsum(y, 1) + y);
    }
    return results;
  };
  std::vector<Schedule> schedules;
  for (const Shape& shape : {Shape{4, 8}, Shape{300, 7}, Shape{2, 5000}, Shape{5000, 2}}) {
    LowerOptions options;
    schedules.push_back(
        lower(testing::realized(jit(f).lower(Array::abstract(shape)).graph()), options));
  }
  for (const int threads : {1, 4}) {
    cpu::ScratchTable table;
    int64_t n_rows = 0, most = 0;
    for (int round = 0; round < 2; ++round)
      for (const Schedule& schedule : schedules)
        for_each_kernel(schedule.instructions, [&](const Kernel& kernel) {
          const int64_t bytes = cpu::kernel_scratch_bytes(kernel, threads);
          EXPECT_EQ(table.scratch_bytes(kernel, threads), bytes);
          n_rows += kernel.kind == KernelKind::kRows;
          most = std::max(most, bytes);
        });
    EXPECT_GT(n_rows, 20);
    EXPECT_GT(most, 0);
  }
}

}  // namespace
}  // namespace stow
