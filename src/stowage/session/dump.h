// Dump: what a program was at each step of its compilation, and what it was first run on, as files.
// Not a log; nothing is written unless asked for.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"
#include "stowage/runtime/device.h"

namespace stow {

struct CompileOptions;

/// Files of one program, in DIR/0003-NAME/: 00-traced.txt and so on, the graph after each pass;
/// timeline.csv, lifetimes and offsets; inputs.safetensors, the inputs of the first run by
/// input_keys(). DIR is options.dump_dir, or else $STOW_DUMP; without both nothing is written.
/// Errors: TraceError "[dump] PATH: reason".
class Dump {
 public:
  Dump() = default;  ///< Writes nothing.
  Dump(const CompileOptions& options, const Graph& graph);
  bool on() const { return !folder_.empty(); }
  void graph(const std::string& stage, const Graph& graph);
  void timeline(const std::string& csv) const;
  void inputs(std::span<const ArrayType> types, std::span<const DeviceBufferPtr> buffers) const;

 private:
  std::string folder_;
  std::vector<std::string> keys_;
  int n_graphs_ = 0;
};

/// What the inputs of a graph are called in files: by their name, or by number ("%3") where they
/// have none or share it.
std::vector<std::string> input_keys(const Graph& graph);

}  // namespace stow
