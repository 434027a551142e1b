// Runs a graph over a mesh through the whole compiler: a thread and a device of exactly the predicted
// size a position. Not an oracle; support/evaluate_on_mesh.h is.
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
  std::vector<AxisSharding> out;  ///< How they lie.
  std::vector<CollectiveCount> collectives;
  MemoryAnalysis analysis;  ///< The analysis of one position.
  int64_t n_started = 0;    ///< Collectives that run beside computation, those in loops counted once.
  /// What did not hold; empty when all did: nothing is read or written while a transfer touches it,
  /// predicted is measured at every position byte for byte, and results have the bytes of their types.
  std::string fault;
};

/// `inputs` are whole; `options.mesh` says how they are cut. Through the windows, the bytes that
/// positions exchange take the way between processes. Streams do their work when `timing` says.
/// Errors: what compile() throws; what run() throws is a fault.
MeshExecution execute_on_mesh(const Graph& graph, const CompileOptions& options,
                              const std::vector<Bytes>& inputs, int threads,
                              bool through_windows = false,
                              StreamTiming timing = StreamTiming::kBeside);

}  // namespace stow::testing
