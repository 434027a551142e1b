#include "stowage/train/job.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <tuple>

#include "stowage/base/bytes.h"
#include "stowage/base/in_order.h"
#include "stowage/base/progress.h"
#include "stowage/core/sums.h"
#include "stowage/stowage.h"
#include "stowage/train/optimizer.h"
#include "stowage/train/step.h"

namespace stow {



const MemoryAnalysis& JobPlan::peak_analysis() const {
  const ExecutablePtr& program = peak_phase == "init"   ? programs.init
                                 : peak_phase == "eval" ? programs.eval
                                 : peak_phase == "sample" ? programs.sample
                                                          : programs.step;
  return program->memory_analysis();
}

int64_t device_bytes(const TrainConfig& config, const BytesByKind& bytes) {
  return bytes[0] + (config.is_virtual() ? 0 : bytes[1]);
}

BytesByKind budgeted_bytes(const TrainConfig& config, const BytesByKind& bytes) {
  return {device_bytes(config, bytes), bytes[1], bytes[2]};
}

Budgets budgets_of(const TrainConfig& config, std::optional<int64_t> device_bytes) {
  // Without a device of its own the host's memory is in the device's budget.
  return {device_bytes, config.is_virtual() ? config.memory.host : std::nullopt,
          config.memory.disk.value_or(0)};
}

// The graphs of one placement of the state, and what was compiled of them whatever the policy.
struct Job::Traced {
  MemoryKind optimizer, parameters;
  BytesByKind optimizer_bytes{};
  TrainState state;  // abstract
  Graph init, eval, sample;
  std::map<StepForm, Graph> steps;
  ExecutablePtr init_program, eval_program, sample_program;  // under `budgets`
  Budgets budgets;
};

Job::~Job() = default;
Job::Job(Job&&) noexcept = default;

Job::Job(const TrainConfig& config, int threads, ModelFactory factory)
    : config_(config),
      threads_(threads),
      factory_(std::move(factory)),
      model_(factory_(config)),
      tracing_(std::make_unique<std::mutex>()) {
  TrainState state;
  state.model = model_->parameters();
  const Optimizer optimizer = optimizer_of(config.optimizer);
  optimizer.frozen.check(optim::GradientTransformation::leaves_by_path(state.model),
                         "optimizer.freeze: the");
  const optim::Leaves trained = optimizer.trained(state.model);
  if (offloads(config.memory.policy) &&
      std::none_of(trained.begin(), trained.end(), [](const optim::Leaf& leaf) {
        return leaf.path == "embed" || leaf.path.starts_with("layers/");
      }))
    trace_error("memory.policy = {} has no effect with optimizer.freeze = {}: the backward pass does "
                "not reach the layers",
                config.memory.policy, config.optimizer.freeze);
  if (config.optimizer.name == "muon" &&
      std::none_of(trained.begin(), trained.end(), muon_matrices()))
    trace_error("optimizer.name = muon has nothing to take with optimizer.freeze = {}: it takes the "
                "layers' matrices",
                config.optimizer.freeze);
  state.optimizer = optimizer.transformation.init(state.model);
  // Places that nothing would go to.
  const auto is_away = [](const std::string& place) { return place != "auto" && place != "device"; };
  const std::vector<Array> moments = tree_leaves(state.optimizer);
  if (is_away(config.memory.optimizer) &&
      std::all_of(moments.begin(), moments.end(), [](const Array& a) { return a.rank() == 0; }))
    trace_error("memory.optimizer = {} has no effect with optimizer.name = {}{}: its state is scalars "
                "alone",
                config.memory.optimizer, config.optimizer.name,
                trained.empty() ? " and everything frozen" : "");
  if (is_away(config.memory.gradients) && trained.empty())
    trace_error("memory.gradients = {} has no effect with optimizer.freeze = {}: nothing is trained",
                config.memory.gradients, config.optimizer.freeze);
  n_model_leaves_ = tree_leaves(state.model).size();
  const std::vector<Array> leaves = tree_leaves(state);
  const std::vector<std::string> names = tree_paths(state);
  for (size_t i = 0; i < leaves.size(); ++i) state_.push_back({names[i], leaves[i].type()});
}

namespace {

// The state of a model, every array but scalars where the placement has it.
TrainState placed_state(const TrainConfig& config, const TrainModel& model, MemoryKind optimizer,
                        MemoryKind parameters) {
  const auto move = [](const auto& tree, MemoryKind kind) {
    return tree_map([&](const Array& a) { return a.shape().rank() == 0 ? a : device_put(a, kind); },
                    tree);
  };
  TrainState state = abstract_state(config, model);
  state.optimizer = move(state.optimizer, optimizer);
  state.model = move(state.model, parameters);
  return state;
}

}  // namespace

Job::Traced& Job::traced(const Placement& placement) const {
  for (const std::unique_ptr<Traced>& t : traced_)
    if (t->optimizer == placement.optimizer && t->parameters == placement.parameters) return *t;
  auto made = std::make_unique<Traced>();
  Traced& t = *made;
  t.optimizer = placement.optimizer;
  t.parameters = placement.parameters;
  t.state = placed_state(config_, *model_, t.optimizer, t.parameters);
  const TrainState& state = t.state;
  for (const Array& leaf : tree_leaves(state.optimizer))
    t.optimizer_bytes[static_cast<size_t>(leaf.type().kind)] += leaf.type().bytes();
  t.init = jit([&](const Array& key) {
             TrainState s;
             s.model = model_->init(key);
             s.optimizer = optimizer_of(config_.optimizer).transformation.init(s.model);
             return put_like(s, state);
           }).lower(Array::abstract(Shape{2}, DType::kU32)).graph();
  t.eval = jit([&](const NamedArrays& m, const NamedArrays& x) { return model_->evaluate(m, x); })
               .lower(state.model, model_->batch())
               .graph();
  if (const NamedArrays inputs = model_->sample_inputs(); !inputs.arrays.empty())
    t.sample = jit([&](const NamedArrays& m, const NamedArrays& x) { return model_->sample(m, x); })
                   .lower(state.model, inputs)
                   .graph();
  traced_.push_back(std::move(made));
  return t;
}

int64_t Job::n_parameters() const {
  int64_t n = 0;
  for (size_t i = 0; i < n_model_leaves_; ++i) n += state_[i].type.elems();
  return n;
}

JobPlan Job::plan_to_fit(const Placement& placement, const Budgets& budgets) const {
  return plan(placement, budgets, is_all_on_device(placement));
}

JobPlan Job::plan(const Placement& placement, const Budgets& budgets, bool moves_ahead) const {
  const auto start = std::chrono::steady_clock::now();
  // What is traced, and what is planned of it whatever the policy, is made once, by one thread.
  std::unique_lock lock(*tracing_);
  Traced& t = traced(placement);
  JobPlan plan;
  plan.placement = placement;
  const bool samples = config_.train.sample > 0 && !model_->sample_inputs().arrays.empty();
  // The budgets count only where they are not met otherwise.
  const auto plain = [&](const Graph& graph, const char* name, const BytesByKind& beside) {
    CompileOptions options;
    options.dump_name = name;
    ExecutablePtr program = compile(graph, options, threads_);
    bool over = false;
    for (size_t kind = 0; kind < budgets.size(); ++kind)
      if (budgets[kind] &&
          program->memory_analysis().kinds[kind].total_bytes + beside[kind] > *budgets[kind]) {
        options.capacities[kind] = std::max<int64_t>(*budgets[kind] - beside[kind], 0);
        over = true;
      }
    return over ? compile(graph, options, threads_) : program;
  };
  if (t.budgets != budgets) t.init_program = t.eval_program = t.sample_program = nullptr;
  t.budgets = budgets;
  if (!t.init_program) t.init_program = plain(t.init, "init", {});
  CompileOptions step;
  step.donated.assign(state_.size(), true);
  step.override_policy = named_policy(placement.policy, placement.activations);
  step.dump_name = "step-" + placement.policy;
  if (!moves_ahead) step.transfers_ahead = 0;
  // What a policy sends away leaves, but where somebody said how much may stay.
  step.keep_resident = config_.memory.device.has_value();
  for (size_t kind = 0; kind < budgets.size(); ++kind)
    if (budgets[kind]) step.capacities[kind] = *budgets[kind];
  const StepForm form = step_form(placement);
  if (!t.steps.contains(form)) t.steps.emplace(form, trace_step(config_, *model_, t.state, form));
  const Graph& step_graph = t.steps.at(form);
  if (!t.eval_program) t.eval_program = plain(t.eval, "eval", t.optimizer_bytes);
  if (samples && !t.sample_program)
    t.sample_program = plain(t.sample, "sample", t.optimizer_bytes);
  plan.programs.init = t.init_program;
  plan.programs.eval = t.eval_program;
  plan.programs.sample = t.sample_program;
  const BytesByKind optimizer_bytes = t.optimizer_bytes;
  lock.unlock();
  plan.programs.step = compile(step_graph, step, threads_);
  // What moves ahead, or stays for being back soon, must leave room for what the host's memory holds,
  // in any phase, where that is the device's; as a last resort nothing does.
  const auto host_of = [](const ExecutablePtr& program) {
    return program ? program->memory_analysis().host().total_bytes : 0;
  };
  const int64_t host_beside = std::max(
      host_of(plan.programs.init),
      optimizer_bytes[1] + std::max(host_of(plan.programs.eval), host_of(plan.programs.sample)));
  for (int tries = 0; budgets[0] && step.transfers_ahead > 0; ++tries) {
    const MemoryAnalysis& found = plan.programs.step->memory_analysis();
    const int64_t host = std::max(found.host().total_bytes, host_beside);
    const int64_t over = device_bytes(config_, {found.device().total_bytes, host}) - *budgets[0];
    if (over <= 0 || (found.under_way_bytes == 0 && !offloads(placement.policy))) break;
    step.capacities[0] = std::min(step.capacities[0], found.device().total_bytes) - over;
    if (tries == 3) step.transfers_ahead = 0;
    plan.programs.step = compile(step_graph, step, threads_);
  }
  // Evaluation and sampling run beside the optimizer's state, which is no argument of theirs.
  const auto weigh = [&](const char* name, const ExecutablePtr& program, const BytesByKind& beside) {
    JobPlan::Phase& phase = plan.phases.emplace_back(JobPlan::Phase{.name = name});
    for (size_t kind = 0; kind < beside.size(); ++kind) {
      const KindAnalysis& k = program->memory_analysis().kinds[kind];
      phase.peak_bytes[kind] = k.total_bytes + beside[kind];
      phase.lower_bound_bytes[kind] = k.lower_bound_bytes + beside[kind];
      if (phase.peak_bytes[kind] > plan.peak_bytes[kind]) {
        plan.peak_bytes[kind] = phase.peak_bytes[kind];
        if (kind == 0) plan.peak_phase = name;
      }
      plan.lower_bound_bytes[kind] =
          std::max(plan.lower_bound_bytes[kind], phase.lower_bound_bytes[kind]);
    }
  };
  weigh("step", plan.programs.step, {});
  weigh("init", plan.programs.init, {});
  weigh("eval", plan.programs.eval, optimizer_bytes);
  if (samples) weigh("sample", plan.programs.sample, optimizer_bytes);
  plan.plan_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return plan;
}

}  // namespace stow
