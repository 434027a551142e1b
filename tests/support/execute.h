// Runs a graph through the whole compiler, on a device of exactly the size the plan predicts.
// Not an oracle; support/evaluate.h is.
#pragma once

#include <string>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/session/compile.h"
#include "tests/support/evaluate.h"

namespace stow::testing {

struct Execution {
  std::vector<Bytes> outputs;
  std::vector<int> aliases;
  MemoryAnalysis analysis;
  /// What did not hold; empty when all did: predicted is measured byte for byte, arguments that
  /// were not donated stay as they were, results have the bytes of their types, the device holds
  /// arguments and results alone afterwards. A second run, on dirty memory, gives the same bits.
  std::string fault;
};

/// Errors: what compile() throws; what run() throws is a fault.
Execution execute(const Graph& graph, const CompileOptions& options,
                  const std::vector<Bytes>& inputs, const TargetPtr& target);
/// The same on the CPU.
Execution execute(const Graph& graph, const CompileOptions& options,
                  const std::vector<Bytes>& inputs, int threads);

}  // namespace stow::testing
