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

bool offloads(const std::string& policy) { return policy.starts_with("offload_"); }
bool nests(const std::string& policy) { return policy == "nested" || policy == "offload_nested"; }

bool is_all_on_device(const Placement& p) {
  const auto is_there = [](MemoryKind kind) { return kind == MemoryKind::kDevice; };
  return !offloads(p.policy) && is_there(p.optimizer) && is_there(p.parameters) &&
         is_there(p.gradients);
}

StepForm step_form(const Placement& p) {
  return {{nests(p.policy), p.chunked, p.chunked_loss}, p.gradients};
}
std::string to_string(const Placement& p) {
  std::string text = p.policy;
  if (offloads(p.policy))
    text += fmt::format(" to {}", memory_kind_name(p.activations));
  if (p.optimizer != MemoryKind::kDevice)
    text += fmt::format(", optimizer on {}", memory_kind_name(p.optimizer));
  if (p.parameters != MemoryKind::kDevice)
    text += fmt::format(", parameters on {}", memory_kind_name(p.parameters));
  if (p.gradients != p.parameters)
    text += fmt::format(", gradients on {}", memory_kind_name(p.gradients));
  if (p.chunked || p.chunked_loss)
    text += fmt::format(", {}{}{} chunked", p.chunked ? "feed-forward" : "",
                        p.chunked && p.chunked_loss ? " and " : "", p.chunked_loss ? "loss" : "");
  return text;
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
  step.keep_last = config_.memory.device.has_value();
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

const std::vector<std::string>& policy_ladder() {
  static const std::vector<std::string> ladder = {"save_all", "save_dots", "save_gate",
                                                  "save_named", "recompute", "nested"};
  return ladder;
}

namespace {

// How much of a step's time a choice may cost, roughly: work done again, bytes moved. What is worth
// trying first; that it fits is planned.
double cost_of(const std::string& policy) {
  static const std::map<std::string, double> costs = {
      {"save_all", 0},      {"save_dots", 1}, {"save_gate", 1.2},     {"save_named", 2},
      {"offload_named", 3}, {"recompute", 4}, {"offload_carries", 5}, {"offload_all", 6},
      {"nested", 7},        {"offload_nested", 8}};
  return costs.at(policy);
}
double cost_of(MemoryKind kind, double moves) {
  return moves * (kind == MemoryKind::kDevice ? 0 : kind == MemoryKind::kPinnedHost ? 1.5 : 4);
}
double cost_of(const Placement& p) {
  const bool moves = offloads(p.policy);
  return cost_of(p.policy) + (moves && p.activations == MemoryKind::kDisk ? 3 : 0) +
         cost_of(p.optimizer, 1) + cost_of(p.parameters, 1.2) +
         (p.gradients == p.parameters ? 0 : cost_of(p.gradients, 0.6)) + (p.chunked ? 0.3 : 0) +
         (p.chunked_loss ? 0.1 : 0);
}

// Whether the feed-forward blocks in chunks are worth a try: where the backward pass computes them
// again, and there is more than a chunk.
std::vector<bool> chunked_forms(const TrainConfig& config, const ModelSizes& sizes,
                                const std::string& policy) {
  const std::string& asked = config.memory.feed_forward;
  if (asked != "auto") return {asked == "chunked"};
  const bool keeps = policy == "save_all" || policy == "save_dots" || policy == "save_gate" ||
                     policy == "offload_all";
  if (keeps || config.train.compute != "f32" || !config.has_chunks() || sizes.layers == 0 ||
      sizes.ffn == 0)
    return {false};
  return {false, true};
}
// Whether the loss in chunks is worth a try: not where a token's logits are few beside what the
// backward pass of a layer holds of it.
bool has_wide_loss(const TrainConfig& config, const ModelSizes& sizes, bool chunked) {
  return config.can_chunk_loss() && sizes.vocab > 0 &&
         (sizes.layers == 0 || sizes.vocab > (chunked ? sizes.width : sizes.ffn));
}
// The forms of the loss to try, `p` being the rest. Chunks cost next to nothing, so where something
// is recomputed or sent away the loss of all tokens is not tried, unless it may need less: where
// they are little more than a chunk, or few and the head comes from elsewhere, which the loop holds
// to its end beside the head's gradient.
std::vector<bool> chunked_loss_forms(const TrainConfig& config, const ModelSizes& sizes,
                                     const Placement& p) {
  const std::string& asked = config.memory.loss;
  if (asked != "auto") return {asked == "chunked"};
  if (!has_wide_loss(config, sizes, p.chunked)) return {false};
  const int64_t tokens = config.tokens_a_step(), dim = sizes.width;
  const bool saves = (tokens - kProductBlock) * sizes.vocab > tokens * dim &&
                     (p.parameters == MemoryKind::kDevice || tokens - kProductBlock > dim);
  const bool keeps = p.policy == "save_all" && is_all_on_device(p);
  if (keeps || !saves || config.memory.policy != "auto") return {false, true};
  return {true};
}
// A placement in every form worth a try.
std::vector<Placement> chunk_forms_of(const TrainConfig& config, const ModelSizes& sizes,
                                      Placement p) {
  std::vector<Placement> forms;
  for (const bool chunked : chunked_forms(config, sizes, p.policy)) {
    p.chunked = chunked;
    for (const bool chunked_loss : chunked_loss_forms(config, sizes, p)) {
      p.chunked_loss = chunked_loss;
      forms.push_back(p);
    }
  }
  return forms;
}

}  // namespace

std::vector<Placement> placement_ladder(const TrainConfig& config, const ModelSizes& sizes) {
  const TrainConfig::Memory& m = config.memory;
  std::vector<MemoryKind> elsewhere;
  if (config.is_virtual()) elsewhere.push_back(MemoryKind::kPinnedHost);
  if (m.disk) elsewhere.push_back(MemoryKind::kDisk);
  const auto places = [&](const std::string& asked, bool device) {
    if (asked != "auto") return std::vector<MemoryKind>{*parse_memory_kind(asked)};
    std::vector<MemoryKind> kinds = elsewhere;
    if (device) kinds.insert(kinds.begin(), MemoryKind::kDevice);
    return kinds;
  };
  std::vector<std::string> policies = {m.policy};
  if (m.policy == "auto") {
    policies = policy_ladder();
    if (sizes.layers > 0)
      policies.insert(policies.end(),
                      {"offload_named", "offload_carries", "offload_all", "offload_nested"});
  }
  std::vector<Placement> ladder;
  for (const std::string& policy : policies) {
    const bool moves = offloads(policy);
    for (MemoryKind activations :
         moves ? places(m.activations, false) : std::vector{MemoryKind::kPinnedHost})
      for (MemoryKind parameters : places(m.parameters, true))
        for (MemoryKind optimizer : places(m.optimizer, true)) {
          // State that is read once a step leaves before what every pass reads.
          if (m.parameters == "auto" && m.optimizer == "auto" && optimizer < parameters) continue;
          for (MemoryKind gradients : places(m.gradients, true)) {
            // Gradients that nobody places lie beside their parameters, or leave after the state.
            if (m.gradients == "auto" && gradients != parameters &&
                (gradients < parameters || (m.optimizer == "auto" && optimizer < gradients)))
              continue;
            for (const Placement& p :
                 chunk_forms_of(config, sizes, {policy, activations, optimizer, parameters, gradients}))
              ladder.push_back(p);
          }
        }
  }
  std::stable_sort(ladder.begin(), ladder.end(), [](const Placement& a, const Placement& b) {
    return cost_of(a) < cost_of(b);
  });
  return ladder;
}

namespace {

// Placements that differ only in which other memory things are in take as much of a virtual device:
// once one is too much for it, so are those like it.
class TooMuch {
 public:
  TooMuch(const TrainConfig& config, const Budgets& budgets) : config_(config), budgets_(budgets) {}

  bool is_known(const Placement& p) const { return config_.is_virtual() && forms_.contains(form(p)); }
  void note(const Placement& p, const BytesByKind& peak_bytes) {
    if (budgets_[0] && peak_bytes[0] > *budgets_[0]) forms_.emplace(form(p), peak_bytes[0]);
  }
  // Bytes of the device that the first of those like it took; 0 where none was noted.
  int64_t noted_bytes(const Placement& p) const {
    const auto at = forms_.find(form(p));
    return at == forms_.end() ? 0 : at->second;
  }

 private:
  using Form = std::tuple<std::string, bool, bool, bool, bool, bool>;
  static Form form(const Placement& p) {
    const auto is_away = [](MemoryKind kind) { return kind != MemoryKind::kDevice; };
    return {p.policy,  is_away(p.optimizer), is_away(p.parameters), is_away(p.gradients),
            p.chunked, p.chunked_loss};
  }

  const TrainConfig& config_;
  const Budgets& budgets_;
  std::map<Form, int64_t> forms_;
};

// The first memory, from kind `first` on, of which a plan needs more than its budget; none where it
// fits.
std::optional<MemoryKind> first_over(const TrainConfig& config, const BytesByKind& peak_bytes,
                                     const Budgets& budgets, size_t first = 0) {
  const BytesByKind needs = budgeted_bytes(config, peak_bytes);
  for (size_t kind = first; kind < budgets.size(); ++kind)
    if (budgets[kind] && needs[kind] > *budgets[kind]) return static_cast<MemoryKind>(kind);
  return std::nullopt;
}

// True if the budgets beside the device's have room for the state, which no plan does without.
bool has_room_for_state(const Job& job, const Placement& p, const Budgets& budgets) {
  BytesByKind bytes{};
  for (size_t i = 0; i < job.state().size(); ++i) {
    const ArrayType& type = job.state()[i].type;
    if (type.shape.rank() == 0) continue;
    const MemoryKind kind = i < job.n_model_leaves() ? p.parameters : p.optimizer;
    bytes[static_cast<size_t>(kind)] += type.bytes();
  }
  return !first_over(job.config(), bytes, budgets, 1);
}

// Whether no budget lacks more than a hundredth of it.
bool is_nearly_within(const TrainConfig& config, const BytesByKind& peak_bytes,
                      const Budgets& budgets) {
  const BytesByKind needs = budgeted_bytes(config, peak_bytes);
  for (size_t kind = 0; kind < budgets.size(); ++kind)
    if (budgets[kind] && needs[kind] - *budgets[kind] > *budgets[kind] / 100) return false;
  return true;
}

// Which budgets a plan needs more than, in words; empty where it fits.
std::string over_budgets(const TrainConfig& config, const JobPlan& plan, const Budgets& budgets) {
  std::string over;
  const BytesByKind needs = budgeted_bytes(config, plan.peak_bytes);
  for (size_t kind = 0; kind < budgets.size(); ++kind)
    if (budgets[kind] && needs[kind] > *budgets[kind])
      over += (over.empty() ? "" : ", ") +
              (kind == 0 ? "over the budget"
                         : fmt::format("over the budget of {}: {}",
                                       memory_kind_name(static_cast<MemoryKind>(kind)),
                                       format_bytes(plan.peak_bytes[kind])));
  return over;
}

// Of placements that are alike but for the memories beside the device the search plans the first. Where
// that is too much for one of those as well, others tell what the device alone would need: the forms
// that need least of it first, until one has room for the rest.
void plan_those_with_room(const Job& job, const Budgets& budgets, const TooMuch& too_much,
                          std::vector<Placement> ladder, Choice& choice) {
  const TrainConfig& config = job.config();
  std::erase_if(ladder, [&](const Placement& p) { return !too_much.is_known(p); });
  std::stable_sort(ladder.begin(), ladder.end(), [&](const Placement& a, const Placement& b) {
    return too_much.noted_bytes(a) < too_much.noted_bytes(b);
  });
  for (const Placement& placement : ladder) {
    if (!has_room_for_state(job, placement, budgets)) continue;
    auto rung = std::find_if(choice.rungs.begin(), choice.rungs.end(),
                             [&](const Rung& r) { return r.placement == placement; });
    if (rung == choice.rungs.end()) {
      JobPlan plan = job.plan_to_fit(placement, budgets);
      const std::string over = over_budgets(config, plan, budgets);
      choice.rungs.push_back({placement, plan.peak_bytes, over});
      if (over.empty()) {
        choice.plan = std::move(plan);
        return;
      }
      rung = choice.rungs.end() - 1;
    }
    if (!first_over(config, rung->peak_bytes, budgets, 1)) return;
  }
}

}  // namespace

Choice find_fit(const Job& job, const Budgets& budgets) {
  Choice choice;
  const TrainConfig& config = job.config();
  TooMuch too_much(config, budgets);
  const std::vector<Placement> ladder = placement_ladder(config, job.model().sizes());
  using Work = std::function<JobPlan()>;
  const auto begin = [&](size_t i) -> std::optional<Work> {
    if (too_much.is_known(ladder[i])) return std::nullopt;
    return [&job, &budgets, &placement = ladder[i]] { return job.plan_to_fit(placement, budgets); };
  };
  in_order(ladder.size(), job.threads(), begin, [&](size_t i, JobPlan plan) {
    if (too_much.is_known(ladder[i])) return true;  // by now
    const std::string over = over_budgets(config, plan, budgets);
    too_much.note(ladder[i], plan.peak_bytes);
    choice.rungs.push_back({ladder[i], plan.peak_bytes, over});
    if (over.empty()) choice.plan = std::move(plan);
    return !over.empty();
  });
  // A plan that was made for a budget may take a little more than one that was made for none.
  for (size_t i = 0; i < choice.rungs.size() && !choice.plan; ++i) {
    const Placement placement = choice.rungs[i].placement;
    if (is_all_on_device(placement) ||
        !is_nearly_within(config, choice.rungs[i].peak_bytes, budgets))
      continue;
    for (const bool moves_ahead : {true, false}) {
      JobPlan plan = job.plan(placement, {}, moves_ahead);
      if (!over_budgets(config, plan, budgets).empty()) continue;
      choice.rungs.push_back({placement, plan.peak_bytes, ""});
      choice.plan = std::move(plan);
      break;
    }
  }
  if (!choice.plan) plan_those_with_room(job, budgets, too_much, ladder, choice);
  return choice;
}

namespace {

// The same with moves ahead, where anything moves and that fits as well.
JobPlan with_moves_ahead(const Job& job, JobPlan plan, const Budgets& budgets) {
  if (is_all_on_device(plan.placement)) return plan;
  JobPlan ahead = job.plan(plan.placement, budgets);
  return over_budgets(job.config(), ahead, budgets).empty() ? std::move(ahead) : std::move(plan);
}

}  // namespace

Choice choose_plan(const Job& job, const Budgets& budgets) {
  const ProgressScope progress("planning the job");
  const auto start = std::chrono::steady_clock::now();
  Choice choice = find_fit(job, budgets);
  if (!choice.plan) return choice;
  choice.plan = with_moves_ahead(job, std::move(*choice.plan), budgets);
  choice.rungs.back().peak_bytes = choice.plan->peak_bytes;
  choice.plan->plan_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return choice;
}

namespace {

constexpr int64_t kFewestChunks = 8;

int64_t power_of_two_up_to(int64_t most) {
  return most < 1 ? 0 : static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(most)));
}

