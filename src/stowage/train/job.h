// Job: the programs of a training run, traced once and planned under a checkpoint policy.
// Not the run; nothing here allocates a tensor.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stowage/runtime/null/device_description.h"
#include "stowage/session/compile.h"
#include "stowage/train/config.h"
#include "stowage/train/decoder_model.h"
#include "stowage/train/model.h"
#include "stowage/train/placements.h"

namespace stow {

/// The leaves of the training state in order, by path ("model/layers/wq", "optimizer/adam/mu/norm").
struct StateLeaf {
  std::string name;
  ArrayType type;  ///< Whole.
  AxisSharding sharding = {};  ///< How it lies over the job's mesh; no axes where there is none.
  ArrayType part = {};         ///< The type of a position's part.
};

/// How leaves lie that are to lie otherwise than their configuration says, by name.
using LeafShardings = std::map<std::string, AxisSharding>;

/// The programs of one run. State is the leaves of (model, optimizer, ema), in this order everywhere;
/// `frozen` those of TrainModel::frozen().
///   init:    (key u32[2]) -> state; where the parameters come from files
///            (model) -> (optimizer, ema)
///   step:    (state, frozen, batch) -> (state, loss f32, grad_norm f32, lr f32); state donated
///   eval:    (model, frozen, batch) -> (loss f32); `model` is the ema where there is one. null where
///            nothing is held out
///   sample:  (model, frozen, sample inputs) -> (logits f32[V]); so is it here. null where nothing is drawn
struct JobPrograms {
  ExecutablePtr init, step, eval, sample;
  std::vector<ExecutablePtr> other_steps;  ///< The steps of batch shapes 1, 2, …

  const ExecutablePtr& step_of(size_t shape) const {
    return shape == 0 ? step : other_steps[shape - 1];
  }
};

/// The name of the phase of a batch shape's step: "step", "step (batch shape 1)", …
std::string step_phase(size_t shape);

/// A job planned one way.
struct JobPlan {
  Placement placement;
  JobPrograms programs;
  BytesByKind peak_bytes{};         ///< Peak of the whole run, every program of it.
  BytesByKind lower_bound_bytes{};  ///< The same with each program at its largest live sum.
  std::string peak_phase;           ///< The program whose peak on the device it is.
  /// Bytes of the run while a program of it runs, and the least that it could take.
  struct Phase {
    std::string name;  ///< step_phase(), "init", "eval" or "sample".
    BytesByKind peak_bytes{}, lower_bound_bytes{};
  };
  std::vector<Phase> phases;
  bool moves_ahead = false;  ///< True if moves and collectives of its steps may run ahead.
  double plan_s = 0;  ///< Time to plan it; of a plan of choose_plan, all that was planned.
  const Executable& program(std::string_view phase) const;  ///< Program of one of `phases`.
  const MemoryAnalysis& peak_analysis() const;
  /// Its owners, arguments by what they are: "state", "frozen weights", "batch".
  std::vector<PeakOwner> peak_owners() const;
};

/// The memory of the average of the parameters: with the optimizer's state, but never on a device that has a
/// host beside it.
MemoryKind ema_kind(const TrainConfig& config, MemoryKind optimizer);

/// The bytes that count against the device's budget: where the host's memory is the device's, both.
int64_t device_bytes(const TrainConfig& config, const BytesByKind& bytes);

/// The bytes that count against each budget.
BytesByKind budgeted_bytes(const TrainConfig& config, const BytesByKind& bytes);

/// Bytes of each memory that a run may take; none: without limit.
using Budgets = std::array<std::optional<int64_t>, kNumMemoryKinds>;
/// The budgets of a configuration; its device's budget is `device_bytes`.
Budgets budgets_of(const TrainConfig& config, std::optional<int64_t> device_bytes);

/// The part of the budgets for programs: the host's without the window through which devices exchange.
Budgets budgets_of_programs(const TrainConfig& config, Budgets budgets);

/// The traced graphs of a configuration. Planning under another policy traces nothing again; with
/// the state in other memories the graphs are others. Several threads may plan at once.
class Job {
 public:
  /// `lies`: of leaves of state() and frozen(), which other forms of the job are asked about.
  /// Errors: TraceError where the model cannot be built.
  Job(const TrainConfig& config, TargetPtr target, ModelFactory factory = decoder_model,
      const LeafShardings& lies = {});
  /// The same for the CPU with so many threads; plans are made for `device`.
  explicit Job(const TrainConfig& config, int threads, ModelFactory factory = decoder_model,
               DeviceDescriptionPtr device = nullptr);
  ~Job();
  Job(Job&&) noexcept;

