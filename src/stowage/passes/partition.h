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

namespace stow {

/// Why a value costs more memory or traffic than its shardings alone say.
enum class ShardingNoteKind : uint8_t {
  kThroughLarger,  ///< On its way to another sharding it takes a form larger than both.
  kStaysWhole,     ///< Each position holds more of it than it must: a mesh axis divides an axis.
};

struct ShardingNote {
  ShardingNoteKind kind = ShardingNoteKind::kStaysWhole;
  ArrayType type;        ///< Whole.
  int64_t bytes = 0;     ///< At one position: of the larger form; of the value as it stays.
  int64_t could_be = 0;  ///< Bytes of the larger of both ends; of the value cut by the axis too.
  std::string source;    ///< Place in the user's program, or the name of an input.
};

/// Collectives that a position runs, loops multiplied out; a loop whose end is open counts once.
struct CollectiveCount {
  OpKind op = OpKind::kAllGather;
  int64_t count = 0;
  double bytes = 0;  ///< Sent by one position, as a ring sends them.
};

struct PartitionOptions {
  /// True: a note is an error.
  bool strict = false;
  /// Values of fewer bytes a position stay whole without a note.
  int64_t least_noted_bytes = 64 * 1024;
  /// Mesh axes over which parts of a bf16 or f16 product are summed in f32 and rounded once, as
  /// gradients over data want it. Sums over other axes cross the mesh in the product's dtype.
  MeshAxes f32_sum_axes = {};
};

struct Partitioned {
  Graph graph;                               ///< Of one position; types are those of parts.
  std::vector<AxisSharding> out;             ///< How the outputs lie.
  std::vector<ShardingNote> notes;           ///< The largest first.
  std::vector<CollectiveCount> collectives;  ///< By op; those that there are.
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

/// "f32[128,64] stays whole on each position: 32 KiB at mlp/up (model.cpp:41); could be 8 KiB".
std::string to_string(const ShardingNote& note);

}  // namespace stow