// Tokens of a chunk of the loss whose logits are few beside the hidden states of all tokens; 0 where
// the batch is not worth chunks.
int64_t sensible_loss_chunk(const TrainConfig& config, const ModelSizes& sizes) {
  if (sizes.vocab == 0) return 0;
  const int64_t tokens = config.data.batch * config.data.seq;
  const int64_t most = std::min(tokens / kFewestChunks,
                                tokens * sizes.width / sizes.vocab);
  return power_of_two_up_to(most);
}
// Words of a block whose logits are no more than the hidden states; 0 where the head is not much
// beside a layer.
int64_t sensible_vocab_block(const ModelSizes& sizes) {
  constexpr int64_t kLargeHead = 4;  // words a dimension
  if (sizes.vocab < kLargeHead * sizes.width) return 0;
  return power_of_two_up_to(std::min(sizes.vocab / kFewestChunks, sizes.width));
}

// Ways to compute the loss a part at a time, with the settings that ask for them.
std::vector<std::pair<std::string, TrainConfig>> loss_changes(const TrainConfig& config,
                                                              const ModelSizes& sizes) {
  std::vector<std::pair<std::string, TrainConfig>> changes;
  const auto change = [&](const std::string& setting, int64_t chunk, int64_t block) {
    TrainConfig c = config;
    c.train.loss_chunk = chunk;
    c.train.vocab_block = block;
    c.memory.loss = "auto";
    changes.emplace_back(setting +
                             (config.train.loss_chunk > 0 ? " --set train.loss_chunk=0" : "") +
                             (config.memory.loss != "auto" ? " --set memory.loss=auto" : ""),
                         c);
  };
  // Larger chunks than those that change no number are nothing to ask for.
  if (const int64_t chunk = sensible_loss_chunk(config, sizes);
      chunk > 0 && !config.has_loss_in_parts() &&
      !(config.can_chunk_loss() && chunk >= kProductBlock))
    change(fmt::format("--set train.loss_chunk={}", chunk), chunk, 0);
  if (const int64_t block = sensible_vocab_block(sizes);
      block > 0 && config.train.vocab_block == 0)
    change(fmt::format("--set train.vocab_block={}", block), 0, block);
  return changes;
}

