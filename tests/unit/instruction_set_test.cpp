#include "stowage/runtime/cpu/kernels/instruction_set.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cstdlib>

#include "stowage/runtime/cpu/kernels/gemm_thread.h"

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

TEST_F(InstructionSet, RefusesOtherNames) {
  const Result<void> refused = limit("avx3");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error(),
            "STOW_ISA = 'avx3'; it may be avx512, avx2 or baseline, or not set for all that the "
            "machine has");
}

}  // namespace
}  // namespace stow::cpu
