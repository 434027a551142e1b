#include "tests/support/training_fixture.h"

#include <fstream>

namespace stow::testing {

std::vector<double> Outcome::numbers(std::string_view key) const {
  std::vector<double> found;
  for (const Json& line : lines)
    if (const Json* value = line.find(key))
      if (const Result<double> number = value->as_double()) found.push_back(*number);
  return found;
}

int64_t Outcome::device_peak() const {
  const Json* peaks = summary.find("measured_peak_bytes");
  STOW_CHECK(peaks, "expected the summary of a run, got the error '{}'", error);
  return *peaks->find("device")->as_int();
}

std::vector<std::string> joined_losses(const Outcome& first, const Outcome& second) {
  std::vector<std::string> losses = first.losses;
  losses.insert(losses.end(), second.losses.begin(), second.losses.end());
  return losses;
}

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

Outcome TrainingFixture::train_job(const Job& job, std::optional<int64_t> budget,
                                   bool resume) const {
  Outcome outcome;
  const Choice choice = choose_plan(job, budgets_of(job.config(), budget));
  if (!choice.plan) {
    outcome.error = Outcome::kRefused;
    return outcome;
  }
  {
    Result<JsonLines> json = JsonLines::open(lines_path());  // flushed at the end of this scope
    RunOptions options;
    options.resume = resume;
    options.json = &*json;
    const Result<int> status = run(job, choice, options);
    if (status)
      outcome.status = *status;
    else
      outcome.error = status.error();
  }
  std::ifstream lines(lines_path());
  for (std::string line; std::getline(lines, line);) {
    const Json row = *parse_json(line);
    if (row.find("summary")) {
      outcome.summary = row;
      continue;
    }
    if (const Json* loss = row.find("loss_hex")) outcome.losses.push_back(*loss->as_string());
    outcome.lines.push_back(row);
  }
  if (outcome.status == 0) {
    EXPECT_EQ(*outcome.summary.find("predicted_peak_bytes"),
              *outcome.summary.find("measured_peak_bytes"))
        << job.config().train.out << ": " << to_string(choice.plan->placement);
  }
  return outcome;
}

Outcome TrainingFixture::train_to_its_end(const Job& job, std::optional<int64_t> budget,
                                          bool resume) const {
  const Outcome outcome = train_job(job, budget, resume);
  EXPECT_EQ(outcome.status, 0) << job.config().train.out << ": " << outcome.error;
  return outcome;
}

TrainConfig TrainingFixture::config_without_data(const std::string& name, int64_t steps,
                                                 int64_t batch) const {
  TrainConfig c;
  c.data.path = "none";
  c.data.batch = batch;
  c.data.seq = 1;
  c.train.steps = steps;
  c.train.sample = 0;
  c.train.out = folder_ / name;
  c.optimizer.total_steps = 8;
  c.optimizer.warmup = 2;
  c.optimizer.weight_decay = 0;
  return c;
}

}  // namespace stow::testing