constexpr const char* kAuto = "auto";

// What could be chosen, were nothing asked for.
TrainConfig with_nothing_asked(TrainConfig c) {
  TrainConfig::Memory& m = c.memory;
  m.policy = m.activations = m.optimizer = m.parameters = m.gradients = m.feed_forward = m.loss =
      kAuto;
  return c;
}

// What asks for a placement of `changed`, over what the configuration asks for.
std::string settings_for(const TrainConfig& config, const ModelSizes& sizes, const Placement& p,
                         const TrainConfig& changed) {
  std::string text = "--set memory.policy=" + p.policy;
  const auto add = [&](const char* key, const std::string& asked, MemoryKind kind,
                       MemoryKind by_itself) {
    const std::string_view name = memory_kind_name(kind);
    if (asked == kAuto ? kind != by_itself : asked != name)
      text += fmt::format(" --set memory.{}={}", key, name);
  };
  const TrainConfig::Memory& m = config.memory;
  if (offloads(p.policy))
    text += fmt::format(" --set memory.activations={}", memory_kind_name(p.activations));
  else if (m.activations != kAuto)
    text += " --set memory.activations=auto";
  add("optimizer", m.optimizer, p.optimizer, MemoryKind::kDevice);
  add("parameters", m.parameters, p.parameters, MemoryKind::kDevice);
  add("gradients", m.gradients, p.gradients, p.parameters);
  TrainConfig free = with_nothing_asked(changed);
  free.memory.policy = p.policy;
  const auto add_form = [&](const char* key, const std::string& asked, bool is_chunked,
                            const std::vector<bool>& forms) {
    const char* form = is_chunked ? "chunked" : "whole";
    if (asked == kAuto ? forms.size() > 1 : asked != form)
      text += fmt::format(" --set memory.{}={}", key, form);
  };
  add_form("feed_forward", m.feed_forward, p.chunked, chunked_forms(free, sizes, p.policy));
  if (!changed.has_loss_in_parts())
    add_form("loss", m.loss, p.chunked_loss, chunked_loss_forms(free, sizes, p));
  return text;
}

}  // namespace

