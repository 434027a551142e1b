#include "tests/support/training_fixture.h"

namespace stow::testing {

TrainingFixture::~TrainingFixture() {
  if (!other_) return;
  EXPECT_GT(other_->n_kernels(), 0) << "no kernel ran on OtherTarget";
}

void TrainingFixture::train_on(TrainingTarget target) {
  const int threads = target_->threads();
  if (target == TrainingTarget::kHost) {
    target_ = host_target(threads);
    return;
  }
  if (!other_) other_ = std::make_shared<const OtherTarget>(threads);
  target_ = other_;
}

Result<int> TrainingFixture::run(const Job& job, const Choice& choice, RunOptions options) const {
  EXPECT_EQ(job.target()->key(), target_->key());
  const BytesByKind& peak = choice.plan->peak_bytes;
  const Budgets budgets = {peak[0], peak[1], peak[2]};
  if (target_ != other_) return run_training(job, choice, budgets, options);
  Positions positions(other_device(peak, target_));
  options.positions = &positions;
  return run_training(job, choice, budgets, options);
}

}  // namespace stow::testing
