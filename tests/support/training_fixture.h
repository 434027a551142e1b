// TrainingFixture: a fixture that trains on the host's target or OtherTarget; OnEachTarget: on
// both. Not tests of a target's kernels; those are in tests/conformance/targets_test.cpp.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "stowage/train/trainer.h"
#include "tests/support/other_target.h"

namespace stow::testing {

enum class TrainingTarget { kHost, kOther };

/// Trains jobs on host_target(), or on OtherTarget after train_on(TrainingTarget::kOther).
class TrainingFixture : public ::testing::Test {
 protected:
  /// `threads`: threads of the target, at least 1.
  explicit TrainingFixture(int threads) : target_(host_target(threads)) {}
  /// Fails the test if it chose OtherTarget, but no kernel has run there.
  ~TrainingFixture() override;

  /// Chooses the target of the jobs that follow.
  void train_on(TrainingTarget target);
  /// The target of all jobs that run() gets.
  const TargetPtr& target() const { return target_; }

  /// Calls run_training() on a device of target() whose capacities are the peaks that the choice's
  /// plan predicts. Fails the test if the job is of another target.
  Result<int> run(const Job& job, const Choice& choice, RunOptions options) const;

 private:
  TargetPtr target_;
  std::shared_ptr<const OtherTarget> other_;  // null until it is chosen
};

/// The tests of `Fixture`, a TrainingFixture, that run on each target:
///   using TrainOnEachTarget = testing::OnEachTarget<Train>;
///   INSTANTIATE_TEST_SUITE_P(, TrainOnEachTarget, testing::each_target(), testing::target_name);
///   TEST_P(TrainOnEachTarget, Resumes) { … }  // TrainOnEachTarget.Resumes/host and …/other
template <class Fixture>
class OnEachTarget : public Fixture, public ::testing::WithParamInterface<TrainingTarget> {
 protected:
  OnEachTarget() { Fixture::train_on(GetParam()); }
};

inline auto each_target() {
  return ::testing::Values(TrainingTarget::kHost, TrainingTarget::kOther);
}
inline std::string target_name(const ::testing::TestParamInfo<TrainingTarget>& info) {
  return info.param == TrainingTarget::kHost ? "host" : "other";
}

}  // namespace stow::testing
