#include <omp.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "stowage/base/bytes.h"
#include "stowage/cli/arguments.h"
#include "stowage/cli/commands.h"
#include "stowage/io/json.h"
#include "stowage/runtime/device.h"
#include "stowage/train/dtypes.h"
#include "stowage/train/forecast.h"
#include "stowage/train/kernel_profile.h"
#include "stowage/runtime/target.h"
#include "stowage/train/finetune_model.h"
#include "stowage/train/step_run.h"
#include "stowage/tune/run_trace.h"

namespace stow {
namespace {

constexpr size_t kShown = 16;
constexpr int kSteps = 5;  // behind one that is not counted

using Groups = std::map<std::string, KernelTotals>;

std::vector<std::pair<std::string, KernelTotals>> slowest_first(const Groups& groups) {
  std::vector<std::pair<std::string, KernelTotals>> rows(groups.begin(), groups.end());
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    return a.second.seconds > b.second.seconds;
  });
  return rows;
}

struct Rates {
  double flops_per_s, bytes_per_s;
};

// The forecast, and how the step that was measured compares with it.
std::string beside(const Forecast& forecast, double measured_s) {
  std::string text = to_string(forecast);
  if (forecast.simulation)
    text += fmt::format("the measured step is {:.2f} times the simulated one\n",
                        measured_s / forecast.simulation->step_s);
  return text;
}

void print_groups(std::FILE* out, const char* title, const Groups& groups,
                  const KernelTotals& total, const Rates& best) {
  fmt::print(out, "\n{:<56} {:>6} {:>9} {:>9} {:>6} {:>8} {:>5} {:>7} {:>5}\n", title, "calls",
             "ms", "least ms", "", "GFLOP/s", "", "GB/s", "");
  size_t shown = 0;
  KernelTotals rest;
  const auto line = [&](const std::string& name, const KernelTotals& w) {
    const double flops = w.flops / w.least_seconds, bytes = w.bytes / w.least_seconds;
    fmt::print(out, "{:<56} {:>6} {:>9.2f} {:>9.2f} {:>5.1f}% {:>8} {:>5} {:>7.1f} {:>4.0f}%\n",
               name, w.calls / kSteps, 1e3 * w.seconds / kSteps, 1e3 * w.least_seconds / kSteps,
               100 * w.least_seconds / total.least_seconds,
               w.flops > 0 ? fmt::format("{:.1f}", 1e-9 * flops) : "",
               w.flops > 0 ? fmt::format("{:.0f}%", 100 * flops / best.flops_per_s) : "",
               1e-9 * bytes, 100 * bytes / best.bytes_per_s);
  };
  for (const auto& [name, work] : slowest_first(groups)) {
    if (shown++ < kShown)
      line(name, work);
    else
      rest += work;
  }
  if (shown > kShown) line(fmt::format("{} others", shown - kShown), rest);
}

Json groups_json(const Groups& groups) {
  Json rows = Json::array();
  for (const auto& [name, w] : slowest_first(groups))
    rows.push_back(Json::object({{"name", name},
                                 {"calls", w.calls / kSteps},
                                 {"seconds", w.seconds / kSteps},
                                 {"least_seconds", w.least_seconds / kSteps},
                                 {"flops", w.flops / kSteps},
                                 {"bytes", w.bytes / kSteps}}));
  return rows;
}

}  // namespace

Result<int> run_profile(std::span<const std::string> arguments) {
  Result<CommandLine> line = parse_train_arguments(
      "profile", "Runs some steps on seeded weights and tokens and says where the time goes.",
      arguments);
  if (!line) return line.failure();
  if (!line->help.empty()) {
    fmt::print("{}", line->help);
    return kExitDone;
  }
  if (line->resume)
    return fail("profile: --resume has no effect: it starts from seeded weights; leave it out");
  StepRunOptions options;
  const Result<ModelFactory> factory = model_factory(line->config);
  if (!factory) return factory.failure();
  options.factory = *factory;
  options.config = line->config;
  options.threads = omp_get_max_threads();
  options.budget_bytes = line->config.memory.device.value_or(
      Device::cpu()->capacity_bytes(MemoryKind::kDevice));
  Result<std::optional<DeviceDescription>> device = forecast_device(line->device, options.threads);
  if (!device) return device.failure();
  Result<std::optional<JsonLines>> json = open_json(line->json_path);
  if (!json) return json.failure();
  Result<std::optional<AtomicFile>> trace = open_trace(line->trace_path);
  if (!trace) return trace.failure();
  Result<StepRun> run = StepRun::make(options);
  if (!run) return run.failure();
  const Forecast forecast = forecast_step(run->program(), std::move(*device));
  run->step();  // touches all memory
  KernelProfile profile(options.threads);
  double wall = 0;
  for (int i = 0; i < kSteps; ++i) {
    const double start = steady_seconds();
    run->step(&profile);
    wall += steady_seconds() - start;
  }
  if (*trace) {
    RunRecorder recorder;
    run->step(&recorder);
    const Schedule& schedule = run->program().schedule();
    const Result<void> written = write_trace(**trace, trace_run(schedule, recorder.take(), "step"));
    if (!written) return written.failure();
  }
  const DType compute = dtype_policy(line->config.train.compute).compute;
  const TargetPtr target = host_target(options.threads);
  const Rates best = {target->product_rate(compute),
                      target->triad_rate()};
  const KernelTotals total = profile.total();
  std::FILE* const out = line->json_path == "-" ? stderr : stdout;
  const double tokens = static_cast<double>(
      line->config.data.batch * line->config.data.seq * line->config.data.accumulate);
  fmt::print(out,
             "{:.1f} ms a step ({:.0f} tokens/s), of which {:.1f} ms in kernels; the mean of {} "
             "steps, {} threads, {}\n"
             "{}"
             "this machine reaches {:.1f} GFLOP/s in a product of {} and {:.1f} GB/s in a triad\n"
             "least ms: were all calls of a kernel as fast as its fastest, {:.1f} ms in all; rates "
             "and shares are of these\n"
             "{:.1f} GFLOP a step: {:.1f} ms at that rate\n",
             1e3 * wall / kSteps, tokens * kSteps / wall, 1e3 * total.seconds / kSteps, kSteps,
             options.threads, to_string(run->placement()), beside(forecast, wall / kSteps),
             1e-9 * best.flops_per_s, dtype_name(compute), 1e-9 * best.bytes_per_s,
             1e3 * total.least_seconds / kSteps, 1e-9 * total.flops / kSteps,
             1e3 * total.flops / kSteps / best.flops_per_s);
  print_groups(out, "by op", profile.by_op(), total, best);
  print_groups(out, "by source", profile.by_source(), total, best);
  print_groups(out, "by kernel", profile.by_kernel(), total, best);
  const Result<void> written = write_json(
      *json, Json::object({{"step_s", wall / kSteps},
                           {"predicted_step_s",
                            forecast.simulation ? Json(forecast.simulation->step_s) : Json()},
                           {"kernels_s", total.seconds / kSteps},
                           {"product_flops_per_s", best.flops_per_s},
                           {"triad_bytes_per_s", best.bytes_per_s},
                           {"flops", total.flops / kSteps},
                           {"by_op", groups_json(profile.by_op())},
                           {"by_source", groups_json(profile.by_source())},
                           {"by_kernel", groups_json(profile.by_kernel())}}));
  if (!written) return written.failure();
  return kExitDone;
}

}  // namespace stow
