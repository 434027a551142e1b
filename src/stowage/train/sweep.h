// The sweep over meshes, batches and policies: plans and simulates each point, and prints a table.
// Not the planner of one point; sweep_planner.h has that.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/core/array_type.h"
#include "stowage/io/json.h"
#include "stowage/plan/analysis.h"

namespace stow {

/// A mesh of replica x data x model devices (TrainConfig::Mesh).
struct SweepMesh {
  int64_t replica = 1, data = 1, model = 1;

  int64_t size() const { return replica * data * model; }
  /// The number of parts of a batch.
  int64_t batch_parts() const { return replica * data; }
  friend bool operator==(const SweepMesh&, const SweepMesh&) = default;
};
/// Returns "data=256 model=4" or "one device".
std::string to_string(const SweepMesh& mesh);
/// Parses "data=256,model=4". Errors: an unknown or repeated axis; an extent that is no number from
/// 1 to 2^20.
Result<SweepMesh> parse_sweep_mesh(std::string_view text);

/// Returns the meshes of n devices: every data x model, and, for each size of `blocks`, the devices
/// that a network level connects, meshes of replicas whose data x model fit a block. Ordered by
/// model, then by replica.
std::vector<SweepMesh> meshes_of(int64_t n_devices, std::span<const int64_t> blocks);

/// A point of a sweep: a mesh and the swept settings.
struct SweepPoint {
  SweepMesh mesh;
  int64_t batch = 1;     ///< `data.batch`: sequences of a microbatch, over all devices.
  std::string policy;    ///< `memory.policy`.
  int64_t search_batch = 0;  ///< In largest_batch(): the batch with which the search began.
};

/// The plan of a point. Sizes are those of one device.
struct SweepPlan {
  std::string placement;     ///< to_string(Placement).
  BytesByKind peak_bytes{};  ///< If !fits: the peak of the plan that needs the fewest device bytes.
  bool fits = true;
  std::optional<double> step_s, exposed_s;  ///< None if !fits, or without a device to simulate.
  std::string bound_by;  ///< The busiest stream, "compute" or "collective"; "memory" if !fits.
  int64_t tokens = 0;    ///< Tokens of a step, over all devices.
  std::vector<std::string> whole;     ///< replication_lines(): replicated values.
  Json whole_values = Json::array();  ///< The replicated values as in `plan --json`.
};

/// The device bytes of the leanest placement of a point.
struct LeanestPlan {
  int64_t device_bytes = 0;
  bool fits = false;  ///< True if the placement fits all budgets.
};

/// Plans points. Thread-safe.
class SweepPlanner {
 public:
  virtual ~SweepPlanner() = default;
  /// Plans a point. Errors: the reason why it cannot be planned, such as sizes that the mesh does
  /// not divide.
  virtual Result<SweepPlan> plan(const SweepPoint& point) const = 0;
  /// Plans the leanest placement of a point. Errors: as plan().
  virtual Result<LeanestPlan> plan_leanest(const SweepPoint& point) const = 0;
  /// Bytes of the device that a plan may take; none: no limit.
  virtual std::optional<int64_t> budget_bytes() const = 0;
};

struct SweepRow {
  SweepPoint point;
  std::string impossible;  ///< The reason why there is no plan; "" if there is one.
  SweepPlan plan;          ///< Empty if `impossible`.
  /// Result of largest_batch(): 0 if no batch fits; none without a budget.
  std::optional<int64_t> largest_batch;

  bool is_planned() const { return impossible.empty(); }
  std::optional<double> tokens_per_s() const;  ///< None if the plan has no step time.
};

/// Returns the largest batch, in sequences and a multiple of batch_parts(), that fits with the
/// point's mesh and policy under the placement that is leanest at the point's own batch; 0 if none
/// fits; none without a budget. After `most_plans` plans the search ends with a batch that fits,
/// and a larger one may fit too.
std::optional<int64_t> largest_batch(const SweepPlanner& planner, const SweepPoint& point,
                                     int most_plans = 24);

/// Plans all points, `threads` at a time. Rows are in the order of the points.
std::vector<SweepRow> sweep(const SweepPlanner& planner, std::span<const SweepPoint> points,
                            int threads);

/// Returns the index of the row with the most tokens per second; none if no row has a step time.
std::optional<size_t> best_row(std::span<const SweepRow> rows);

/// Returns a table for people: one line for each point, the best one marked; impossible points
/// last, with the reason.
std::string sweep_table(std::span<const SweepRow> rows);

/// Returns one row: {"mesh": {"replica", "data", "model"}, "devices", "batch", "policy",
/// "placement", "peak_bytes", "by_kind", "fits", "step_s", "exposed_s", "tokens_per_s",
/// "largest_batch", "bound_by", "whole", "best", "impossible"}. Unknown values are null.
Json to_json(const SweepRow& row, bool is_best);

}  // namespace stow
