// Accidental replication: values that each device of a mesh holds whole though the mesh could cut them,
// and what cutting them would save. Not the notes of the partitioner (ir/partition_report.h), which know
// no peak.
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

/// A value that `data` does not cut, though it divides one of its dimensions. Moments and averages are
/// values of their own.
struct WholeValue {
  std::string name;  ///< Name of a leaf of the state, "model/embed"; else its place in the program.
  ArrayType type;       ///< Whole; the memory is that in which it lies.
  int64_t bytes = 0;    ///< Bytes of the part that each device holds.
  bool is_whole = true;  ///< False: another axis of the mesh cuts it.
  /// The run's peak in that memory if it were cut, planned; none for values that only the program has.
  std::optional<int64_t> peak_if_cut;
};

/// The arrays that a plan holds whole.
struct Replication {
  int64_t devices = 0;              ///< Devices of the mesh.
  BytesByKind peak_bytes{};         ///< Peak of the plan.
  /// The largest first. Where none lies in the state, the largest few that the program alone has.
  std::vector<WholeValue> values;
  size_t n_unplanned = 0;           ///< Values of the state that are left out.
  /// The peak on the device if all values of the state were cut, planned; none where there is one.
  std::optional<int64_t> peak_if_all_cut;
};

/// Finds the values that take at least a hundredth of the peak of their memory, and plans the run, with
/// the same placement and budgets, for each of the largest `most_planned` that lie in the state. Empty
/// without a mesh.
Replication find_replication(const Job& job, const JobPlan& plan, const Budgets& budgets,
                             size_t most_planned = 8);

/// Lines such as "model/embed f32[128256,8192] is whole on each of 1024 devices: 3.91 GiB; cut over data
/// the peak falls from 9.87 GiB to 5.96 GiB".
std::vector<std::string> replication_lines(const Replication& replication);

/// [{"name", "type", "bytes", "devices", "whole", "peak_bytes", "peak_if_cut_bytes"}].
Json to_json(const Replication& replication);
/// Sets "whole" to that, "whole_unplanned" to the number of values of the state that are left out, and
/// "peak_if_all_cut_bytes".
void add_replication(Json& report, const Replication& replication);

}  // namespace stow
