#include "stowage/train/job.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "stowage/base/bytes.h"
#include "stowage/base/parallel_in_order.h"
#include "stowage/base/progress.h"
#include "stowage/core/sums.h"
#include "stowage/runtime/target.h"
#include "stowage/stowage.h"
#include "stowage/train/fit.h"
#include "stowage/train/mesh.h"
#include "stowage/train/optimizer.h"
#include "stowage/train/step.h"

namespace stow {

std::string step_phase(size_t shape) {
  return shape == 0 ? "step" : fmt::format("step (batch shape {})", shape);
}

ProgramKind program_kind(std::string_view phase) {
  if (phase == kInitPhase) return ProgramKind::kInit;
  if (phase == kEvalPhase) return ProgramKind::kEval;
  if (phase == kSamplePhase) return ProgramKind::kSample;
  return ProgramKind::kStep;
}

const Executable& JobPlan::program(std::string_view phase) const {
  switch (program_kind(phase)) {
    case ProgramKind::kInit:
      return *programs.init;
    case ProgramKind::kEval:
      return *programs.eval;
    case ProgramKind::kSample:
      return *programs.sample;
    case ProgramKind::kStep:
      break;
  }
  for (size_t i = 0; i < programs.other_steps.size(); ++i)
    if (phase == step_phase(i + 1)) return *programs.other_steps[i];
  return *programs.step;
}

const MemoryAnalysis& JobPlan::peak_analysis() const {
  return program(peak_phase).memory_analysis();
}

std::vector<PeakOwner> JobPlan::peak_owners() const {
  const ProgramKind kind = program_kind(peak_phase);
  const char* const first = kind == ProgramKind::kStep   ? "state"
                            : kind == ProgramKind::kInit ? "key or parameters"
                                                         : "model";
  const std::array<const char*, 3> names = {first, "frozen weights", "batch"};
  std::vector<PeakOwner> owners = peak_analysis().owners;
  for (PeakOwner& owner : owners)
    for (size_t i = 0; i < names.size(); ++i)
      if (owner.what == "argument" && owner.source == std::to_string(i)) owner.source = names[i];
  return owners;
}

MemoryKind ema_kind(const TrainConfig& config, MemoryKind optimizer) {
  return optimizer == MemoryKind::kDevice && config.is_virtual() ? MemoryKind::kPinnedHost
                                                                 : optimizer;
}

int64_t device_bytes(const TrainConfig& config, const BytesByKind& bytes) {
  return bytes[0] + (config.is_virtual() ? 0 : bytes[1]);
}

BytesByKind budgeted_bytes(const TrainConfig& config, const BytesByKind& bytes) {
  return {device_bytes(config, bytes),
          bytes[1] + (config.is_virtual() ? config.runtime.window_bytes : 0), bytes[2]};
}

Budgets budgets_of_programs(const TrainConfig& config, Budgets budgets) {
  std::optional<int64_t>& host = budgets[static_cast<size_t>(MemoryKind::kPinnedHost)];
  if (host) host = std::max<int64_t>(*host - config.runtime.window_bytes, 0);
  return budgets;
}

Budgets budgets_of(const TrainConfig& config, std::optional<int64_t> device_bytes) {
  // Without a virtual device, the host's memory is part of the device's budget.
  return {device_bytes, config.is_virtual() ? config.memory.host : std::nullopt,
          config.memory.disk.value_or(0)};
}

// The graphs of one placement of the state, and their programs that do not depend on the policy.
struct Job::Traced {
  MemoryKind optimizer, parameters, frozen_in;
  BytesByKind beside_eval{};  // Of the state that evaluation does not read, at one position.
  TrainState state;           // abstract
  NamedArrays frozen;
  Graph init, eval, sample;
  std::map<std::pair<StepForm, size_t>, Graph> steps;  // By form and shape of batch.
  ExecutablePtr init_program, eval_program, sample_program;  // under `budgets`
  Budgets budgets;
};

Job::~Job() = default;
Job::Job(Job&&) noexcept = default;

int Job::threads() const {
  return target_->threads();
}

namespace {

std::string with_freeze(const TrainConfig& config) {
  return config.optimizer.freeze.empty()
             ? std::string()
             : fmt::format(" with optimizer.freeze = {}", config.optimizer.freeze);
}

// Throws TraceError if Muon would update no parameter, or cannot know which axes of one are a
// matrix.
void check_muon_has_matrices(const TrainConfig& config, const TrainModel& model,
                             const NamedArrays& parameters, const optim::Leaves& trained) {
  const optim::Mask is_matrix = model.muon_matrices();
  for (const optim::Leaf& leaf : trained)
    if (leaf.value.rank() > 2 && !is_matrix(leaf) && model.axes_of(leaf.path).empty())
      trace_error(
          "optimizer.name = muon cannot tell which axes of {} {} are a matrix: expected their "
          "names from the model's axes_of(), got none",
          leaf.path, to_string(leaf.value.type()));
  if (std::any_of(trained.begin(), trained.end(), is_matrix)) return;
  const optim::Leaves all = optim::GradientTransformation::leaves_by_path(parameters);
  if (std::none_of(all.begin(), all.end(), is_matrix))
    trace_error(
        "optimizer.name = muon has nothing to take: the model has no matrices for it; set "
        "another optimizer");
  trace_error(
      "optimizer.name = muon has nothing to take{}: all of the model's matrices are frozen; "
      "set another optimizer or freeze less",
      with_freeze(config));
}

}  // namespace

Job::Job(const TrainConfig& config, int threads, ModelFactory factory, DeviceDescriptionPtr device)
    : Job(config, host_target(threads, std::move(device)), std::move(factory)) {}

Job::Job(const TrainConfig& config, TargetPtr target, ModelFactory factory,
         const LeafShardings& overrides)
    : config_(config),
      target_(std::move(target)),
      factory_(std::move(factory)),
      model_(factory_(config)),
      mesh_(mesh_of(config)),
      tracing_(std::make_unique<std::mutex>()) {
  for (const int64_t batch : {config.data.batch, config.eval_batch()})
    if (batch % config.mesh.batch_parts() != 0)
      trace_error(
          "a batch of {} cannot be cut over mesh.replica = {} times mesh.data = {}; expected a "
          "multiple of their product",
          batch, config.mesh.replica, config.mesh.data);
  TrainState state;
  state.model = model_->parameters();
  const Optimizer optimizer = optimizer_of(config.optimizer, *model_);
  optimizer.frozen.check(optim::GradientTransformation::leaves_by_path(state.model),
                         "optimizer.freeze: the");
  const optim::Leaves trained = optimizer.trained(state.model);
  const std::optional<StepPolicy> asked = parse_policy(config.memory.policy);
  if (asked && traits_of(*asked).offloads &&
      std::none_of(trained.begin(), trained.end(), [&](const optim::Leaf& leaf) {
        return model_->reaches_layers(leaf.path);
      }))
    trace_error(
        "memory.policy = {} has no effect{}: the backward pass does not reach the layers; "
        "set memory.policy=auto",
        config.memory.policy, with_freeze(config));
  if (config.optimizer.name == "muon")
    check_muon_has_matrices(config, *model_, state.model, trained);
  state.optimizer = optimizer.transformation.init(widened(state.model));
  // True for a place off the device.
  const auto is_away = [](const std::string& place) {
    return place != "auto" && place != "device";
  };
  const std::vector<Array> moments = tree_leaves(state.optimizer);
  if (is_away(config.memory.optimizer) &&
      std::all_of(moments.begin(), moments.end(), [](const Array& a) { return a.rank() == 0; }))
    trace_error(
        "memory.optimizer = {} has no effect with optimizer.name = {}{}: its state is scalars "
        "alone; set memory.optimizer=auto",
        config.memory.optimizer, config.optimizer.name,
        trained.empty() ? " and everything frozen" : "");
  if (is_away(config.memory.gradients) && trained.empty())
    trace_error(
        "memory.gradients = {} has no effect with optimizer.freeze = {}: nothing is trained; "
        "set memory.gradients=auto",
        config.memory.gradients, config.optimizer.freeze);
  if (config.memory.loss == "chunked" && config.train.compute != "f32" &&
      !model_->sizes().chunks_keep_bf16)
    trace_error(
        "memory.loss = chunked would change numbers with train.compute = {}: the gradient of the "
        "head is rounded once a chunk; set memory.loss=auto",
        config.train.compute);
  n_model_leaves_ = tree_leaves(state.model).size();
  if (config.train.ema > 0) state.ema = widened(state.model);
  const NamedArrays frozen = model_->frozen();
  for (size_t i = 0; i < frozen.arrays.size(); ++i)
    frozen_.push_back({frozen.names[i], frozen.arrays[i].type(),
                       weight_sharding(config, mesh_, frozen.names[i], frozen.arrays[i].type(),
                                       model_->axes_of(frozen.names[i]))});
  if (config.memory.frozen != "auto" && frozen_.empty())
    trace_error("memory.frozen = {} has no effect: every weight is trained; set memory.frozen=auto",
                config.memory.frozen);
  const std::vector<Array> leaves = tree_leaves(state);
  const std::vector<std::string> names = tree_paths(state);
  for (size_t i = 0; i < leaves.size(); ++i) {
    const ArrayType& type = leaves[i].type();
    const std::string& weight = i < n_model_leaves_ ? state.model.names[i] : names[i];
    state_.push_back({names[i], type,
                      i < n_model_leaves_
                          ? weight_sharding(config, mesh_, weight, type, model_->axes_of(weight))
                          : state_sharding(config, mesh_, names[i], type, state.model, *model_)});
  }
  for (std::vector<StateLeaf>* leaves_of : {&state_, &frozen_})
    for (StateLeaf& leaf : *leaves_of) {
      if (const auto other = overrides.find(leaf.name); other != overrides.end())
        leaf.sharding = other->second;
      leaf.part = local_type(leaf.type, leaf.sharding, mesh_);
    }
}

std::vector<AxisSharding> Job::batch_shardings(size_t shape) const {
  std::vector<AxisSharding> shardings;
  for (const Array& a : step_batch(config_, *model_, shape).arrays)
    shardings.push_back(batch_sharding(mesh_, a.type(), config_.data.accumulate > 1));
  return shardings;
}

std::vector<AxisSharding> Job::eval_shardings() const {
  std::vector<AxisSharding> shardings;
  for (const Array& a : model_->eval_batch().arrays)
    shardings.push_back(batch_sharding(mesh_, a.type(), false));
  return shardings;
}

std::shared_ptr<const MeshOptions> Job::over_mesh(
    std::vector<AxisSharding> in, std::vector<std::optional<AxisSharding>> out) const {
  if (mesh_.rank() == 0) return nullptr;
  MeshOptions options = {mesh_, std::move(in), std::move(out), {}};
  // Gradients are summed over the batch in f32, whatever the dtype of products.
  options.partition.f32_sum_axes = batch_axes(mesh_);
  return std::make_shared<const MeshOptions>(std::move(options));
}

namespace {

// Returns the state of a model, with every array but scalars in the memory of the placement.
TrainState placed_state(const TrainConfig& config, const TrainModel& model, MemoryKind optimizer,
                        MemoryKind parameters) {
  const auto move = [](const auto& tree, MemoryKind kind) {
    return tree_map([&](const Array& a) { return a.shape().rank() == 0 ? a : device_put(a, kind); },
                    tree);
  };
  TrainState state = abstract_state(config, model);
  state.optimizer = move(state.optimizer, optimizer);
  state.model = move(state.model, parameters);
  state.ema = move(state.ema, ema_kind(config, optimizer));
  return state;
}

}  // namespace

Job::Traced& Job::traced(const Placement& placement) const {
  for (const std::unique_ptr<Traced>& t : traced_)
    if (t->optimizer == placement.optimizer && t->parameters == placement.parameters &&
        t->frozen_in == placement.frozen)
      return *t;
  auto made = std::make_unique<Traced>();
  Traced& t = *made;
  t.optimizer = placement.optimizer;
  t.parameters = placement.parameters;
  t.frozen_in = placement.frozen;
  t.state = placed_state(config_, *model_, t.optimizer, t.parameters);
  t.frozen = device_put(model_->frozen(), t.frozen_in);
  const TrainState& state = t.state;
  const auto [first, count] = evaluated_leaves();
  const std::vector<Array> leaves = tree_leaves(state);
  for (size_t i = 0; i < leaves.size(); ++i)
    if (i < first || i >= first + count)
      t.beside_eval[static_cast<size_t>(leaves[i].type().kind)] += state_[i].part.bytes();
  if (model_->reads_parameters())
    t.init = jit([&](const NamedArrays& parameters) {
               TrainState s =
                   first_state(config_, *model_, device_put(parameters, MemoryKind::kDevice));
               s = put_like(s, state);
               return RestOfState{s.optimizer, s.ema};
             }).lower(state.model).graph();
  else
    t.init = jit([&](const Array& key) {
               const NamedArrays made = in_dtypes_of(model_->init(key), model_->parameters());
               return put_like(first_state(config_, *model_, made), state);
             }).lower(Array::abstract(Shape{2}, DType::kU32)).graph();
  const NamedArrays& evaluated = first == 0 ? state.model : state.ema;
  if (model_->evaluates())
    t.eval = jit([&](const NamedArrays& m, const NamedArrays& frozen, const NamedArrays& x) {
             return model_->evaluate({m, frozen}, x);
           })
               .lower(evaluated, t.frozen, model_->eval_batch())
               .graph();
  if (const NamedArrays inputs = model_->sample_inputs(); !inputs.arrays.empty())
    t.sample = jit([&](const NamedArrays& m, const NamedArrays& frozen, const NamedArrays& x) {
                 return model_->sample({m, frozen}, x);
               })
                   .lower(evaluated, t.frozen, inputs)
                   .graph();
  traced_.push_back(std::move(made));
  return t;
}

std::pair<size_t, size_t> Job::evaluated_leaves() const {
  if (config_.train.ema > 0) return {first_ema_leaf(), n_model_leaves_};
  return {0, n_model_leaves_};
}

size_t Job::first_ema_leaf() const {
  return config_.train.ema > 0 ? state_.size() - n_model_leaves_ : state_.size();
}

int64_t Job::n_frozen() const {
  int64_t n = 0;
  for (const StateLeaf& leaf : frozen_) n += leaf.type.elems();
  return n;
}

int64_t Job::n_parameters() const {
  int64_t n = 0;
  for (size_t i = 0; i < n_model_leaves_; ++i) n += state_[i].type.elems();
  return n;
}

bool Job::moves(const Placement& placement) const {
  return mesh_.rank() > 0 || !is_all_on_device(placement);
}

JobPlan Job::plan_to_fit(const Placement& placement, const Budgets& budgets) const {
  return plan(placement, budgets, !moves(placement));
}

JobPlan Job::plan(const Placement& placement, const Budgets& budgets, bool moves_ahead) const {
  return plan_phases(placement, budgets, moves_ahead, false);
}

JobPlan Job::plan_until_over(const Placement& placement, const Budgets& budgets) const {
  return plan_phases(placement, budgets, false, true);
}

JobPlan Job::plan_phases(const Placement& placement, const Budgets& whole, bool moves_ahead,
                         bool ends_when_over) const {
  const Budgets budgets = budgets_of_programs(config_, whole);
  const auto start = std::chrono::steady_clock::now();
  // Traces, and plans that do not depend on the policy, are made once, by one thread.
  std::unique_lock lock(*tracing_);
  Traced& t = traced(placement);
  JobPlan plan;
  plan.placement = placement;
  plan.moves_ahead = moves_ahead;
  const bool samples = config_.train.sample > 0 && !model_->sample_inputs().arrays.empty();
  // Budgets become capacities only if a plan without them exceeds one.
  const auto plain = [&](const Graph& graph, const char* name, const BytesByKind& beside,
                         std::shared_ptr<const MeshOptions> mesh) {
    CompileOptions options;
    options.dump_name = name;
    options.mesh = std::move(mesh);
    ExecutablePtr program = compile(graph, options, target_);
    bool over = false;
    for (size_t kind = 0; kind < budgets.size(); ++kind)
      if (budgets[kind] &&
          program->memory_analysis().kinds[kind].total_bytes + beside[kind] > *budgets[kind]) {
        options.capacities[kind] = std::max<int64_t>(*budgets[kind] - beside[kind], 0);
        over = true;
      }
    return over ? compile(graph, options, target_) : program;
  };
  if (t.budgets != budgets) t.init_program = t.eval_program = t.sample_program = nullptr;
  t.budgets = budgets;
  // The shardings of the arrays of each program.
  using Shardings = std::vector<AxisSharding>;
  const auto shardings_of = [](std::span<const StateLeaf> leaves) {
    Shardings shardings;
    for (const StateLeaf& leaf : leaves) shardings.push_back(leaf.sharding);
    return shardings;
  };
  const auto join = [](Shardings first, const Shardings& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
  };
  const auto as_results = [](const Shardings& shardings, size_t n_scalars) {
    std::vector<std::optional<AxisSharding>> results(shardings.begin(), shardings.end());
    results.insert(results.end(), n_scalars, whole_sharding(0));
    return results;
  };
  const Shardings state_lies = shardings_of(state_), frozen_lies = shardings_of(frozen_);
  const auto [first_evaluated, n_evaluated] = evaluated_leaves();
  const Shardings evaluated_lies =
      join(shardings_of(std::span(state_).subspan(first_evaluated, n_evaluated)), frozen_lies);
  const auto plan_others = [&] {
    if (!t.init_program) {
      const std::span<const StateLeaf> all(state_);
      t.init_program =
          model_->reads_parameters()
              ? plain(t.init, kInitPhase, {},
                      over_mesh(shardings_of(all.first(n_model_leaves_)),
                                as_results(shardings_of(all.subspan(n_model_leaves_)), 0)))
              : plain(t.init, kInitPhase, {},
                      over_mesh({whole_sharding(1)}, as_results(state_lies, 0)));
    }
    if (model_->evaluates() && !t.eval_program)
      t.eval_program = plain(t.eval, kEvalPhase, t.beside_eval,
                             over_mesh(join(evaluated_lies, eval_shardings()), as_results({}, 1)));
    if (samples && !t.sample_program) {
      Shardings inputs;
      for (const Array& a : model_->sample_inputs().arrays)
        inputs.push_back(whole_sharding(a.rank()));
      t.sample_program = plain(t.sample, kSamplePhase, t.beside_eval,
                               over_mesh(join(evaluated_lies, inputs), {whole_sharding(1)}));
    }
    plan.programs.init = t.init_program;
    plan.programs.eval = t.eval_program;
    if (samples) plan.programs.sample = t.sample_program;
  };
  CompileOptions step;
  step.donated.assign(state_.size(), true);  // What follows, frozen weights and the batch, is not.
  step.override_policy = named_policy(placement.policy, placement.activations);
  step.dump_name = fmt::format("step-{}", policy_name(placement.policy));
  if (!moves_ahead) step.transfers_ahead = 0;
  // All values that a policy offloads leave, unless a limit says how many may stay.
  step.keep_resident = config_.memory.device.has_value();
  for (size_t kind = 0; kind < budgets.size(); ++kind)
    if (budgets[kind]) step.capacities[kind] = *budgets[kind];
  const StepForm form = step_form(placement);
  std::vector<const Graph*> step_graphs;
  for (size_t shape = 0; shape < model_->n_batch_shapes(); ++shape) {
    const std::pair key(form, shape);
    if (!t.steps.contains(key))
      t.steps.emplace(key, trace_step(config_, *model_, t.state, t.frozen, form, shape));
    step_graphs.push_back(&t.steps.at(key));
  }
  if (!ends_when_over) plan_others();
  const BytesByKind beside_eval = t.beside_eval;
  lock.unlock();
  const auto step_mesh = [&](size_t shape) {
    return over_mesh(join(join(state_lies, frozen_lies), batch_shardings(shape)),
                     as_results(state_lies, 3));
  };
  step.mesh = step_mesh(0);
  plan.programs.step = compile(*step_graphs[0], step, target_);
  // If the host's memory is the device's, moves ahead and values that stay must leave room for the
  // host's bytes of every phase. As a last resort no move runs ahead.
  const auto host_of = [](const ExecutablePtr& program) {
    return program ? program->memory_analysis().host().total_bytes : 0;
  };
  const int64_t host_beside = std::max(
      host_of(plan.programs.init),
      beside_eval[1] + std::max(host_of(plan.programs.eval), host_of(plan.programs.sample)));
  for (int tries = 0; budgets[0] && step.transfers_ahead > 0; ++tries) {
    const MemoryAnalysis& found = plan.programs.step->memory_analysis();
    const int64_t host = std::max(found.host().total_bytes, host_beside);
    const int64_t over = device_bytes(config_, {found.device().total_bytes, host}) - *budgets[0];
    if (over <= 0 || (found.in_flight_bytes == 0 && !traits_of(placement.policy).offloads)) break;
    step.capacities[0] = std::min(step.capacities[0], found.device().total_bytes) - over;
    if (tries == 3) step.transfers_ahead = 0;
    plan.programs.step = compile(*step_graphs[0], step, target_);
  }
  for (size_t shape = 1; shape < step_graphs.size(); ++shape) {
    step.mesh = step_mesh(shape);
    plan.programs.other_steps.push_back(compile(*step_graphs[shape], step, target_));
  }
  if (ends_when_over) {
    BytesByKind steps{};
    const auto note = [&](const ExecutablePtr& program) {
      for (size_t kind = 0; kind < steps.size(); ++kind)
        steps[kind] = std::max(steps[kind], program->memory_analysis().kinds[kind].total_bytes);
    };
    note(plan.programs.step);
    for (const ExecutablePtr& other : plan.programs.other_steps) note(other);
    if (!first_over(config_, steps, whole)) {
      lock.lock();
      if (t.budgets != budgets) t.init_program = t.eval_program = t.sample_program = nullptr;
      t.budgets = budgets;
      plan_others();
      lock.unlock();
    }
  }
  // Evaluation and sampling run while the optimizer's state exists, which is not among their
  // arguments.
  const auto weigh = [&](const std::string& name, const ExecutablePtr& program,
                         const BytesByKind& beside) {
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
  weigh(step_phase(0), plan.programs.step, {});
  for (size_t i = 0; i < plan.programs.other_steps.size(); ++i)
    weigh(step_phase(i + 1), plan.programs.other_steps[i], {});
  if (plan.programs.init) weigh(kInitPhase, plan.programs.init, {});
  if (plan.programs.eval) weigh(kEvalPhase, plan.programs.eval, beside_eval);
  if (plan.programs.sample) weigh(kSamplePhase, plan.programs.sample, beside_eval);
  plan.plan_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return plan;
}

}  // namespace stow
