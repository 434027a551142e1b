// TrainingFixture: a fixture that trains on the host's target or OtherTarget; OnEachTarget: on
// both; Outcome: how a training ended. Not tests of a target's kernels; those are in
// tests/conformance/targets_test.cpp.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stowage/train/trainer.h"
#include "tests/support/other_target.h"
#include "tests/support/temporary_folder.h"

namespace stow::testing {

enum class TrainingTarget { kHost, kOther };

/// How a training ended, and what it wrote.
struct Outcome {
  int status = -1;                  ///< run_training()'s; -1: there is an error.
  std::string error;                ///< run_training()'s; kRefused: no plan fits the budgets.
  std::vector<std::string> losses;  ///< The loss of each step, as a hex float.
  std::vector<Json> lines;          ///< The lines of steps and validations.
  Json summary;                     ///< Null if the run wrote none.

  static constexpr const char* kRefused = "refused";

  /// Returns the finite numbers under `key` in `lines`.
  std::vector<double> numbers(std::string_view key) const;
  /// Returns the measured peak of device memory, in bytes. Aborts if there is no summary.
  int64_t device_peak() const;
};

/// Returns the losses of a run and then those of the run that resumed it.
std::vector<std::string> joined_losses(const Outcome& first, const Outcome& second);

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

  /// Chooses the job's plan within the budgets of its configuration, with `budget` as the device's,
  /// calls run() and reads the lines that it wrote to lines_path(). Fails the test if the status
  /// is 0, but the measured peak is not the predicted one.
  Outcome train_job(const Job& job, std::optional<int64_t> budget, bool resume) const;
  /// train_job() without a run to resume, or with one; fails the test unless the status is 0.
  Outcome train_to_its_end(const Job& job, std::optional<int64_t> budget, bool resume) const;
  /// Returns the configuration of a short run of a model that draws its own batches of `batch` rows.
  TrainConfig config_without_data(const std::string& name, int64_t steps, int64_t batch) const;
  std::string lines_path() const { return folder_ / "out.jsonl"; }

  TemporaryFolder folder_;  // of the test's files

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
