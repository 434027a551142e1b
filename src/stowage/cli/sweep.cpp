#include <algorithm>
#include <thread>

#include <CLI/CLI.hpp>

#include "stowage/base/atomic_file.h"
#include "stowage/base/bytes.h"
#include "stowage/base/progress.h"
#include "stowage/cli/arguments.h"
#include "stowage/cli/commands.h"
#include "stowage/cli/process_group.h"
#include "stowage/io/json.h"
#include "stowage/io/trace.h"
#include "stowage/runtime/null/collective_time.h"
#include "stowage/train/finetune_model.h"
#include "stowage/train/forecast.h"
#include "stowage/train/plan_page.h"
#include "stowage/train/replication.h"
#include "stowage/train/sweep_planner.h"

namespace stow {
namespace {

// The options that a sweep has alone.
struct SweepOptions {
  int64_t devices = 0;
  std::vector<std::string> meshes;
  std::vector<int64_t> batches;
  std::vector<std::string> policies;
  std::string take_path;
};

void add_sweep_options(CLI::App& app, SweepOptions& options) {
  app.add_option("--devices", options.devices, "Plans all meshes of this number of devices")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  app.add_option("--mesh", options.meshes, "Plans this mesh; may be given again")
      ->type_name("data=N,model=M")
      ->allow_extra_args(false);
  app.add_option("--batch", options.batches, "A data.batch to plan; may be given again")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30))
      ->allow_extra_args(false);
  app.add_option("--policy", options.policies, "A memory.policy to plan; may be given again")
      ->type_name("NAME")
      ->allow_extra_args(false);
  app.add_option("--take", options.take_path, "Writes the configuration of the best mesh to FILE")
      ->type_name("FILE.toml");
}

Result<std::vector<SweepMesh>> meshes(const SweepOptions& options,
                                      const std::optional<DeviceDescription>& device) {
  if (options.meshes.empty() == (options.devices == 0))
    return fail("sweep: expected --devices N, or --mesh once a mesh, got {}",
                options.meshes.empty() ? "neither" : "both");
  if (options.meshes.empty()) {
    std::vector<int64_t> blocks;
    if (device)
      for (const auto& level : device->network) blocks.push_back(level.devices);
    return meshes_of(options.devices, blocks);
  }
  std::vector<SweepMesh> meshes;
  for (const std::string& text : options.meshes) {
    Result<SweepMesh> mesh = parse_sweep_mesh(text);
    if (!mesh) return fail("--mesh: {}", mesh.error());
    meshes.push_back(*mesh);
  }
  return meshes;
}

std::vector<SweepPoint> points_of(const SweepOptions& options, const std::vector<SweepMesh>& meshes,
                                  const TrainConfig& config) {
  const auto or_one = [](const auto& given, const auto& one) {
    return given.empty() ? std::decay_t<decltype(given)>{one} : given;
  };
  std::vector<SweepPoint> points;
  for (const SweepMesh& mesh : meshes)
    for (const int64_t batch : or_one(options.batches, config.data.batch))
      for (const std::string& policy : or_one(options.policies, config.memory.policy))
        points.push_back({mesh, batch, policy});
  return points;
}

// Writes the configuration of a point.
Result<void> take(const std::string& path, const ConfigSources& sources, const SweepPoint& point) {
  const Result<TrainConfig> config = config_of(sources, point);
  if (!config) return config.failure();
  Result<AtomicFile> file = AtomicFile::create(path);
  if (!file) return file.failure();
  const std::string text = config_toml(*config);
  if (Result<void> written = file->write(std::as_bytes(std::span(text))); !written)
    return written.failure();
  return file->commit();
}

// Writes the page of the best point's plan, with the table.
Result<void> write_page(AtomicFile& file, const ConfigSources& sources,
                        const std::optional<DeviceDescription>& device, bool is_named,
                        std::span<const SweepRow> rows, size_t best) {
  const SweepPoint& point = rows[best].point;
  Result<TrainConfig> config = config_of(sources, point);
  if (!config) return config.failure();
  const Result<ModelFactory> factory = model_factory(*config);
  if (!factory) return factory.failure();
  const Job job(*config, threads_per_device(point.mesh.size()), *factory,
                device_to_plan_for(*config, device, is_named));
  const Budgets budgets = budgets_of(*config, config->memory.device);
  const Choice choice = choose_plan(job, budgets);
  Json report = Json::object();
  add_replication(report, find_replication(job, *choice.plan, budgets));
  return write_plan_page(file, {.job = job,
                                .choice = choice,
                                .budgets = budgets,
                                .plan = *choice.plan,
                                .report = report,
                                .remedies = {},
                                .near = {},
                                .sweep = rows});
}

