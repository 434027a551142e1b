// The training run: state on a device, steps, evaluation, checkpoints, progress, a sample.
// Not the choice of the plan; that is job.h. The parts of a run are run_state.h and run_report.h.
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

/// Exit statuses: a loss, or a gradient's norm, was not finite; Ctrl-C ended a run.
inline constexpr int kStatusNotFinite = 3, kStatusInterrupted = 130;

struct RunOptions {
  bool resume = false;
  JsonLines* json = nullptr;  ///< One object a step and a summary, when set.
  std::FILE* text = nullptr;  ///< Progress for people.
  std::optional<double> predicted_step_s;  ///< To be shown beside what a step takes.
  std::string trace_path;  ///< The file for the trace of a step; empty for none.
  /// The devices that it runs on, of the job's target. Null: those of make_positions().
  Positions* positions = nullptr;
};

/// Devices for a job whose capacities are the budgets: one, or the positions of its mesh that this
/// process has. `world`: the processes that train together; null: this one alone.
/// Errors: the mesh has not so many devices as the processes share equally.
Result<Positions> make_positions(const Job& job, const Budgets& budgets,
                                 comm::World* world = nullptr);

/// Runs the job as planned, on its model's data, which are opened where `data` is null.
/// Returns the exit status: 0 when done, kStatusNotFinite, or kStatusInterrupted (the state is saved).
/// Errors: a choice without a plan; data, checkpoints and folders, named; CapacityError never for what
/// was admitted.
Result<int> run_training(const Job& job, const Choice& choice, const Budgets& budgets,
                         const RunOptions& options, std::unique_ptr<TrainData> data = nullptr);

/// Bytes by kind as a JSON object.
Json bytes_json(const BytesByKind& bytes);
/// "mesh: data 2 x model 2; sizes are those of one of 4 devices"; empty for a run on one device.
std::string describe_mesh(const Job& job);
/// The plan for people: budget, choice and why, owners of the peak. Of a choice without a plan what
/// describe_refusal() says, without remedies.
std::string describe_choice(const Job& job, const Choice& choice, const Budgets& budgets);
/// Why a candidate was taken or passed over: "chosen: the first that fits", "over the budget".
std::string verdict_of(const Job& job, const Choice& choice, const Candidate& candidate);
/// "fits", "still over" the device's budget, "too much for pinned_host".
std::string verdict_of(const Remedy& remedy);
/// Lines that say what a loss computed a part at a time would save of the plan; "" for nothing.
std::string describe_loss(const Job& job, const JobPlan& plan, std::span<const Remedy> remedies);
/// The bytes that a refused run takes beyond its budgets.
struct Shortfall {
  Placement placement;
  BytesByKind needed_bytes{};  ///< Bytes needed; of the device, those that its budget counts.
  BytesByKind over_bytes{};
  bool is_enough = false;  ///< True if a plan with budgets of `needed_bytes` fits them.
  BytesByKind peak_bytes{};  ///< Peak of the plan.
  int64_t total() const;   ///< The sum of over_bytes.
};
/// Returns the shortfalls of a choice without a plan, without repetition: the one that lacks least,
/// and, for each memory that would be enough by itself if there were more of it, the one that lacks
/// least of that memory. For a memory that is too small for any use, returns what the placement
/// that would be chosen lacks.
std::vector<Shortfall> shortfalls(const Job& job, const Choice& choice, const Budgets& budgets);
/// The settings that would be enough: "--memory 1234 --set memory.host=5678".
std::string settings_for(const Shortfall& shortfall);
/// Changes that would lower the device's peak of a choice without a plan, if that is over first of all; its
/// candidates count with the peaks of the shortfalls that are named. Else empty.
std::vector<Remedy> refusal_remedies(const Job& job, const Choice& choice,
                                     std::span<const Shortfall> near, const Budgets& budgets);
/// The text where nothing fits, `near` being its shortfalls and `remedies` its refusal_remedies():
/// by how much, which key to raise to what, where the peak is, who owns it, what would help.
std::string describe_refusal(const Job& job, const Choice& choice, std::span<const Shortfall> near,
                             std::span<const Remedy> remedies, const Budgets& budgets);
/// {"summary": true, "refused": WHY, "placement": …, "needed_bytes": {kind: …}, "allowed_bytes":
/// {kind: … or null}, "over_bytes": {kind: …}}.
Json refusal_json(const std::string& why, const Shortfall& shortfall, const Budgets& budgets);

}  // namespace stow
