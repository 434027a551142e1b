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
  /// The first failed check, or "": measured memory equals predicted memory byte for byte;
  /// arguments that were not donated are unchanged; results have the sizes of their types;
  /// afterwards the device holds only arguments and results; a second run, on dirty memory, gives
  /// the same bits.
  std::string fault;
};

/// Compiles and runs a graph. Errors: those of compile(); an exception of run() is a fault.
Execution execute(const Graph& graph, const CompileOptions& options,
                  const std::vector<Bytes>& inputs, const TargetPtr& target);
/// Compiles and runs a graph on the CPU.
Execution execute(const Graph& graph, const CompileOptions& options,
                  const std::vector<Bytes>& inputs, int threads);

}  // namespace stow::testing
