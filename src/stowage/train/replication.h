// Accidental replication: values that every device holds although the mesh could shard them.
// Not the notes of the partitioner (ir/partition_report.h), which have no peaks.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/io/json.h"
#include "stowage/train/job.h"

namespace stow {

/// A value that `data` does not shard although it divides one of its dimensions. Moments and
/// averages are values of their own.
struct WholeValue {
  std::string name;  ///< Name of a leaf of the state, "model/embed"; else its place in the program.
  ArrayType type;        ///< Type of the whole array, with the memory kind of its parts.
  int64_t bytes = 0;     ///< Bytes that each device holds.
  bool is_whole = true;  ///< False: another axis of the mesh shards it.
  /// Planned peak of the run in the value's memory kind if `data` sharded it; none for values that
  /// are not in the state.
  std::optional<int64_t> peak_if_sharded;
};

/// The values that a plan replicates over `data`.
struct Replication {
  int64_t devices = 0;       ///< Devices of the mesh.
  BytesByKind peak_bytes{};  ///< Peak of the plan.
  /// The largest first. If none is in the state, the largest few of the step program.
  std::vector<WholeValue> values;
  size_t n_unplanned = 0;  ///< Number of values of the state that are not in `values`.
  /// Planned peak of the device if `data` sharded all values of the state; none for a single value.
  std::optional<int64_t> peak_if_all_cut;
};

/// Finds the values that take at least a hundredth of the peak of their memory kind. Plans the run
/// again, with the same placement and budgets, for each of the largest `most_planned` values of the
/// state. Returns no values without a mesh.
Replication find_replication(const Job& job, const JobPlan& plan, const Budgets& budgets,
                             size_t most_planned = 8);

/// Returns lines such as "model/embed f32[128256,8192] is whole on each of 1024 devices: 3.91 GiB;
/// cut over data the peak falls from 9.87 GiB to 5.96 GiB".
std::vector<std::string> replication_lines(const Replication& replication);

/// [{"name", "type", "bytes", "devices", "whole", "peak_bytes", "peak_if_cut_bytes"}].
Json to_json(const Replication& replication);
/// Sets "whole" to to_json(replication), "whole_unplanned" to n_unplanned, and
/// "peak_if_all_cut_bytes".
void add_replication(Json& report, const Replication& replication);

}  // namespace stow
