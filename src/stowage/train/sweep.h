// The sweep: the meshes of so many devices, each planned and simulated, and what a person or a program
// reads of them. Not the planner of one mesh; sweep_planner.h has that.
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

/// The devices of a run: replica x data x model of them (TrainConfig::Mesh).
struct SweepMesh {
  int64_t replica = 1, data = 1, model = 1;

  int64_t size() const { return replica * data * model; }
  /// How many parts a batch is cut into.
  int64_t batch_parts() const { return replica * data; }
  friend bool operator==(const SweepMesh&, const SweepMesh&) = default;
};
/// "data=256 model=4"; "one device".
std::string to_string(const SweepMesh& mesh);
/// Reads "data=256,model=4". Errors: an axis that is unknown, twice there or no number from 1 to 2^20.
Result<SweepMesh> parse_sweep_mesh(std::string_view text);

/// The meshes of n devices: every data x model; and, for each block of devices that a level of the
/// network connects, those with replicas of data x model within a block. By model, then by replica.
std::vector<SweepMesh> meshes_of(int64_t n_devices, std::span<const int64_t> blocks);

/// A point of a sweep: a mesh, and the settings that the sweep goes through.
struct SweepPoint {
  SweepMesh mesh;
  int64_t batch = 1;   ///< `data.batch`: sequences of a microbatch, over all devices.
  std::string policy;  ///< `memory.policy`.
  int64_t of_batch = 0;  ///< For a point that a search tries: the batch it began with.
};

/// How a point would run. Sizes are those of one device.
struct SweepPlan {
  std::string placement;     ///< to_string(Placement).
  BytesByKind peak_bytes{};  ///< If it does not fit: of the plan that takes least of the device.
  bool fits = true;
  std::optional<double> step_s, exposed_s;  ///< None where it does not fit, or has no device to simulate.
  std::string bound_by;  ///< The busiest stream: "compute", "collectives", …; "memory" if it does not fit.
  int64_t tokens = 0;    ///< Tokens of a step, over all devices.
  std::vector<std::string> whole;  ///< Values that are whole on every device, a line each.
  Json whole_values = Json::array();  ///< The same as `plan --json` has them.
};

/// The bytes of the device that the leanest placement of a point needs, and whether it is within every budget.
struct LeastNeed {
  int64_t device_bytes = 0;
  bool fits = false;
};

/// Plans points. Several threads may call it at once.
class SweepPlanner {
 public:
  virtual ~SweepPlanner() = default;
  /// Errors: why the point cannot be planned, as sizes that the mesh does not divide.
  virtual Result<SweepPlan> plan(const SweepPoint& point) const = 0;
  virtual Result<LeastNeed> least_need(const SweepPoint& point) const = 0;
  /// Bytes of the device that a plan may take; none: no limit.
  virtual std::optional<int64_t> budget_bytes() const = 0;
};

struct SweepRow {
  SweepPoint point;
  std::string impossible;  ///< Why there is no plan; then there is nothing below.
  SweepPlan plan;
  /// Sequences of the largest batch that the placement which was leanest at the row's own batch has room
  /// for, a multiple of the mesh's parts; 0 where there is none. None without a budget.
  std::optional<int64_t> largest_batch;

  bool is_planned() const { return impossible.empty(); }
  std::optional<double> tokens_per_s() const;
};

/// The largest batch of a point's mesh and policy, in multiples of batch_parts(), found by plans: the
/// next larger one does not fit. After `most_plans` it is one that fits, and a larger one may.
std::optional<int64_t> largest_batch(const SweepPlanner& planner, const SweepPoint& point,
                                     int most_plans = 24);

/// Plans every point, so many at once. Rows are in the order of the points.
std::vector<SweepRow> sweep(const SweepPlanner& planner, std::span<const SweepPoint> points,
                            int threads);

/// The number of the row with the most tokens a second of those that fit; none where none has a time.
std::optional<size_t> best_row(std::span<const SweepRow> rows);

/// A table for people: a row a point, the best one marked; impossible ones last, with why.
std::string sweep_table(std::span<const SweepRow> rows);

/// One row: {"mesh": {"replica", "data", "model"}, "devices", "batch", "policy", "placement",
/// "peak_bytes", "by_kind", "fits", "step_s", "exposed_s", "tokens_per_s", "largest_batch", "bound_by",
/// "whole", "best", "impossible"}. What is not known is null.
Json to_json(const SweepRow& row, bool is_best);

}  // namespace stow
