// RunReport: what a training run tells of its steps: lines for people, JSON, the trace of a step.
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

/// Seconds of a clock that only goes forward.
double now_s();

/// The figures of one step, which ended as number `step`, counted from 1.
struct StepFigures {
  int64_t step = 0;
  float loss = 0, norm = 0, lr = 0;
  double seconds = 0, tokens_per_s = 0;
  size_t shape = 0;  ///< Shape of its batch.
};

/// The evaluation whose checkpoint stays (eval.keep_best).
struct BestEvaluation {
  int64_t step = 0;
  double loss = 0;
};

/// How a run ended.
struct RunEnd {
  const char* status = "";
  int64_t step = 0;  ///< Steps done, those before a resumption among them.
  std::optional<double> validation_loss, test_loss;
  std::optional<BestEvaluation> best;
  std::string checkpoint;  ///< The last; "" for none.
};

/// The job, the plan, the options and the positions outlive it. Where it says so, all processes of a run
/// call it at the same place.
class RunReport {
 public:
  RunReport(const Job& job, const JobPlan& plan, const Budgets& budgets, const RunOptions& options,
            Positions& positions);

  /// Opens the file of the trace, if one is asked for. Errors: "PATH: reason".
  Result<void> open_trace();
  /// Starts the clock of a run whose next step is number `first_step`, counted from 0.
  void begin(int64_t first_step);

  /// Prints a text to options.text, if that is set.
  template <typename... Args>
  void say(fmt::format_string<Args...> format, Args&&... args) {
    if (!options_.text) return;
    fmt::print(options_.text, format, std::forward<Args>(args)...);
    std::fflush(options_.text);
  }
  /// Ends the line that a terminal shows of the progress.
  void end_line();
  /// Says where the file of the disk's memory lies, if the plan uses it.
  void say_disk();

  /// The observer for step `step`, counted from 0: null where it is not part of the trace.
  RunObserver* observer(int64_t step) { return is_traced(step) ? &recorder_ : nullptr; }
  /// Writes the trace after the first traced step, and replays each. To be called after each step.
  /// Errors: of the file.
  Result<void> end_of_step(int64_t step, size_t shape);
  /// Takes a step's figures in, and writes its JSON object. Errors: of the file.
  Result<void> step(const StepFigures& figures);
  /// Shows the progress, at intervals.
  void progress(const StepFigures& figures);

  /// Prints peak, window, the time of a step, the error of the simulation. All processes call it.
  void say_figures();
  /// Writes the summary as JSON. All processes call it. Errors: of the file.
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
  Device* device_;  // the first here
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
