#include <functional>
#include <optional>

#include "stowage/base/bytes.h"
#include "stowage/cli/arguments.h"
#include "stowage/cli/commands.h"
#include "stowage/cli/process_group.h"
#include "stowage/io/files.h"
#include "stowage/io/trace.h"
#include "stowage/runtime/device.h"
#include "stowage/session/plan_fact.h"
#include "stowage/session/planning_scope.h"
#include "stowage/train/disk_folder.h"
#include "stowage/train/finetune_model.h"
#include "stowage/train/forecast.h"
#include "stowage/train/plan_page.h"
#include "stowage/train/replication.h"
#include "stowage/train/trainer.h"

namespace stow {
namespace {

// People read standard output unless the JSON goes there.
std::FILE* text_stream(const CommandLine& line) { return line.json_path == "-" ? stderr : stdout; }

std::string lines_of(const Replication& replication) {
  std::string text;
  for (const std::string& line : replication_lines(replication)) text += line + "\n";
  return text;
}

// The budgets with enough of what the plan lacks that lacks least.
Budgets raised_for(const Shortfall& first, Budgets budgets) {
  for (size_t kind = 0; kind < budgets.size(); ++kind)
    if (first.over_bytes[kind] > 0) budgets[kind] = first.needed_bytes[kind];
  return budgets;
}

// The page of a refusal: of the plan that lacks least, were there enough of what it lacks.
Result<void> write_refusal_page(AtomicFile& file, const Job& job, const Choice& choice,
                                std::span<const Shortfall> near, std::span<const Remedy> remedies,
                                const Budgets& budgets, const Json& report) {
  const Shortfall& first = near[0];
  const Budgets raised = raised_for(first, budgets);
  return write_plan_page(file, {.job = job,
                                .choice = choice,
                                .budgets = budgets,
                                .plan = job.plan_to_fit(first.placement, raised),
                                .report = report,
                                .remedies = remedies,
                                .near = near});
}

// All processes find the same refusal, and the first says it: `group`, null where nothing is run.
Result<int> refuse(const Job& job, const Choice& choice, const Budgets& budgets,
                   const ProcessGroup* group, std::optional<JsonLines>& json,
                   std::optional<AtomicFile>& page) {
  const std::vector<Shortfall> near = shortfalls(job, choice, budgets);
  const std::vector<Remedy> remedies = refusal_remedies(job, choice, near, budgets);
  const std::string text = describe_refusal(job, choice, near, remedies, budgets);
  Replication replication;
  if (job.mesh().rank() > 0) {
    const Budgets raised = raised_for(near[0], budgets);
    replication = find_replication(job, job.plan_to_fit(near[0].placement, raised), raised);
  }
  std::fflush(stdout);
  if (!group || group->is_first())
    fmt::print(stderr, "stowage: over budget: {}{}", text, lines_of(replication));
  Json report = refusal_json(text.substr(0, text.find('\n')), near[0], budgets);
  if (job.mesh().rank() > 0) add_replication(report, replication);
  if (Result<void> written = write_json(json, report); !written) return written.failure();
  if (page)
    if (Result<void> written =
            write_refusal_page(*page, job, choice, near, remedies, budgets, report);
        !written)
      return written.failure();
  // Whoever started the processes ends all when one has ended.
  if (group)
    if (Result<void> said = process_barrier(*group, "the refusal"); !said) return said.failure();
  return kExitOverBudget;
}

// Runs `attempt`; where the machine refuses what the plan takes, that is written as well.
Result<int> unless_refused(const JobPlan& plan, const Budgets& budgets,
                           std::optional<JsonLines>& json,
                           const std::function<Result<int>()>& attempt) {
  try {
    return attempt();
  } catch (const CapacityError& error) {
    if (const Result<void> written = write_json(
            json, refusal_json(error.what(), {plan.placement, plan.peak_bytes, {}}, budgets));
        !written)
      return written.failure();
    throw;
  }
}

Json owners_json(const JobPlan& plan) {
  Json owners = Json::array();
  for (const PeakOwner& o : plan.peak_owners())
    owners.push_back(Json::object({{"source", o.source}, {"what", o.what}, {"bytes", o.bytes}}));
  return owners;
}

// Describes the exchange of a run over a mesh: the window, and what makes sums.
std::string describe_exchange(const TrainConfig& config, const comm::Window& window) {
  std::string text;
  if (window.bytes > 0)
    text +=
        fmt::format("window: {} of the host's memory, through which {} device{} exchange{}{}\n",
                    format_bytes(window.bytes), window.n_sharers, window.n_sharers == 1 ? "" : "s",
                    window.n_sharers == 1 ? "s" : "",
                    config.is_virtual() && config.memory.host
                        ? fmt::format("; {} of memory.host", format_bytes(window.bytes_of_device()))
                        : std::string());
  if (config.mesh.size() > 1 && config.runtime.reduce == "native")
    text +=
        "sums over devices: runtime.reduce = native; under mpirun Open MPI makes them, and their bits depend "
        "on it and on the number of processes; elsewhere they are those of tree\n";
  return text;
}

// A run that has a plan.
struct Opening {
  const Job& job;
  const Choice& choice;
  const Forecast& forecast;
  const Replication& replication;
  std::optional<JsonLines>& json;
  std::optional<AtomicFile>& page;
  const comm::Window& window;
};

// Plans for devices of so many threads and shows the plan, as `plan` and `train` do alike, and goes
// on with it; refuses what does not fit.
Result<int> with_plan(const CommandLine& line, const Budgets& budgets, int threads,
                      const comm::Window& window, const ProcessGroup* group,
                      const ModelFactory& factory,
                      const std::function<Result<int>(const Opening&)>& go_on) {
  if (Result<void> usable = check_disk_folder(line.config); !usable) return usable.failure();
  const std::optional<int64_t>& host = line.config.memory.host;
  if (line.config.is_virtual() && host && window.bytes_of_device() > *host)
    return fail(
        "memory.host = {} has no room for the window through which devices exchange: expected at "
        "least {} a device; a run in one process takes some KiB",
        format_bytes(*host), format_bytes(window.bytes_of_device()));
  Result<std::optional<DeviceDescription>> device = forecast_device(line.device, threads);
  if (!device) return device.failure();
  const Job job(line.config, threads, factory,
                device_to_plan_for(line.config, *device, !line.device.empty()));
  Result<std::optional<JsonLines>> json = open_json(line.json_path);
  if (!json) return json.failure();
  Result<std::optional<AtomicFile>> page = open_trace(line.html_path);
  if (!page) return page.failure();
  std::optional<PlanningScope> planning(std::in_place);
  const Choice choice = choose_plan(job, budgets);
  if (!choice.plan) return refuse(job, choice, budgets, group, *json, *page);
  planning.reset();
  const Forecast forecast = forecast_step(*choice.plan->programs.step, std::move(*device));
  const Replication replication = find_replication(job, *choice.plan, budgets);
  fmt::print(text_stream(line), "{}{}{}{}", describe_choice(job, choice, budgets),
             describe_exchange(line.config, window), lines_of(replication), to_string(forecast));
  return go_on({job, choice, forecast, replication, *json, *page, window});
}

Json plan_json(const Opening& opening, std::span<const Remedy> loss_in_parts) {
  const JobPlan& plan = *opening.choice.plan;
  Json candidates = Json::array();
  for (const Candidate& r : opening.choice.candidates)
    candidates.push_back(Json::object({{"policy", to_string(r.placement)},
                                  {"peak_bytes", r.peak_bytes[0]},
                                  {"by_kind", bytes_json(r.peak_bytes)},
                                  {"verdict", r.verdict}}));
  Json report = Json::object({{"predicted_peak_bytes", bytes_json(plan.peak_bytes)},
                              {"lower_bound_bytes", bytes_json(plan.lower_bound_bytes)},
                              {"policy", policy_name(plan.placement.policy)},
                              {"placement", to_string(plan.placement)},
                              {"plan_s", plan.plan_s},
                              {"parameters", opening.job.n_parameters()},
                              {"frozen", opening.job.n_frozen()},
                              {"peak_phase", plan.peak_phase},
                              {"peak_at", plan.peak_analysis().peak_at},
                              {"candidates", candidates},
                              {"owners", owners_json(plan)}});
  if (const MeshShape& mesh = opening.job.mesh(); mesh.rank() > 0) {
    Json extents = Json::object(), collectives = Json::array();
    for (size_t i = 0; i < mesh.names.size(); ++i) extents.set(mesh.names[i], mesh.extents[i]);
    for (const CollectiveCount& one : plan.programs.step->collectives())
      collectives.push_back(Json::object({{"op", op_name(one.op)},
                                          {"count", one.count},
                                          {"bytes", static_cast<int64_t>(one.bytes)}}));
    report.set("mesh", extents);
    report.set("collectives", collectives);
    report.set("reduce", opening.job.config().runtime.reduce);
    report.set("window_bytes", opening.window.bytes);
    report.set("window_devices", opening.window.n_sharers);
  }
  const Json forecast = to_json(opening.forecast);
  for (const JsonMember& member : *forecast.as_object()) report.set(member.key, member.value);
  Json saves = Json::array();
  for (const Remedy& r : loss_in_parts)
    saves.push_back(Json::object({{"change", r.change},
                                  {"peak_bytes", r.peak_bytes},
                                  {"changes_numbers", r.changes_numbers}}));
  report.set("loss_in_parts", saves);
  if (opening.job.mesh().rank() > 0) add_replication(report, opening.replication);
  return report;
}

// Facts on which all processes of a run must agree before they plan; facts_of_plan has those of
// their plans.
std::vector<comm::Fact> facts_of_run(const CommandLine& line, const ProcessGroup& group,
                                     const TrainData& data) {
  std::vector<comm::Fact> facts = comm::facts_of_program();
  facts.push_back({"the number of threads", fmt::format("{}", group.threads)});
  facts.push_back({"--resume", line.resume ? "given" : "not given"});
  // The file may stand elsewhere; its content counts.
  for (const auto& [key, value] : config_text(line.config))
    if (key != "data.path" && key != "train.tensorboard") facts.push_back({key, value});
  facts.push_back({"the digest of the data", data.digest()});
  return facts;
}
std::vector<comm::Fact> facts_of_plan(const JobPlan& plan) {
  std::vector<comm::Fact> facts = {{"the placement", to_string(plan.placement)}};
  for (const JobPlan::Phase& phase : plan.phases)
    facts.push_back(fact_of_plan("the plan of " + phase.name, plan.program(phase.name)));
  return facts;
}

// Prints the memory that the named device, or this machine, lacks for a run of the plan.
Result<void> print_what_lacks(const CommandLine& line, const Budgets& budgets, const JobPlan& plan,
                              const Forecast& forecast) {
  if (!line.device.empty() && forecast.device) {
    const DeviceDescription::Memory& there = forecast.device->memory;
    const BytesByKind sizes = {there.device, there.pinned_host, there.disk};
    const BytesByKind needed = budgeted_bytes(line.config, plan.peak_bytes);
    for (size_t kind = 0; kind < sizes.size(); ++kind)
      if (needed[kind] > sizes[kind])
        fmt::print(text_stream(line), "{} has {} of {}, {} are needed: it would not run there\n",
                   forecast.device->name, format_bytes(sizes[kind]),
                   memory_kind_name(static_cast<MemoryKind>(kind)), format_bytes(needed[kind]));
    return {};
  }
  const int64_t here = Device::cpu()->capacity_bytes(MemoryKind::kDevice);
  if (!budgets[0] && plan.peak_bytes[0] > here)
    fmt::print(text_stream(line), "this machine has {} to give: it would not run here\n",
               format_bytes(here));
  const int64_t disk_bytes = plan.peak_bytes[static_cast<size_t>(MemoryKind::kDisk)];
  if (disk_bytes == 0) return {};
  const Result<int64_t> space = disk_space_bytes(line.config);
  if (!space) return space.failure();
  const std::string& folder = line.config.runtime.disk_folder;
  if (disk_bytes > *space)
    fmt::print(text_stream(line),
               "{} has {} to give (runtime.disk_folder), {} are needed: it would not run here\n",
               folder.empty() ? "the folder for temporary files" : folder, format_bytes(*space),
               format_bytes(disk_bytes));
  return {};
}

}  // namespace

Result<int> run_train(std::span<const std::string> arguments) {
  Result<CommandLine> line =
      parse_train_arguments("train", "Trains a language model under a memory budget.", arguments);
  if (!line) return line.failure();
  if (!line->help.empty()) {
    fmt::print("{}", line->help);
    return kExitDone;
  }
  Result<ProcessGroup> joined = join_processes(line->config, line->devices);
  if (!joined) return joined.failure();
  const ProcessGroup& group = *joined;
  line->config.runtime.window_bytes = group.window.bytes_of_device();
  if (!group.is_first()) line->json_path = line->trace_path = line->config.train.tensorboard = "";
  const auto share_of_machine = [&] {
    return Device::cpu()->capacity_bytes(MemoryKind::kDevice) / group.devices_on_host;
  };
  const Budgets budgets =
      budgets_of(line->config,
                 min_over_processes(group, line->config.memory.device
                                               ? *line->config.memory.device
                                               : share_of_machine()));
  // Errors of the data and the folders are reported before anything is planned.
  if (Result<void> writable = check_writable_directory(line->config.train.out); !writable)
    return fail("train.out: {}", writable.error());
  if (const std::string& folder = line->config.train.tensorboard; !folder.empty())
    if (Result<void> writable = check_writable_directory(folder); !writable)
      return fail("train.tensorboard: {}", writable.error());
  const Result<ModelFactory> factory = model_factory(line->config);
  if (!factory) return factory.failure();
  const TrainModelPtr model = (*factory)(line->config);
  if (const auto weights = model->open_weights(); !weights) return weights.failure();
  Result<std::unique_ptr<TrainData>> data = model->open_data();
  if (!data) return data.failure();
  if (const Result<void> alike = check_agreement(group, facts_of_run(*line, group, **data)); !alike)
    return fail("train: {}", alike.error());
  if (group.world)
    group.world->set_reduce_order(*comm::reduce_order_of(line->config.runtime.reduce));
  const Result<int> status = with_plan(*line, budgets, group.threads, group.window, &group,
                                       *factory, [&](const Opening& opening) -> Result<int> {
    const JobPlan& plan = *opening.choice.plan;
    if (const Result<void> alike = check_agreement(group, facts_of_plan(plan)); !alike)
      return fail("train: {}", alike.error());
    Result<Positions> positions = make_positions(opening.job, budgets, group.world.get());
    if (!positions) return positions.failure();
    RunOptions options;
    options.positions = &*positions;
    options.trace_path = line->trace_path;
    if (opening.forecast.simulation)
      options.predicted_step_s = opening.forecast.simulation->step_s;
    options.resume = line->resume;
    options.json = opening.json ? &*opening.json : nullptr;
    options.text = group.is_first() ? text_stream(*line) : nullptr;
    return unless_refused(plan, budgets, opening.json, [&] {
      // Before checkpoints of an earlier run are set aside.
      const int64_t disk_bytes = plan.peak_bytes[static_cast<size_t>(MemoryKind::kDisk)];
      if (Result<void> reserved =
              check_disk_space(line->config, disk_bytes * group.devices_on_host);
          !reserved)
        throw CapacityError(reserved.error());
      return run_training(opening.job, opening.choice, budgets, options, std::move(*data));
    });
  });
  if (status && group.world) group.world->leave();
  return status;
}

Result<int> run_plan(std::span<const std::string> arguments) {
  Result<CommandLine> line = parse_train_arguments(
      "plan", "Plans a training run without running it; allocates no tensor.", arguments);
  if (!line) return line.failure();
  if (!line->help.empty()) {
    fmt::print("{}", line->help);
    return kExitDone;
  }
  if (line->resume) return fail("plan: --resume has no effect: nothing is run; leave it out");
  const Result<comm::Window> window =
      planned_window(line->config, line->processes, line->devices);
  if (!window) return window.failure();
  line->config.runtime.window_bytes = window->bytes_of_device();
  const Budgets budgets = budgets_of(line->config, line->config.memory.device);
  const Result<ModelFactory> factory = model_factory(line->config);
  if (!factory) return factory.failure();
  // As many as a run would have with all devices on this machine.
  const int threads = threads_per_device(line->config.mesh.size());
  const PlanningScope planning;
  return with_plan(
      *line, budgets, threads, *window, nullptr, *factory,
      [&](const Opening& opening) -> Result<int> {
        const JobPlan& plan = *opening.choice.plan;
        if (!line->trace_path.empty())
          if (Result<void> traced =
                  write_simulated_trace(line->trace_path, *plan.programs.step, opening.forecast);
              !traced)
            return traced.failure();
        const std::vector<Remedy> parts = loss_remedies(opening.job, plan, budgets);
        fmt::print(text_stream(*line), "{}", describe_loss(opening.job, plan, parts));
        if (Result<void> said = print_what_lacks(*line, budgets, plan, opening.forecast); !said)
          return said.failure();
        const Json report = plan_json(opening, parts);
        if (Result<void> written = write_json(opening.json, report); !written)
          return written.failure();
        if (opening.page) {
          const std::vector<Remedy> remedies = plan_remedies(opening.job, opening.choice, budgets);
          if (Result<void> written = write_plan_page(*opening.page, {.job = opening.job,
                                                                     .choice = opening.choice,
                                                                     .budgets = budgets,
                                                                     .plan = plan,
                                                                     .report = report,
                                                                     .remedies = remedies,
                                                                     .near = {}});
              !written)
            return written.failure();
        }
        return kExitDone;
      });
}

}  // namespace stow
