// The partitioner: from a program over whole arrays to the program of one position of a mesh.
// Not differentiation, which is done before, and no memory plan, which sees a local program alone.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/core/axis_sharding.h"
#include "stowage/ir/graph.h"
#include "stowage/ir/partition_report.h"

namespace stow {

struct Partitioned {
  Graph graph;                               ///< Program of one position, over parts.
  std::vector<AxisSharding> out;             ///< How the outputs lie.
  std::vector<ShardingNote> notes;           ///< The largest first.
  std::vector<CollectiveCount> collectives;  ///< By op; only ops that occur.
};

/// Input i of the result is the part of input i that a position holds under `in[i]`, output o that
/// of output o under `out[o]`; where that says nothing, as propagation leaves it.
///
/// Runs on a differentiated, flat and simplified graph, before residuals are chosen. Each op gets
/// the mesh axes for which resharding its operands and results sends the fewest bytes, a product
/// those that cut its work into the most parts and of these the ones with the fewest bytes (ties:
/// results' axes first, then operands' in order). Its own rule makes it local (OpDef::local). A
/// reshard stands where a value is read, once for forward and once for backward nodes and once a
/// checkpointed region, so that a gathered value is no residual. Partial results are reduced where
/// they are made. Every size of mesh gives one graph of the same size.
///
/// Errors: TraceError if a sharding does not fit its type or is partial; if a scan goes over an
/// axis that is cut (names the bytes that gathering it would take); if the branch of a cond or the
/// end of a loop may differ between positions; if `strict`, for the first notes.
Partitioned partition(const Graph& graph, const MeshShape& mesh, std::span<const AxisSharding> in,
                      std::span<const std::optional<AxisSharding>> out,
                      const PartitionOptions& options = {});

}  // namespace stow
