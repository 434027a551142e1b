// The training run: steps, evaluation, checkpoints, progress, a sample; and its plan for people.
// Not the choice of the plan (job.h), nor the parts of a run (run_state.h, run_report.h).
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "stowage/base/inside.h"
#include "stowage/io/json.h"
#include "stowage/runtime/device.h"
#include "stowage/train/job.h"
#include "stowage/train/positions.h"

namespace stow {

/// Exit statuses: a loss or gradient norm was not finite; Ctrl-C ended the run.
inline constexpr int kStatusNotFinite = 3, kStatusInterrupted = 130;

struct RunOptions {
  bool resume = false;        ///< True: continues from the newest checkpoint of train.out.
  JsonLines* json = nullptr;  ///< Gets one object for each step and a summary; null: none.
  std::FILE* text = nullptr;  ///< Gets progress for people; null: none.
  std::optional<double> predicted_step_s;  ///< Shown next to the measured step time.
  std::string trace_path;  ///< File for the trace of a step; empty: none.
  /// The devices to run on, of the job's target. Null: those of make_positions().
  Positions* positions = nullptr;
};

/// Returns devices with the budgets as capacities: one, or those for this process's positions of
/// the job's mesh. `world`: the processes that train together; null: only this process.
/// Errors: the size of the mesh is not the number of devices of all processes.
Result<Positions> make_positions(const Job& job, const Budgets& budgets,
                                 comm::World* world = nullptr);

/// Runs the job with the chosen plan. `data`: the run's data; null: opens those of the model.
/// Returns the exit status: 0 for success, kStatusNotFinite, or kStatusInterrupted (the state is
/// saved).
/// Errors: a choice without a plan; errors of data, checkpoints and folders, with their paths. A
/// plan that fits its budgets never throws CapacityError.
Result<int> run_training(const Job& job, const Choice& choice, const Budgets& budgets,
                         const RunOptions& options, std::unique_ptr<TrainData> data = nullptr);

/// Returns bytes by memory kind as a JSON object.
Json bytes_json(const BytesByKind& bytes);
/// Returns "mesh: data 2 x model 2; sizes are those of one of 4 devices"; "" for a single device.
std::string describe_mesh(const Job& job);
/// Returns the plan for people: budgets, the chosen placement and the reason, owners of the peak.
/// For a choice without a plan, returns describe_refusal() without remedies.
std::string describe_choice(const Job& job, const Choice& choice, const Budgets& budgets);
/// Returns the reason why a candidate was chosen or not: "asked for", "over the budget".
std::string verdict_of(const Job& job, const Choice& choice, const Candidate& candidate);
/// Returns "fits", "still over" (the device's budget) or "too much for pinned_host".
std::string verdict_of(const Remedy& remedy);
/// Returns a line for each of `remedies`, the loss_remedies() of the plan: the change, the device
/// bytes with it and the bytes that it saves. Returns "" if there are none.
std::string describe_loss(const Job& job, const JobPlan& plan, std::span<const Remedy> remedies);
/// The bytes by which a placement exceeds the budgets.
struct Shortfall {
  Placement placement;
  BytesByKind needed_bytes{};  ///< Bytes needed, as budgeted_bytes() counts them.
  BytesByKind over_bytes{};    ///< Bytes above the budgets.
  bool is_enough = false;      ///< True if a plan fits budgets of `needed_bytes`.
  /// Peak of the placement's plan for budgets of `needed_bytes` if is_enough, else of the last plan
  /// that was tried.
  BytesByKind peak_bytes{};
  int64_t total() const;  ///< The sum of over_bytes.
};
/// Returns the shortfalls of a choice without a plan, the smallest total() first, without
/// duplicates: that of the candidate that exceeds the budgets least, and, for each memory kind,
/// that of the candidate that exceeds this budget least and no other. If none of them exceeds the
/// disk's budget, that budget is lifted: if find_fit() then chooses a plan that exceeds it, the
/// shortfall of its placement is added. The same holds for the pinned host memory of a virtual
/// device.
std::vector<Shortfall> shortfalls(const Job& job, const Choice& choice, const Budgets& budgets);
/// Returns settings that make up a shortfall: "--memory 1234 --set memory.host=5678".
std::string settings_for(const Shortfall& shortfall);
/// Returns plan_remedies() of a choice without a plan if its smallest shortfall exceeds the
/// device's budget; else nothing. `near`: the choice's shortfalls(), the smallest first; at least
/// one. A candidate of a placement in `near` gets the peak of that shortfall if it is_enough.
std::vector<Remedy> refusal_remedies(const Job& job, const Choice& choice,
                                     std::span<const Shortfall> near, const Budgets& budgets);
/// Returns the text for a choice without a plan: the shortfalls, the keys to raise and their
/// values, the peak's phase and owners, and remedies. `near`: its shortfalls(). `remedies`: its
/// refusal_remedies().
std::string describe_refusal(const Job& job, const Choice& choice, std::span<const Shortfall> near,
                             std::span<const Remedy> remedies, const Budgets& budgets);
/// Returns {"summary": true, "refused": WHY, "placement": …, "needed_bytes": {kind: …},
/// "allowed_bytes": {kind: … or null}, "over_bytes": {kind: …}}.
Json refusal_json(const std::string& why, const Shortfall& shortfall, const Budgets& budgets);

}  // namespace stow
