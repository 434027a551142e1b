// RunReport: the output of a training run about its steps: text, JSON lines, the trace of a step.
// Not the plan before it (describe.cpp), nor the curves for TensorBoard (progress_events.h).
#pragma once

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "stowage/base/atomic_file.h"
#include "stowage/base/inside.h"
#include "stowage/io/json.h"
#include "stowage/train/job.h"
#include "stowage/train/positions.h"
#include "stowage/train/trainer.h"
#include "stowage/tune/run_trace.h"

namespace stow {

/// Seconds on a monotonic clock.
double now_s();

/// The figures of one finished step.
struct StepFigures {
  int64_t step = 0;                     ///< Number of the step, counted from 1.
  float loss = 0, norm = 0, lr = 0;     ///< `norm`: the global norm of the gradients.
  double seconds = 0, tokens_per_s = 0;
  size_t shape = 0;  ///< Index of the shape of its batch in the plan.
};

/// The best evaluation, whose checkpoint is kept (eval.keep_best).
struct BestEvaluation {
  int64_t step = 0;
  double loss = 0;
};

/// How a run ended.
struct RunEnd {
  const char* status = "";
  int64_t step = 0;  ///< Steps done, including those before a resumption.
  std::optional<double> validation_loss, test_loss;
  std::optional<BestEvaluation> best;
  std::string checkpoint;  ///< Path of the last checkpoint; "" for none.
};

/// The arguments of the constructor must outlive the report. Functions marked "All processes call
/// it" run collectives: every process of the run calls them at the same point.
class RunReport {
 public:
  RunReport(const Job& job, const JobPlan& plan, const Budgets& budgets, const RunOptions& options,
            Positions& positions);

  /// Opens the trace file, if the options ask for a trace. Errors: "PATH: reason".
  Result<void> open_trace();
  /// Starts the clock. `first_step`: number of the next step, counted from 0.
  void begin(int64_t first_step);

  /// Prints a text to options.text, if that is set.
  template <typename... Args>
  void say(fmt::format_string<Args...> format, Args&&... args) {
    if (!options_.text) return;
    fmt::print(options_.text, format, std::forward<Args>(args)...);
    std::fflush(options_.text);
  }
  /// Ends the progress line on a terminal, if there is one.
  void end_line();
  /// Prints the path of the file that backs the disk memory kind, if the plan uses it.
  void say_disk();

  /// The observer for step `step`, counted from 0; null if the step is not traced.
  RunObserver* observer(int64_t step) { return is_traced(step) ? &recorder_ : nullptr; }
  /// Called after each step. If the step is traced, simulates it with the measured kernel times;
  /// after the first traced step, writes the trace file. `step`: counted from 0. `shape`: as in
  /// StepFigures.
  /// Errors: "PATH: reason" of the trace file.
  Result<void> end_of_step(int64_t step, size_t shape);
  /// Records a step's figures, and writes them as a JSON line. Errors: of that file.
  Result<void> step(const StepFigures& figures);
  /// Updates the progress line, at intervals.
  void progress(const StepFigures& figures);

  /// Prints the peak, the communication window, the time of a step and the simulation's error. All
  /// processes call it.
  void say_figures();
  /// Writes the summary as JSON. All processes call it. Errors: of that file.
  Result<void> write_summary(const RunEnd& end);

 private:
  bool is_traced(int64_t step) const;
  int64_t first_traced() const;
  void replay(const Schedule& schedule, std::span<const RunEvent> events);
  const Disk* used_disk();
  Json disk_json();
  bool has_run_step(const std::string& phase) const;
  std::pair<BytesByKind, BytesByKind> bounds() const;
  std::vector<BytesByKind> measured_everywhere();

  const Job& job_;
  const TrainConfig& config_;
  const JobPlan& plan_;
  int64_t budget_bytes_;
  const RunOptions& options_;
  Positions& positions_;
  Device* device_;  // the first device of this process
  int64_t first_step_ = 0;
  double begin_s_ = 0, shown_s_ = 0;
  bool has_open_line_ = false;
  std::vector<double> step_s_, replay_errors_;
  double first_loss_ = -1, last_loss_ = -1;
  std::set<size_t> shapes_run_;
  RunRecorder recorder_;
  std::optional<AtomicFile> trace_;
};

}  // namespace stow