// Why there are no times, where there are none.
std::string why_no_times(const std::optional<DeviceDescription>& device,
                         const std::vector<SweepMesh>& meshes) {
  if (!device)
    return "no step times: name a device with --device-description, or measure this machine with "
           "./stowage calibrate\n";
  const auto largest =
      std::max_element(meshes.begin(), meshes.end(),
                       [](const auto& a, const auto& b) { return a.size() < b.size(); });
  const Result<void> connected = check_network(*device, {{"devices"}, {largest->size()}});
  return connected ? "" : fmt::format("no step times: {}\n", connected.error());
}

}  // namespace

Result<int> run_sweep(std::span<const std::string> arguments) {
  SweepOptions options;
  Result<CommandLine> line =
      parse_train_arguments("sweep",
                            "Plans a training run over the meshes of a number of devices, without "
                            "any of them: peak, step time, "
                            "and the largest batch that fits.",
                            arguments, [&](CLI::App& app) { add_sweep_options(app, options); });
  if (!line) return line.failure();
  if (!line->help.empty()) {
    fmt::print("{}", line->help);
    return kExitDone;
  }
  if (line->resume) return fail("sweep: --resume has no effect: nothing is run; leave it out");
  std::FILE* const out = line->json_path == "-" ? stderr : stdout;
  Result<std::optional<DeviceDescription>> device = forecast_device(
      line->device, threads_per_device(std::max<int64_t>(options.devices, 1)));
  if (!device) return device.failure();
  const Result<std::vector<SweepMesh>> chosen = meshes(options, *device);
  if (!chosen) return chosen.failure();
  // A device that was named has so much memory, unless a budget was given.
  ConfigSources sources = line->sources;
  std::optional<int64_t> budget = line->config.memory.device;
  if (!budget && !line->device.empty()) {
    budget = (*device)->memory.device;
    sources.memory = fmt::format("{}", *budget);
  }
  Result<std::optional<JsonLines>> json = open_json(line->json_path);
  if (!json) return json.failure();
  Result<std::optional<AtomicFile>> page = open_trace(line->html_path);
  if (!page) return page.failure();

  const std::vector<SweepPoint> points = points_of(options, *chosen, line->config);
  const int at_once = static_cast<int>(std::thread::hardware_concurrency());
  const bool is_named = !line->device.empty();
  const JobPlanner planner(sources, *device, budget, threads_per_device, is_named);
  std::vector<SweepRow> rows;
  {
    const ProgressScope progress(fmt::format("planning {} meshes", points.size()));
    rows = sweep(planner, points, at_once);
  }
  if (std::none_of(rows.begin(), rows.end(), [](const auto& row) { return row.is_planned(); }))
    return fail("sweep: no mesh is possible: {}: {}", to_string(rows[0].point.mesh),
                rows[0].impossible);
  const std::optional<size_t> best = best_row(rows);
  for (size_t i = 0; i < rows.size(); ++i)
    if (Result<void> written = write_json(*json, to_json(rows[i], best == i)); !written)
      return written.failure();
  fmt::print(out, "budget of each device: {}\n{}{}",
             budget ? format_bytes(*budget) : "none given, none assumed", sweep_table(rows),
             why_no_times(*device, *chosen));
  if (best)
    fmt::print(out, "* the most tokens a second within the budget: {}\n",
               to_string(rows[*best].point.mesh));
  if (options.take_path.empty() && !page->has_value()) return kExitDone;
  if (!best)
    return fail("{}: no mesh {}", *page ? "--html" : "--take",
                budget ? "fits the budget and has a step time" : "has a step time");
  if (*page)
    if (Result<void> written = write_page(**page, sources, *device, is_named, rows, *best);
        !written)
      return written.failure();
  if (options.take_path.empty()) return kExitDone;
  if (Result<void> taken = take(options.take_path, sources, rows[*best].point); !taken)
    return fail("--take: {}", taken.error());
  fmt::print(out, "wrote {}\n", options.take_path);
  return kExitDone;
}

}  // namespace stow
