#include "stowage/train/job.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "stowage/stowage.h"
#include "stowage/train/optimizer.h"
#include "stowage/train/step.h"

namespace stow {

using nn::Llama;

const MemoryAnalysis& JobPlan::peak_analysis() const {
  const ExecutablePtr& program = peak_phase == "init"   ? programs.init
                                 : peak_phase == "eval" ? programs.eval
                                 : peak_phase == "sample" ? programs.sample
                                                          : programs.step;
  return program->memory_analysis();
}

Job::Job(const TrainConfig& config, int threads) : config_(config), threads_(threads) {
  const nn::LlamaConfig llama = llama_config(config);
  const int64_t b = config.data.batch, t = config.data.seq;
  TrainState state;
  state.model = nn::llama_abstract(llama);
  const Optimizer optimizer = optimizer_of(config.optimizer);
  optimizer.frozen.check(optim::GradientTransformation::leaves_by_path(state.model),
                         "optimizer.freeze: the");
  state.optimizer = optimizer.transformation.init(state.model);
  n_model_leaves_ = tree_leaves(state.model).size();
  const std::vector<Array> leaves = tree_leaves(state);
  const std::vector<std::string> names = tree_paths(state);
  for (size_t i = 0; i < leaves.size(); ++i) {
    state_.push_back({names[i], leaves[i].type()});
    if (i >= n_model_leaves_) optimizer_bytes_ += leaves[i].type().bytes();
  }

  const auto tokens = [](int64_t rows, int64_t cols) {
    return Array::abstract(Shape{rows, cols}, DType::kI32);
  };
  init_ = jit([&](const Array& key) {
            TrainState s;
            s.model = nn::llama_init(llama, key);
            s.optimizer = optimizer.transformation.init(s.model);
            return s;
          }).lower(Array::abstract(Shape{2}, DType::kU32)).graph();
  const auto trace_step = [&](const nn::LlamaConfig& model) {
    return jit([&](const TrainState& s, const Array& x) { return train_step(config, model, s, x); })
        .lower(state, tokens(b, t + 1))
        .graph();
  };
  step_ = trace_step(llama);
  nn::LlamaConfig nested = llama;
  nested.nested_blocks = {0};
  nested_step_ = trace_step(nested);
  eval_ = jit([&](const Llama& m, const Array& x) { return nn::llama_loss(llama, m, x); })
              .lower(state.model, tokens(b, t + 1))
              .graph();
  sample_ = jit([&](const Llama& m, const Array& x, const Array& position) {
              const Array hidden = nn::llama_hidden(llama, m, x);  // [1, T, d]
              const Array last = take(hidden.reshape({t, llama.dim}), position, 0, IndexMode::kClip);
              return nn::llama_logits(m, last);
            }).lower(state.model, tokens(1, t), Array::abstract(Shape{}, DType::kI32)).graph();
}

int64_t Job::n_parameters() const {
  int64_t n = 0;
  for (size_t i = 0; i < n_model_leaves_; ++i) n += state_[i].type.elems();
  return n;
}

JobPlan Job::plan(const std::string& policy) const {
  const auto start = std::chrono::steady_clock::now();
  JobPlan plan;
  plan.policy = policy;
  CompileOptions step;
  step.donated.assign(state_.size(), true);
  step.override_policy = named_policy(policy);
  step.dump_name = "step-" + policy;
  const auto plain = [&](const Graph& graph, const char* name) {
    CompileOptions options;
    options.dump_name = name;
    return compile(graph, options, threads_);
  };
  plan.programs.init = plain(init_, "init");
  plan.programs.step = compile(policy == "nested" ? nested_step_ : step_, step, threads_);
  plan.programs.eval = plain(eval_, "eval");
  plan.programs.sample = plain(sample_, "sample");
  // Evaluation and sampling run beside the optimizer's state, which is no argument of theirs.
  const auto weigh = [&](const char* phase, const ExecutablePtr& program, int64_t beside) {
    const KindAnalysis& k = program->memory_analysis().device();
    if (k.total_bytes + beside > plan.peak_bytes[0]) {
      plan.peak_bytes[0] = k.total_bytes + beside;
      plan.peak_phase = phase;
    }
    plan.lower_bound_bytes[0] = std::max(plan.lower_bound_bytes[0], k.lower_bound_bytes + beside);
  };
  weigh("step", plan.programs.step, 0);
  weigh("init", plan.programs.init, 0);
  weigh("eval", plan.programs.eval, optimizer_bytes_);
  weigh("sample", plan.programs.sample, optimizer_bytes_);
  plan.plan_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return plan;
}

const std::vector<std::string>& policy_ladder() {
  static const std::vector<std::string> ladder = {"save_all", "save_dots", "save_named",
                                                  "recompute", "nested"};
  return ladder;
}

Choice choose_plan(const Job& job, std::optional<int64_t> budget_bytes) {
  Choice choice;
  const std::string& asked = job.config().memory.policy;
  const std::vector<std::string> policies =
      asked == "auto" ? policy_ladder() : std::vector<std::string>{asked};
  for (const std::string& policy : policies) {
    JobPlan plan = job.plan(policy);
    const int64_t peak = plan.peak_bytes[0];
    const bool fits = !budget_bytes || peak <= *budget_bytes;
    choice.rungs.push_back({policy, peak, fits ? "" : "over the budget"});
    if (choice.least.policy.empty() || peak < choice.least.peak_bytes[0]) choice.least = plan;
    if (!fits) continue;
    choice.plan = std::move(plan);
    break;
  }
  return choice;
}

std::vector<Remedy> plan_remedies(const TrainConfig& config, const Choice& choice, int threads) {
  std::vector<Remedy> remedies;
  for (const std::string& policy : policy_ladder()) {
    const auto known = std::find_if(choice.rungs.begin(), choice.rungs.end(),
                                    [&](const Rung& r) { return r.policy == policy; });
    const int64_t peak = known != choice.rungs.end() ? known->peak_bytes
                                                     : Job(config, threads).plan(policy).peak_bytes[0];
    remedies.push_back({"--set memory.policy=" + policy, peak, false});
  }
  const std::string best =
      std::min_element(remedies.begin(), remedies.end(), [](const Remedy& a, const Remedy& b) {
        return a.peak_bytes < b.peak_bytes;
      })->change.substr(std::string("--set memory.policy=").size());
  const auto add = [&](const std::string& change, const TrainConfig& changed) {
    remedies.push_back({fmt::format("{} ({})", change, best),
                        Job(changed, threads).plan(best).peak_bytes[0], true});
  };
  if (config.data.batch > 1) {
    TrainConfig c = config;
    c.data.batch /= 2;
    add(fmt::format("--set data.batch={}", c.data.batch), c);
  }
  if (config.data.seq > 1) {
    TrainConfig c = config;
    c.data.seq /= 2;
    add(fmt::format("--set data.seq={}", c.data.seq), c);
  }
  if (!config.model.tied) {
    TrainConfig c = config;
    c.model.tied = true;
    add("--set model.tied=true", c);
  }
  std::stable_sort(remedies.begin(), remedies.end(), [](const Remedy& a, const Remedy& b) {
    return a.peak_bytes < b.peak_bytes;
  });
  return remedies;
}

}  // namespace stow
