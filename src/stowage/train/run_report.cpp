#include "stowage/train/run_report.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "stowage/base/bytes.h"
#include "stowage/base/median.h"
#include "stowage/io/checkpoint_file.h"
#include "stowage/io/trace.h"
#include "stowage/tune/kernel_times.h"

namespace stow {
namespace {

constexpr size_t kShownWaits = 5;
constexpr int64_t kTimedSteps = 20;  // steps of a trace, whose kernel times are kept

std::string format_duration(double seconds) {
  const int64_t s = static_cast<int64_t>(seconds + 0.5);
  if (s < 60) return fmt::format("{}s", s);
  if (s < 3600) return fmt::format("{}m{:02}s", s / 60, s % 60);
  return fmt::format("{}h{:02}m", s / 3600, s / 60 % 60);
}

BytesByKind measured_bytes(const Device& device) {
  return {device.high_water_bytes(MemoryKind::kDevice),
          device.high_water_bytes(MemoryKind::kPinnedHost),
          device.high_water_bytes(MemoryKind::kDisk)};
}

Json number_or_null(const std::optional<double>& number) { return number ? Json(*number) : Json(); }

}  // namespace

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

RunReport::RunReport(const Job& job, const JobPlan& plan, const Budgets& budgets,
                     const RunOptions& options, Positions& positions)
    : job_(job),
      config_(job.config()),
      plan_(plan),
      budget_bytes_(budgets[0].value_or(Device::unlimited_bytes())),
      options_(options),
      positions_(positions),
      device_(&positions.device(0)) {}

Result<void> RunReport::open_trace() {
  Result<std::optional<AtomicFile>> trace = stow::open_trace(options_.trace_path);
  if (!trace) return trace.failure();
  if (*trace) trace_.emplace(std::move(**trace));
  return {};
}

void RunReport::begin(int64_t first_step) {
  begin_s_ = now_s();
  first_step_ = first_step;
}

void RunReport::end_line() {
  if (has_open_line_) fmt::print(options_.text, "\n");
  has_open_line_ = false;
}

void RunReport::say_disk() {
  if (const Disk* disk = used_disk())
    say("disk: a file in {}, moved by {}{}\n", disk->folder(), disk_engine_name(disk->engine()),
        disk->direct() ? "" : " through the page cache");
}

// Returns the third step, when memory has been touched and later steps are alike, or the last step
// of a shorter run.
int64_t RunReport::first_traced() const {
  return std::min(first_step_ + 2, config_.train.steps - 1);
}

bool RunReport::is_traced(int64_t step) const {
  return !options_.trace_path.empty() && step >= first_traced() &&
         step < first_traced() + kTimedSteps;
}

Result<void> RunReport::end_of_step(int64_t step, size_t shape) {
  if (!is_traced(step)) return {};
  const Schedule& schedule = plan_.programs.step_of(shape)->schedule();
  const std::vector<RunEvent> events = recorder_.take();
  replay(schedule, events);
  if (step > first_traced()) return {};
  if (Result<void> written =
          write_trace(*trace_, trace_run(schedule, events, fmt::format("step {}", step + 1)));
      !written)
    return written;
  end_line();
  const Simulation use = summarize_run(schedule, events);
  say("step {} is in {}: {}, of which compute waited {} for transfers\n{}{}", step + 1,
      options_.trace_path, format_seconds(use.step_s), format_seconds(use.exposed_s),
      waits_table(schedule, events, kShownWaits), streams_table(use));
  return {};
}

// Simulates the step with the measured time of each kernel, and notes the difference from the
// step's time as a share of that time. It shows the error in order, overlap and waiting.
void RunReport::replay(const Schedule& schedule, std::span<const RunEvent> events) {
  KernelTimes times;
  times.add(events);
  SimulateOptions options;
  options.measured_s = [&](const Kernel& k, int64_t run) {
    return std::max(0.0, times.seconds(k, run));
  };
  // No figure of the device counts, since every kernel was measured.
  const double simulated_s = simulate(schedule, {}, options).step_s;
  const double measured_s = summarize_run(schedule, events).step_s;
  replay_errors_.push_back(std::abs(simulated_s / measured_s - 1));
}

Result<void> RunReport::step(const StepFigures& f) {
  shapes_run_.insert(f.shape);
  step_s_.push_back(f.seconds);
  if (first_loss_ < 0) first_loss_ = f.loss;
  last_loss_ = f.loss;
  if (!options_.json) return {};
  return options_.json->write(Json::object({{"step", f.step},
                                            {"loss", static_cast<double>(f.loss)},
                                            {"loss_hex", hex_float(f.loss)},
                                            {"grad_norm", static_cast<double>(f.norm)},
                                            {"lr", static_cast<double>(f.lr)},
                                            {"tokens_per_s", f.tokens_per_s}}));
}

void RunReport::progress(const StepFigures& f) {
  if (!options_.text) return;
  const bool terminal = isatty(fileno(options_.text));
  const double now = now_s();
  const bool last = f.step == config_.train.steps;
  if (!last && f.step > first_step_ + 1 && now - shown_s_ < (terminal ? 0.1 : 5.0)) return;
  shown_s_ = now;
  const double per_step = (now - begin_s_) / static_cast<double>(f.step - first_step_);
  const std::string line = fmt::format(
      "step {}/{}  loss {:.4f}  norm {:.3f}  lr {:.2e}  {:.0f} tok/s  peak {} of {}  {} left",
      f.step, config_.train.steps, f.loss, f.norm, f.lr, f.tokens_per_s,
      format_bytes(device_->high_water_bytes(MemoryKind::kDevice)), format_bytes(budget_bytes_),
      format_duration(per_step * static_cast<double>(config_.train.steps - f.step)));
  if (terminal) {
    fmt::print(options_.text, "\r\x1b[K{}", line);
    has_open_line_ = true;
  } else {
    fmt::print(options_.text, "{}\n", line);
  }
  std::fflush(options_.text);
}

// Returns the device's disk; null if the plan uses none.
const Disk* RunReport::used_disk() {
  return plan_.peak_bytes[static_cast<size_t>(MemoryKind::kDisk)] > 0 ? &device_->disk() : nullptr;
}
Json RunReport::disk_json() {
  const Disk* disk = used_disk();
  if (!disk) return Json();
  return Json::object({{"folder", disk->folder()},
                       {"engine", disk_engine_name(disk->engine())},
                       {"direct", disk->direct()}});
}

// True if any step of that phase's shape of batch was run.
bool RunReport::has_run_step(const std::string& phase) const {
  return std::any_of(shapes_run_.begin(), shapes_run_.end(),
                     [&](size_t shape) { return step_phase(shape) == phase; });
}

// Returns the peak and the lower bound of this run's programs. A resumed run has no initialisation,
// and may have no step left.
std::pair<BytesByKind, BytesByKind> RunReport::bounds() const {
  // State and frozen weights exist in any run.
  BytesByKind held{};
  for (size_t i = 0; i < job_.state().size() + job_.frozen().size(); ++i) {
    const ArrayType& type = plan_.programs.step->input_types()[i];
    held[static_cast<size_t>(type.kind)] += type.bytes();
  }
  std::pair result(held, held);
  for (const JobPlan::Phase& phase : plan_.phases) {
    const ProgramKind program = program_kind(phase.name);
    if (program == ProgramKind::kInit && options_.resume) continue;
    if (program == ProgramKind::kStep && !has_run_step(phase.name)) continue;
    for (size_t kind = 0; kind < result.first.size(); ++kind) {
      result.first[kind] = std::max(result.first[kind], phase.peak_bytes[kind]);
      result.second[kind] = std::max(result.second[kind], phase.lower_bound_bytes[kind]);
    }
  }
  return result;
}

void RunReport::say_figures() {
  int64_t measured = 0;
  for (const BytesByKind& bytes : measured_everywhere()) measured = std::max(measured, bytes[0]);
  say("peak: predicted {} bytes, measured {} bytes ({}) of {}\n", bounds().first[0], measured,
      format_bytes(measured), format_bytes(budget_bytes_));
  if (const int64_t window = positions_.window_bytes(); window > 0)
    say("window: planned {} bytes a device, mapped {} bytes for all devices that share it\n",
        config_.runtime.window_bytes, window);
  const double step_s = median(step_s_);
  const bool has_steps = !step_s_.empty();
  if (has_steps)
    say("step: {}measured {}, the median of {}\n",
        options_.predicted_step_s && shapes_run_ == std::set<size_t>{0}
            ? fmt::format("predicted {}, ", format_seconds(*options_.predicted_step_s))
            : std::string(),
        format_seconds(step_s), step_s_.size());
  if (!replay_errors_.empty())
    say("order and overlap, simulated with each step's own kernel times, are {:.1f} % off, the "
        "median of {} steps\n",
        100 * median(replay_errors_), replay_errors_.size());
}

// Returns the peaks of all devices of all processes, in the order of ranks. All processes call it.
std::vector<BytesByKind> RunReport::measured_everywhere() {
  std::vector<int64_t> here;
  for (size_t p = 0; p < positions_.size(); ++p)
    for (const int64_t bytes : measured_bytes(positions_.device(p))) here.push_back(bytes);
  std::vector<BytesByKind> all;
  for (const std::vector<int64_t>& there :
       positions_.gather_over_processes(here, "the devices' peaks"))
    for (size_t i = 0; i < there.size(); i += kNumMemoryKinds) {
      BytesByKind& bytes = all.emplace_back();
      std::copy_n(there.begin() + static_cast<std::ptrdiff_t>(i), bytes.size(), bytes.begin());
    }
  return all;
}

Result<void> RunReport::write_summary(const RunEnd& end) {
  const std::vector<BytesByKind> measured = measured_everywhere();
  if (!options_.json) return {};
  // An interrupted run also reports the bounds of the whole run.
  const auto [predicted, lower_bound] = bounds();
  Json devices = Json::array();
  BytesByKind most{};
  for (size_t rank = 0; rank < measured.size(); ++rank) {
    for (size_t kind = 0; kind < most.size(); ++kind)
      most[kind] = std::max(most[kind], measured[rank][kind]);
    devices.push_back(Json::object({{"rank", static_cast<int64_t>(rank)},
                                    {"device", device_->name()},
                                    {"predicted_peak_bytes", bytes_json(predicted)},
                                    {"measured_peak_bytes", bytes_json(measured[rank])}}));
  }
  const bool has_steps = !step_s_.empty();
  return options_.json->write(
      Json::object({{"summary", true},
                    {"status", end.status},
                    {"steps", end.step},
                    {"policy", policy_name(plan_.placement.policy)},
                    {"placement", to_string(plan_.placement)},
                    {"first_loss", has_steps ? Json(first_loss_) : Json()},
                    {"last_loss", has_steps ? Json(last_loss_) : Json()},
                    {"validation_loss", number_or_null(end.validation_loss)},
                    {"best_validation_loss", end.best ? Json(end.best->loss) : Json()},
                    {"best_step", end.best ? Json(end.best->step) : Json()},
                    {"best_checkpoint",
                     end.best ? Json(checkpoint_path(config_.train.out, end.best->step)) : Json()},
                    {"test_loss", number_or_null(end.test_loss)},
                    {"predicted_peak_bytes", bytes_json(predicted)},
                    {"measured_peak_bytes", bytes_json(most)},
                    {"devices", devices},
                    {"window_bytes", positions_.window_bytes()},
                    {"planned_window_bytes_of_device", config_.runtime.window_bytes},
                    {"reduce", config_.runtime.reduce},
                    {"lower_bound_bytes", bytes_json(lower_bound)},
                    {"data_path", config_.data.path},
                    {"disk", disk_json()},
                    {"compile_s", plan_.plan_s},
                    {"predicted_step_s", number_or_null(options_.predicted_step_s)},
                    {"measured_step_s", has_steps ? Json(median(step_s_)) : Json()},
                    {"checkpoint", end.checkpoint}}));
}

}  // namespace stow
