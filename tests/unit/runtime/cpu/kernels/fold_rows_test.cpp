#include "stowage/runtime/cpu/kernels/fold_rows.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/runtime/cpu/kernels/op_types.h"
#include "tests/support/on_target.h"

namespace stow::cpu {
namespace {

using kernels::Acc;

constexpr DType kAllDTypes[] = {DType::kF64, DType::kF32, DType::kBF16, DType::kF16,
                                DType::kI64, DType::kI32, DType::kI8,   DType::kU64,
                                DType::kU32, DType::kU8,  DType::kBool};

template <typename T>
Acc<T> folded(OpKind op, Acc<T> a, Acc<T> b) {
  if (op == OpKind::kScatterAdd) return kernels::add(a, b);
  if (op == OpKind::kScatterMul) return kernels::mul(a, b);
  if (op == OpKind::kScatterMax) return kernels::maximum(a, b);
  return kernels::minimum(a, b);
}

// A row of any bits, so of NaNs, zeros of both signs and infinities too; of equal elements now and
// then.
template <typename T>
std::vector<T> random_row(std::mt19937& rng, size_t n, const std::vector<T>& other) {
  std::vector<T> row(n);
  for (size_t i = 0; i < n; ++i) {
    const uint64_t bits = uint64_t{rng()} << 32 | rng();
    std::memcpy(&row[i], &bits, sizeof(T));
    if constexpr (std::is_same_v<T, kernels::Bool>) row[i].value &= 1;
    const uint32_t kind = rng() % 16;
    if constexpr (kernels::kIsFloat<T>) {
      constexpr double kSpecial[] = {0.0, -0.0, 1.0, -1.0, HUGE_VAL, -HUGE_VAL, NAN, 1e-45};
      if (kind < 8) kernels::store<T>(static_cast<Acc<T>>(kSpecial[kind]), row[i]);
    }
    if (kind == 15 && i < other.size()) row[i] = other[i];
  }
  return row;
}

template <typename T>
bool is_nan(T x) {
  if constexpr (kernels::kIsFloat<T>) return std::isnan(kernels::load(x));
  return false;
}

void check_all() {
  std::mt19937 rng(5);
  for (const DType dtype : kAllDTypes)
    for (const OpKind op :
         {OpKind::kScatterAdd, OpKind::kScatterMul, OpKind::kScatterMax, OpKind::kScatterMin})
      for (size_t n : {0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 65, 100, 129, 1000, 1023})
        kernels::with_dtype(dtype, [&](auto t) {
          using T = decltype(t);
          const std::vector<T> to = random_row<T>(rng, n + 1, {});
          const std::vector<T> from = random_row<T>(rng, n + 1, to);
          std::vector<T> got = to;
          fold_row_kernel(op, dtype)(got.data(), from.data(), static_cast<int64_t>(n));
          for (size_t i = 0; i <= n; ++i) {
            T want = to[i];
            if (i < n)
              kernels::store<T>(folded<T>(op, kernels::load(to[i]), kernels::load(from[i])), want);
            if (i < n && is_nan(want) && is_nan(got[i])) continue;
            ASSERT_EQ(std::memcmp(&got[i], &want, sizeof(T)), 0)
                << op_name(op) << " of " << dtype_name(dtype) << ", element " << i << " of " << n;
          }
        });
}

TEST(FoldRows, HaveTheBitsOfTheElementwiseOps) { check_all(); }

TEST(FoldRows, HaveThemOnEveryInstructionSet) {
  for (int64_t target : {int64_t{HWY_AVX2}, int64_t{HWY_EMU128}}) {
    if (target != int64_t{HWY_EMU128} && (hwy::SupportedTargets() & target) == 0) continue;
    SCOPED_TRACE(hwy::TargetName(target));
    const OnTarget held(target);
    check_all();
  }
}

}  // namespace
}  // namespace stow::cpu