  const TrainConfig& config() const { return config_; }
  const TargetPtr& target() const { return target_; }  ///< The target of its programs.
  int threads() const;                                 ///< Threads of the target.
  const TrainModel& model() const { return *model_; }
  /// The mesh that its programs are for; of rank 0 where one device trains. All sizes of a plan are
  /// those of one position, and so are the types of its programs.
  const MeshShape& mesh() const { return mesh_; }
  /// How the arrays of a batch lie, by array; a training batch of that shape, or one of evaluation.
  std::vector<AxisSharding> batch_shardings(size_t shape) const;
  std::vector<AxisSharding> eval_shardings() const;
  /// The maker of the model, for configurations near this one.
  const ModelFactory& factory() const { return factory_; }
  /// Names and types; where a leaf lies is the placement's.
  const std::vector<StateLeaf>& state() const { return state_; }
  size_t n_model_leaves() const { return n_model_leaves_; }
  /// The first leaf of the average of the parameters; the number of leaves where there is none.
  size_t first_ema_leaf() const;
  /// The leaves of the state that eval and sample take: the first, and how many.
  std::pair<size_t, size_t> evaluated_leaves() const;
  /// Frozen weights; where they lie is the placement's.
  const std::vector<StateLeaf>& frozen() const { return frozen_; }
  int64_t n_parameters() const;  ///< Trained ones.
  int64_t n_frozen() const;      ///< Elements of the frozen weights.
  /// "2442240 parameters over 134515008 that are frozen, …; 2 microbatches of 4 sequences of 256 tokens a step".
  std::string describe() const;

  /// Plans every program. Memory within the budgets is spent on moves that run ahead, unless they
  /// are not to: what takes the least memory, and much less time to plan.
  JobPlan plan(const Placement& placement, const Budgets& budgets = {},
               bool moves_ahead = true) const;
  /// plan() with every move by itself, of the steps alone where these take more than a budget.
  JobPlan plan_until_over(const Placement& placement, const Budgets& budgets) const;
  /// True if anything that could run ahead moves in a step: between memories, or between devices.
  bool moves(const Placement& placement) const;
  /// The plan that tells whether the placement fits: with every move by itself. What does not fit
  /// so is taken not to with moves ahead, either; where these alone do not fit, this is what runs.
  JobPlan plan_to_fit(const Placement& placement, const Budgets& budgets) const;

 private:
  struct Traced;
  Traced& traced(const Placement& placement) const;
  JobPlan plan_phases(const Placement& placement, const Budgets& budgets, bool moves_ahead,
                      bool ends_when_over) const;
  std::shared_ptr<const MeshOptions> over_mesh(std::vector<AxisSharding> in,
                                               std::vector<std::optional<AxisSharding>> out) const;

  TrainConfig config_;
  TargetPtr target_;
  ModelFactory factory_;
  TrainModelPtr model_;
  MeshShape mesh_;
  std::vector<StateLeaf> state_, frozen_;
  size_t n_model_leaves_ = 0;
  std::unique_ptr<std::mutex> tracing_;  // guards what follows, and all that is in it
  mutable std::vector<std::unique_ptr<Traced>> traced_;
};

/// A placement that was weighed, and why it was not chosen ("" for the chosen one).
struct Candidate {
  Placement placement;
  BytesByKind peak_bytes{};
  std::string verdict;
};
/// The plan chosen under a budget, and the candidates passed over.
struct Choice {
  std::optional<JobPlan> plan;  ///< None where nothing fits.
  /// In the order tried. Of those that take as much of a virtual device, and more than there is,
  /// one.
  std::vector<Candidate> candidates;
  bool is_fastest = false;  ///< By simulation, of what fits; else the first of an order that does.
};
/// The cheapest placement that fits, or the one asked for; what is elsewhere moves by itself, not
/// ahead.
Choice find_fit(const Job& job, const Budgets& budgets);
/// The device that plans of a configuration are to be made for, for the job's target. Processes that train
/// together must plan alike, and may stand on machines that were calibrated apart: over a mesh a device counts
/// that was named, and no other.
DeviceDescriptionPtr device_to_plan_for(const TrainConfig& config,
                                        const std::optional<DeviceDescription>& device, bool is_named);
/// The plan that runs, with moves ahead where these fit too. If `memory.policy` is "auto" and the job's target
/// has a description, the placement whose step is the shortest on it (find_fastest); else that of find_fit().
Choice choose_plan(const Job& job, const Budgets& budgets);

/// A change that would lower the peak, planned.
struct Remedy {
  std::string change;  ///< "--set data.batch=8"
  int64_t peak_bytes = 0;  ///< The bytes that count against the device's budget.
  bool changes_numbers = false;
  std::optional<MemoryKind> over;  ///< The first memory whose budget it is beyond; of none it fits.
};
/// Changes that a person could make, each planned with its best placement, the lowest peak first. No moves
/// run ahead in these plans, so a peak is the least that the change asks for.
std::vector<Remedy> plan_remedies(const Job& job, const Choice& choice, const Budgets& budgets);

/// Returns what a plan that computes the loss from all logits at once would need if it computed the
/// loss a part at a time, with the same placement, where that is less. A change asks for the
/// placement if another would be chosen by itself.
std::vector<Remedy> loss_remedies(const Job& job, const JobPlan& plan, const Budgets& budgets);

}  // namespace stow
