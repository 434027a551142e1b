// Job: the programs of a training run, traced once and planned for placements.
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
#include "stowage/train/model.h"
#include "stowage/train/placements.h"

namespace stow {

/// A leaf of the training state or of the frozen weights.
struct StateLeaf {
  std::string name;            ///< Its path: "model/layers/wq", "optimizer/adam/mu/norm".
  ArrayType type;              ///< The type of the whole array.
  AxisSharding sharding = {};  ///< Sharding over the job's mesh; no axes without a mesh.
  ArrayType part = {};         ///< The type of a position's part.
};

/// By leaf name: shardings that replace those of the configuration.
using LeafShardings = std::map<std::string, AxisSharding>;

/// The programs of one run. `state`: the leaves of (model, optimizer, ema), always in this order.
/// `frozen`: those of TrainModel::frozen().
///   init:    (key u32[2]) -> state; if the parameters come from files: (model) -> (optimizer, ema)
///   step:    (state, frozen, batch) -> (state, loss f32, grad_norm f32, lr f32); state donated
///   eval:    (model, frozen, batch) -> (loss f32); null without held-out data
///   sample:  (model, frozen, sample inputs) -> (logits f32[V]); null if no sample is drawn
/// In eval and sample, `model` is the ema if there is one.
struct JobPrograms {
  ExecutablePtr init, step, eval, sample;
  std::vector<ExecutablePtr> other_steps;  ///< The steps of batch shapes 1, 2, …

  /// The step of a batch shape.
  const ExecutablePtr& step_of(size_t shape) const {
    return shape == 0 ? step : other_steps[shape - 1];
  }
};

/// Names of phases. Each phase of a run has one program.
inline constexpr const char* kInitPhase = "init";
inline constexpr const char* kEvalPhase = "eval";
inline constexpr const char* kSamplePhase = "sample";
/// Returns the name of a step's phase by batch shape: "step", "step (batch shape 1)", …
std::string step_phase(size_t shape);

/// The use of a program in a run.
enum class ProgramKind { kInit, kStep, kEval, kSample };
/// Returns the use of the program of a phase. `phase`: kInitPhase, kEvalPhase, kSamplePhase or a
/// step_phase().
ProgramKind program_kind(std::string_view phase);

/// A plan of all programs of a job under one placement.
struct JobPlan {
  Placement placement;
  JobPrograms programs;
  BytesByKind peak_bytes{};         ///< Peak of the run over all programs.
  BytesByKind lower_bound_bytes{};  ///< That peak if each program took only its largest live sum.
  std::string peak_phase;           ///< Name of the phase that has the device's peak.
  /// One program, and the bytes of the run while it runs.
  struct Phase {
    std::string name;  ///< step_phase(), kInitPhase, kEvalPhase or kSamplePhase.
    BytesByKind peak_bytes{}, lower_bound_bytes{};
  };
  std::vector<Phase> phases;
  bool moves_ahead = false;  ///< True if moves and collectives of its steps may run ahead.
  double plan_s = 0;  ///< Seconds of planning; after choose_plan(), of all plans that it made.
  const Executable& program(std::string_view phase) const;  ///< Program of one of `phases`.
  const MemoryAnalysis& peak_analysis() const;              ///< Analysis of peak_phase's program.
  /// The owners of the device's peak. Arguments are named by their use: "state", "frozen weights",
  /// "batch".
  std::vector<PeakOwner> peak_owners() const;
};

/// Returns the memory kind of the average of the parameters: that of the optimizer's state, but
/// host memory instead of the device if the device has separate host memory.
MemoryKind ema_kind(const TrainConfig& config, MemoryKind optimizer);

/// Returns the bytes that count against the device's budget: device memory, and host memory if it
/// is the same RAM.
int64_t device_bytes(const TrainConfig& config, const BytesByKind& bytes);

/// Returns the bytes that count against each budget.
BytesByKind budgeted_bytes(const TrainConfig& config, const BytesByKind& bytes);

/// Bytes of each memory kind that a run may use; none: no limit.
using Budgets = std::array<std::optional<int64_t>, kNumMemoryKinds>;
/// Returns the budgets of a configuration with `device_bytes` as the device's budget.
Budgets budgets_of(const TrainConfig& config, std::optional<int64_t> device_bytes);

/// Returns the budgets for programs: host memory without the window through which devices exchange
/// data.
Budgets budgets_of_programs(const TrainConfig& config, Budgets budgets);

/// The traced graphs of a configuration. Planning under another checkpoint policy needs no new
/// trace; the state in other memory kinds does. Thread-safe.
class Job {
 public:
  /// `overrides`: shardings of leaves of state() and frozen() that differ from the configuration's.
  /// Errors: TraceError if the model cannot be built.
  Job(const TrainConfig& config, TargetPtr target, ModelFactory factory,
      const LeafShardings& overrides = {});
  /// A job for the CPU with `threads` threads. `device`: the device that plans are made for.
  Job(const TrainConfig& config, int threads, ModelFactory factory,
      DeviceDescriptionPtr device = nullptr);
  ~Job();
  Job(Job&&) noexcept;

