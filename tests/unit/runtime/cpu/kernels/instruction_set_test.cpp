#include "stowage/runtime/cpu/kernels/instruction_set.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cstdlib>
#include <functional>

#include "stowage/runtime/cpu/kernels/gemm_thread.h"
#include "stowage/stowage.h"

namespace stow::cpu {
namespace {

class InstructionSet : public ::testing::Test {
 protected:
  void TearDown() override {
    unsetenv("STOW_ISA");
    EXPECT_TRUE(limit_instruction_set().ok());
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  static Result<void> limit(const char* name) {
    setenv("STOW_ISA", name, 1);
    return limit_instruction_set();
  }
};

TEST_F(InstructionSet, NothingIsHeldUnlessAskedFor) {
  const int64_t all = hwy::SupportedTargets();
  EXPECT_TRUE(limit_instruction_set().ok());
  EXPECT_TRUE(limit("").ok());
  EXPECT_EQ(hwy::SupportedTargets(), all);
}

TEST_F(InstructionSet, HoldsKernelsToAvx2) {
  EXPECT_TRUE(limit("avx2").ok());
  EXPECT_EQ(hwy::SupportedTargets() & (HWY_AVX2 - 1), 0);
  EXPECT_FALSE(gemm_target_is_avx512());
  EXPECT_FALSE(can_multiply_pairs());
  EXPECT_FALSE(can_multiply_tiles());
}

TEST_F(InstructionSet, HoldsKernelsToAvx512WithoutTiles) {
  const int64_t all = hwy::SupportedTargets();
  EXPECT_TRUE(limit("avx512").ok());
  EXPECT_EQ(hwy::SupportedTargets(), all);
  EXPECT_FALSE(can_multiply_tiles());
}

TEST_F(InstructionSet, HoldsKernelsToTheBaseline) {
  EXPECT_TRUE(limit("baseline").ok());
  EXPECT_EQ(hwy::SupportedTargets() & (HWY_AVX2 | (HWY_AVX2 - 1)), 0);
}

// What the environment says holds in a program that knows nothing of it, whatever it does first.
// Each runs in a process of its own, as the environment is read once.
TEST_F(InstructionSet, HoldsInEveryProgram) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const struct {
    const char* name;
    std::function<void()> run;
  } rows[] = {
      {"an operation", [] { (ones({2}) + 1).to_vector<float>(); }},
      {"a device",
       [] {
         Device::virtual_device({1 << 20, 1 << 20, 0});
       }},
      {"a compilation",
       [] { jit([](const Array& x) { return x + 1; }).lower(Array::abstract({2})).compile(); }},
  };
  for (const auto& row : rows) {
    const auto under = [&](const char* isa) {
      setenv("STOW_ISA", isa, 1);
      try {
        row.run();
      } catch (const TraceError& error) {
        fmt::print(stderr, "{}", error.what());
        std::exit(3);
      }
      fmt::print(stderr, "{}{}{}", gemm_target_is_avx512(), can_multiply_tiles(),
                 (hwy::SupportedTargets() & (HWY_AVX2 - 1)) != 0);
      std::exit(0);
    };
    EXPECT_EXIT(under("avx2"), ::testing::ExitedWithCode(0), "falsefalsefalse") << row.name;
    EXPECT_EXIT(under("nonsense"), ::testing::ExitedWithCode(3),
                "STOW_ISA = 'nonsense'; it may be avx512, avx2 or baseline")
        << row.name;
  }
}

TEST_F(InstructionSet, RefusesOtherNames) {
  const Result<void> refused = limit("avx3");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error(),
            "STOW_ISA = 'avx3'; it may be avx512, avx2 or baseline, or not set for all that the "
            "machine has");
}

}  // namespace
}  // namespace stow::cpu
