// Reductions of columns of f32 at every width: the bits of a fold row by row, with NaNs and zeros
// of either sign, which the machine's own maximum and minimum get wrong.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "stowage/runtime/cpu/kernels/row_kernels.h"
#include "stowage/runtime/cpu/kernels/row_scalar.h"
#include "tests/support/on_target.h"

namespace stow::cpu {
namespace {

float folded(OpKind op, float a, float b) {
  if (op == OpKind::kReduceMax) return scalar::Binary<OpKind::kMax, float>::apply(a, b);
  if (op == OpKind::kReduceMin) return scalar::Binary<OpKind::kMin, float>::apply(a, b);
  return op == OpKind::kReduceSum ? a + b : a * b;
}

void check_columns() {
  const float inf = std::numeric_limits<float>::infinity();
  std::mt19937 engine(3);
  std::normal_distribution<float> normal;
  for (OpKind op :
       {OpKind::kReduceSum, OpKind::kReduceProd, OpKind::kReduceMax, OpKind::kReduceMin}) {
    const ReduceKernels kernels = reduce_kernels(op, DType::kF32);
    for (int64_t cols = 1; cols <= 150; ++cols) {
      for (int64_t rows : {0, 1, 2, 9}) {
        // Everyday numbers; with NaNs and infinities; zeros of either sign, and what loses to them.
        for (int kind : {0, 1, 2}) {
          const bool special = kind == 1;
          const int64_t step = cols + 3;
          std::vector<float> x(static_cast<size_t>(rows * step), 1e30f);
          for (float& v : x) v = normal(engine);
          if (special)
            for (float& v : x) {
              const std::array<float, 5> odd = {0.0f, -0.0f, inf, -inf, std::nanf("")};
              if (engine() % 4 == 0) v = odd[engine() % 5];
            }
          std::vector<float> acc(static_cast<size_t>(cols + 1)), want;
          for (float& v : acc) v = special && engine() % 8 == 0 ? std::nanf("") : normal(engine);
          if (kind == 2)
            for (auto* list : {&x, &acc})
              for (float& v : *list) {
                const std::array<float, 3> low = {0.0f, -0.0f,
                                                  op == OpKind::kReduceMax ? -1.0f : 1.0f};
                v = low[engine() % 3];
              }
          want = acc;
          for (int64_t r = 0; r < rows; ++r)
            for (int64_t i = 0; i < cols; ++i) {
              float& to = want[static_cast<size_t>(i)];
              to = folded(op, to, x[static_cast<size_t>(r * step + i)]);
            }
          ReduceColumnsCall call;
          call.rows = rows;
          call.cols = cols;
          call.arg.data = reinterpret_cast<const std::byte*>(x.data());
          call.arg.row_step = step * int64_t{sizeof(float)};
          call.acc = reinterpret_cast<std::byte*>(acc.data());
          kernels.columns(call);
          for (size_t i = 0; i < acc.size(); ++i) {
            const bool both_nan = std::isnan(acc[i]) && std::isnan(want[i]);
            ASSERT_TRUE(both_nan ||
                        std::bit_cast<uint32_t>(acc[i]) == std::bit_cast<uint32_t>(want[i]))
                << op_name(op) << ' ' << rows << " rows, column " << i << " of " << cols << ": "
                << acc[i] << " not " << want[i];
          }
        }
      }
    }
  }
}

TEST(FoldColumns, HaveTheBitsOfAFoldRowByRow) {
  check_columns();
}
TEST(FoldColumns, OfEveryTargetHaveTheBitsOfAFoldRowByRow) {
  for (int64_t target : {int64_t{HWY_AVX2}, int64_t{HWY_EMU128}}) {
    if (target != int64_t{HWY_EMU128} && (hwy::SupportedTargets() & target) == 0) continue;
    SCOPED_TRACE(hwy::TargetName(target));
    const OnTarget held(target);
    check_columns();
  }
}

}  // namespace
}  // namespace stow::cpu