  const TrainConfig& config() const { return config_; }
  const TargetPtr& target() const { return target_; }  ///< Target of all programs.
  int threads() const;                                 ///< Threads of the target.
  const TrainModel& model() const { return *model_; }
  /// The mesh of the programs; of rank 0 for a single device. All sizes of a plan, and the types of
  /// its programs, are those of one position.
  const MeshShape& mesh() const { return mesh_; }
  /// Shardings of the arrays of a training batch of this shape.
  std::vector<AxisSharding> batch_shardings(size_t shape) const;
  /// Shardings of the arrays of an evaluation batch.
  std::vector<AxisSharding> eval_shardings() const;
  /// The factory of the model, for similar configurations.
  const ModelFactory& factory() const { return factory_; }
  /// Leaves of the state. Their memory kinds depend on the placement.
  const std::vector<StateLeaf>& state() const { return state_; }
  size_t n_model_leaves() const { return n_model_leaves_; }  ///< The first leaves of state().
  /// Index of the first leaf of the average of the parameters; the number of leaves if there is no
  /// average.
  size_t first_ema_leaf() const;
  /// The leaves of the state that eval and sample take: the index of the first, and their number.
  std::pair<size_t, size_t> evaluated_leaves() const;
  /// Frozen weights. Their memory kinds depend on the placement.
  const std::vector<StateLeaf>& frozen() const { return frozen_; }
  int64_t n_parameters() const;  ///< Elements of the trained parameters.
  int64_t n_frozen() const;      ///< Elements of the frozen weights.
  /// Returns "2442240 parameters over 134515008 that are frozen, …; 2 microbatches of 4 sequences
  /// of 256 tokens a step".
  std::string describe() const;

  /// Plans every program. `moves_ahead`: true: moves run ahead as far as the budgets allow; false:
  /// the plan needs the least memory, and much less time to make.
  JobPlan plan(const Placement& placement, const Budgets& budgets = {},
               bool moves_ahead = true) const;
  /// Plans without moves ahead, and plans only the steps if these exceed a budget.
  JobPlan plan_until_over(const Placement& placement, const Budgets& budgets) const;
  /// True if a step moves data between memories or devices.
  bool moves(const Placement& placement) const;
  /// Returns the plan that decides if a placement fits: without moves ahead, unless nothing moves.
  /// A placement that does not fit without moves ahead is assumed not to fit with them.
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
  std::unique_ptr<std::mutex> tracing_;  // guards traced_ and its elements
  mutable std::vector<std::unique_ptr<Traced>> traced_;
};

/// A placement that was planned, and the reason why it was not chosen ("" for the chosen one).
struct Candidate {
  Placement placement;
  BytesByKind peak_bytes{};
  std::string verdict;
};
/// The plan chosen under budgets, and all candidates.
struct Choice {
  std::optional<JobPlan> plan;  ///< None if no candidate fits.
  /// In the order planned; if is_fastest, those that fit come last. Of placements that need the same too many bytes of a virtual device, only
  /// the first is planned.
  std::vector<Candidate> candidates;
  /// True: the placement with the shortest simulated step of those that fit. False: the first that
  /// fits of those that find_fastest() passed over.
  bool is_fastest = false;
};
/// Returns the first placement of open_placements() that fits; its plan has no moves ahead.
Choice find_fit(const Job& job, const Budgets& budgets);
/// Returns the device that plans are made for, as the description of the job's target: `device`,
/// but null for a mesh unless a person named the device (`is_named`): processes that train together
/// must make the same plan, and their machines may be calibrated differently.
DeviceDescriptionPtr device_to_plan_for(const TrainConfig& config,
                                        const std::optional<DeviceDescription>& device,
                                        bool is_named);
/// Returns the plan to run: find_fastest(); if that finds none, find_fit() with moves ahead if
/// these fit too.
Choice choose_plan(const Job& job, const Budgets& budgets);

/// A change of the configuration that would lower the peak, and its plan's peak.
struct Remedy {
  std::string change;              ///< "--set data.batch=8"
  int64_t peak_bytes = 0;          ///< Bytes that count against the device's budget.
  bool changes_numbers = false;    ///< True if results change.
  std::optional<MemoryKind> over;  ///< The first memory kind over its budget; none: it fits.
};
/// Plans changes that a person could make, each with its best placement and without moves ahead,
/// and returns them by peak, the lowest first.
std::vector<Remedy> plan_remedies(const Job& job, const Choice& choice, const Budgets& budgets);

/// Returns changes that compute the loss in parts instead of from all logits at once, with the same
/// placement, if these lower the peak. A change names the placement if another one would be chosen
/// otherwise.
std::vector<Remedy> loss_remedies(const Job& job, const JobPlan& plan, const Budgets& budgets);

}  // namespace stow