std::vector<Remedy> plan_remedies(const Job& asked_for, const Choice& choice,
                                  const Budgets& budgets) {
  const TrainConfig& config = asked_for.config();
  const ModelFactory& factory = asked_for.factory();
  const ModelSizes sizes = asked_for.model().sizes();
  const int threads = asked_for.threads();
  const ProgressScope progress("planning losses in parts");
  std::vector<Remedy> remedies;
  const auto weigh = [&](const std::string& change, const BytesByKind& peak_bytes,
                         bool changes_numbers) {
    remedies.push_back({change, device_bytes(config, peak_bytes), changes_numbers,
                        first_over(config, peak_bytes, budgets)});
  };
  const TrainConfig open = with_nothing_asked(config);
  // Whether a configuration may ask for a placement: there may be nothing to put there.
  const auto can_be_asked = [&](const Placement& p) {
    TrainConfig c = open;
    c.memory.policy = p.policy;
    if (offloads(p.policy)) c.memory.activations = memory_kind_name(p.activations);
    if (p.optimizer != MemoryKind::kDevice) c.memory.optimizer = memory_kind_name(p.optimizer);
    if (p.parameters != MemoryKind::kDevice) c.memory.parameters = memory_kind_name(p.parameters);
    if (p.gradients != p.parameters) c.memory.gradients = memory_kind_name(p.gradients);
    try {
      const Job asked(c, threads, factory);
      return true;
    } catch (const TraceError&) {
      return false;
    }
  };
  const Job job(open, threads, factory);
  std::vector<std::pair<BytesByKind, Placement>> tried;
  TooMuch too_much(open, budgets);
  std::vector<Placement> ladder = placement_ladder(open, sizes);
  for (const Rung& rung : choice.rungs)  // forms that were asked for, and nothing would try
    if (std::find(ladder.begin(), ladder.end(), rung.placement) == ladder.end())
      ladder.push_back(rung.placement);
  using Work = std::function<BytesByKind()>;
  const auto rung_of = [&](const Placement& placement) {
    return std::find_if(choice.rungs.begin(), choice.rungs.end(),
                        [&](const Rung& r) { return r.placement == placement; });
  };
  // What was planned is shown; else one of those alike that the other memories have room for.
  const auto is_shown = [&](const Placement& placement) {
    return rung_of(placement) != choice.rungs.end() ||
           (!too_much.is_known(placement) && has_room_for_state(job, placement, budgets));
  };
  const auto begin = [&](size_t i) -> std::optional<Work> {
    const Placement& placement = ladder[i];
    if (!is_shown(placement) || !can_be_asked(placement)) return std::nullopt;
    if (const auto known = rung_of(placement); known != choice.rungs.end())
      return [known] { return known->peak_bytes; };
    return [&] { return job.plan_to_fit(placement, budgets).peak_bytes; };
  };
  in_order(ladder.size(), threads, begin, [&](size_t i, const BytesByKind& peak_bytes) {
    if (!is_shown(ladder[i])) return true;  // by now
    if (!first_over(open, peak_bytes, budgets, 1)) too_much.note(ladder[i], peak_bytes);
    tried.emplace_back(peak_bytes, ladder[i]);
    weigh(settings_for(config, sizes, ladder[i], config), peak_bytes, false);
    return true;
  });
  // What takes least as things are, what does of another policy, as another job may like that
  // better, and what does of those that the memories beside the device have room for.
  std::stable_sort(tried.begin(), tried.end(), [&](const auto& a, const auto& b) {
    return device_bytes(open, a.first) < device_bytes(open, b.first);
  });
  const auto has_room_beside = [&budgets](const TrainConfig& c, const BytesByKind& peak_bytes) {
    return !first_over(c, peak_bytes, budgets, 1);
  };
  std::vector<Placement> least = {tried.front().second};
  for (const auto& [peak, placement] : tried)
    if (least.size() < 2 && placement.policy != least[0].policy) least.push_back(placement);
  const auto roomy = std::find_if(tried.begin(), tried.end(), [&](const auto& one) {
    return has_room_beside(open, one.first);
  });
  if (roomy != tried.end() && std::find(least.begin(), least.end(), roomy->second) == least.end())
    least.push_back(roomy->second);
  std::vector<std::pair<std::string, TrainConfig>> changes;
  const auto change = [&](const std::string& setting, auto&& apply) {
    apply(changes.emplace_back(setting, config).second);
  };
  if (const int64_t batch = config.data.batch / 2; batch > 0)
    change(fmt::format("--set data.batch={}", batch),
           [&](TrainConfig& c) { c.data.batch = batch; });
  if (const int64_t seq = config.data.seq / 2; seq > 0)
    change(fmt::format("--set data.seq={}", seq), [&](TrainConfig& c) { c.data.seq = seq; });
  for (const ModelChange& of_model : asked_for.model().changes())
    change(of_model.setting, of_model.apply);
  if (config.train.compute == "f32")
    change("--set train.compute=bf16", [](TrainConfig& c) { c.train.compute = "bf16"; });
  for (auto& changed : loss_changes(config, sizes)) changes.push_back(std::move(changed));
  // The best of those placements, with the feed-forward blocks either way; none where the change
  // leaves nothing of what the configuration asks for, as a tied head that is frozen by name.
  using Best = std::optional<std::pair<Placement, BytesByKind>>;
  const auto plan_change = [&](size_t i) -> std::optional<std::function<Best()>> {
    return [&least, &budgets, &open, &has_room_beside, &factory, &sizes,
            &changed = changes[i].second, threads]() -> Best {
      Best best;
      try {
        const Job changed_job(changed, threads, factory);
        TrainConfig open_form = changed;
        open_form.memory = open.memory;
        for (const Placement& one : least)
          for (const Placement& placement : chunk_forms_of(open_form, sizes, one)) {
            const BytesByKind peak_bytes = changed_job.plan_to_fit(placement, budgets).peak_bytes;
            const auto rank = [&](const BytesByKind& peak) {
              return std::pair(!has_room_beside(changed, peak), device_bytes(changed, peak));
            };
            if (!best || rank(peak_bytes) < rank(best->second)) best = {placement, peak_bytes};
          }
      } catch (const TraceError&) {
        return {};
      }
      return best;
    };
  };
  in_order(changes.size(), threads, plan_change, [&](size_t i, const Best& found) {
    if (!found) return true;
    const auto& best = *found;
    const auto& [setting, changed] = changes[i];
    // What is chosen by itself, and what has to be asked for as something else is.
    weigh(config.memory == open.memory
              ? fmt::format("{} ({})", setting, to_string(best.first))
              : fmt::format("{} {}", setting, settings_for(config, sizes, best.first, changed)),
          best.second, true);
    return true;
  });
  // What another memory has no room for comes last.
  std::stable_sort(remedies.begin(), remedies.end(), [](const Remedy& a, const Remedy& b) {
    const auto rank = [](const Remedy& r) {
      return std::pair(r.over && *r.over != MemoryKind::kDevice, r.peak_bytes);
    };
    return rank(a) < rank(b);
  });
  return remedies;
}

