// Job: the programs of a training run, traced once and planned under a checkpoint policy.
// Not the run; nothing here allocates a tensor.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "stowage/nn/llama.h"
#include "stowage/session/compile.h"
#include "stowage/train/config.h"

namespace stow {

/// The leaves of the training state in order, by path ("model/layers/wq", "optimizer/mu/norm").
struct StateLeaf {
  std::string name;
  ArrayType type;
};

/// The programs of one run. State is the leaves of (model, optimizer), in this order everywhere.
///   init:    (key u32[2]) -> state
///   step:    (state, tokens i32[B,T+1]) -> (state, loss f32, grad_norm f32, lr f32); state donated
///   eval:    (model, tokens i32[B,T+1]) -> (loss f32)
///   sample:  (model, tokens i32[1,T], position i32) -> (logits f32[V])
struct JobPrograms {
  ExecutablePtr init, step, eval, sample;
};

using BytesByKind = std::array<int64_t, kNumMemoryKinds>;

/// A job planned under one policy.
struct JobPlan {
  std::string policy;
  JobPrograms programs;
  BytesByKind peak_bytes{};         ///< Of the whole run, every program of it.
  BytesByKind lower_bound_bytes{};  ///< The same with each program at its largest live sum.
  std::string peak_phase;           ///< The program whose peak it is.
  double plan_s = 0;
  const MemoryAnalysis& peak_analysis() const;
};

/// The traced graphs of a configuration. Planning one of several policies traces nothing again.
class Job {
 public:
  /// Errors: TraceError where the model cannot be built.
  explicit Job(const TrainConfig& config, int threads);

  const TrainConfig& config() const { return config_; }
  const std::vector<StateLeaf>& state() const { return state_; }
  size_t n_model_leaves() const { return n_model_leaves_; }
  int64_t n_parameters() const;

  /// Plans every program under a policy by name (save_all, save_dots, save_named, recompute,
  /// nested).
  JobPlan plan(const std::string& policy) const;

 private:
  TrainConfig config_;
  int threads_;
  std::vector<StateLeaf> state_;
  size_t n_model_leaves_ = 0;
  int64_t optimizer_bytes_ = 0;
  Graph init_, step_, nested_step_, eval_, sample_;
};

/// A policy that was weighed, and why it was not chosen ("" for the chosen one).
struct Rung {
  std::string policy;
  int64_t peak_bytes = 0;
  std::string verdict;
};
/// What is chosen under a budget, and what was passed over.
struct Choice {
  std::optional<JobPlan> plan;  ///< None where nothing fits.
  JobPlan least;                ///< The plan of the lowest peak that was weighed.
  std::vector<Rung> rungs;
};
/// Policies from the cheapest in time to the cheapest in memory.
const std::vector<std::string>& policy_ladder();
/// The cheapest policy that fits, or the one asked for. No budget: the first one.
Choice choose_plan(const Job& job, std::optional<int64_t> budget_bytes);

/// A change that would lower the peak, planned.
struct Remedy {
  std::string change;  ///< "--set data.batch=8"
  int64_t peak_bytes = 0;
  bool changes_numbers = false;
};
/// What a person could turn, each planned with its best policy, the lowest peak first.
std::vector<Remedy> plan_remedies(const TrainConfig& config, const Choice& choice, int threads);

}  // namespace stow
