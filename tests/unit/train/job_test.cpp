// The names of a run's phases, and the use of the program that each names.
#include <gtest/gtest.h>

#include "stowage/base/inside.h"
#include "stowage/train/job.h"

namespace stow {
namespace {

TEST(Phases, NamesSayTheUseOfTheirProgram) {
  EXPECT_EQ(step_phase(0), "step");
  EXPECT_EQ(step_phase(2), "step (batch shape 2)");
  for (const size_t shape : {0u, 1u, 12u})
    EXPECT_EQ(program_kind(step_phase(shape)), ProgramKind::kStep) << shape;
  EXPECT_EQ(program_kind(kInitPhase), ProgramKind::kInit);
  EXPECT_EQ(program_kind(kEvalPhase), ProgramKind::kEval);
  EXPECT_EQ(program_kind(kSamplePhase), ProgramKind::kSample);
}

}  // namespace
}  // namespace stow
