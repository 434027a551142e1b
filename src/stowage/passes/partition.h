// The partitioner: from a program over whole arrays to the program of one position of a mesh.
// Not differentiation, which comes before, and not the memory plan, which sees only local programs.
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
  std::vector<AxisSharding> out;             ///< Shardings of the outputs.
  std::vector<ShardingNote> notes;           ///< The largest first.
  std::vector<CollectiveCount> collectives;  ///< By op; only ops that occur.
};

/// Returns the program of one position. Its input i is the part of input i under sharding `in[i]`,
/// its output o the part of output o under `out[o]`; without `out[o]`, propagation chooses the
/// sharding.
///
/// Runs on a differentiated, flat and simplified graph, before residuals are chosen. Each op gets
/// the mesh axes for which resharding its operands and results sends the fewest bytes; a product
/// gets those that cut its work into the most parts, then those with the fewest bytes (ties: axes
/// of results first, then of operands in order). OpDef::local makes the op local. A value is
/// resharded where it is read: once for forward nodes, once for backward nodes and once for each
/// checkpointed region, so a gathered value is never a residual. Partial results are reduced where
/// they are made. The size of the graph does not depend on the size of the mesh.
///
/// Errors: TraceError if a sharding does not fit its type or is partial; if a scan goes over an
/// axis that is cut (names the bytes that gathering it would take); if the branch of a cond or the
/// end of a loop may differ between positions; for the first notes, if `strict`.
Partitioned partition(const Graph& graph, const MeshShape& mesh, std::span<const AxisSharding> in,
                      std::span<const std::optional<AxisSharding>> out,
                      const PartitionOptions& options = {});

}  // namespace stow
