// Runs a graph over a mesh through the whole compiler, on one thread and one device of exactly the
// predicted size for each position. Not an oracle; support/evaluate_on_mesh.h is.
#pragma once

#include <string>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/runtime/streams.h"
#include "stowage/session/compile.h"
#include "tests/support/evaluate_on_mesh.h"

namespace stow::testing {

struct MeshExecution {
  PerPosition outputs;
  std::vector<AxisSharding> out;  ///< Shardings of the outputs.
  std::vector<CollectiveCount> collectives;
  MemoryAnalysis analysis;  ///< The analysis of one position.
  int64_t n_started = 0;  ///< Collectives of the schedule that run in parallel with compute.
  /// The first failed check, or "": no byte is accessed while a transfer uses it; measured memory
  /// equals predicted memory at every position, byte for byte; results have the sizes of their
  /// types.
  std::string fault;
};

/// Compiles and runs a graph. `inputs`: whole arrays, which options.mesh shards. `through_windows`:
/// true: positions exchange data as between processes. `timing`: that of all streams.
/// Errors: those of compile(); an exception of run() is a fault.
MeshExecution execute_on_mesh(const Graph& graph, const CompileOptions& options,
                              const std::vector<Bytes>& inputs, int threads,
                              bool through_windows = false,
                              StreamTiming timing = StreamTiming::kConcurrent);

}  // namespace stow::testing