std::vector<Remedy> loss_remedies(const Job& asked_for, const JobPlan& plan,
                                  const Budgets& budgets) {
  const TrainConfig& config = asked_for.config();
  const ModelSizes sizes = asked_for.model().sizes();
  const ProgressScope progress("planning losses in parts");
  std::vector<Remedy> remedies;
  if (config.has_loss_in_parts()) return remedies;
  const auto weigh = [&](const std::string& change, const TrainConfig& changed, bool chunked_loss) {
    Placement placement = plan.placement;
    placement.chunked_loss = chunked_loss;
    const Job job(changed, asked_for.threads(), asked_for.factory());
    const JobPlan parts = with_moves_ahead(job, job.plan_to_fit(placement, budgets), budgets);
    const int64_t needs = device_bytes(changed, parts.peak_bytes);
    if (needs >= device_bytes(config, plan.peak_bytes)) return;
    // Asked for where another would be chosen by itself.
    const bool is_first = placement_ladder(changed, sizes).front() == placement;
    remedies.push_back(
        {is_first ? change : change + " " + settings_for(changed, sizes, placement, changed),
         needs,
         !chunked_loss,
         {}});
  };
  if (config.can_chunk_loss() && !plan.placement.chunked_loss) {
    TrainConfig changed = config;
    changed.memory.loss = "chunked";
    weigh("--set memory.loss=chunked", changed, true);
  }
  for (const auto& [change, changed] : loss_changes(config, sizes)) weigh(change, changed, false);
  return remedies;
}

}  // namespace stow
