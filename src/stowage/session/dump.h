// Dump: writes a program's form after each compilation step, and its first inputs, to files.
// Not a log; it writes nothing unless a folder is given.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"
#include "stowage/runtime/device.h"

namespace stow {

namespace ir {
struct Schedule;  // ir/schedule.h
}
struct CompileOptions;
struct LowerOptions;  // passes/lower.h

/// Files of one program, in DIR/0003-NAME/:
///   NN-PASS.txt: the graph as it was traced (00-traced.txt), then after each pass;
///   NN-fused.units: its units (passes/units_text.h);
///   NN-lowered-ORDER.schedule: the schedule of each order strategy (ir/schedule_printer.h);
///   NN-scheduled.schedule: the schedule that runs, with moves ahead;
///   timeline.csv: lifetimes and offsets;
///   inputs.safetensors: the inputs of the first run by input_keys().
/// DIR is options.dump_dir, or $STOW_DUMP if that is empty; without either nothing is written.
/// Errors: TraceError "[dump] PATH: reason".
class Dump {
 public:
  Dump() = default;  ///< Writes nothing.
  Dump(const CompileOptions& options, const Graph& graph);
  bool on() const { return !folder_.empty(); }  ///< True if files are written.
  // Each of these writes the files named above; nothing if !on().
  void graph(const std::string& stage, const Graph& graph);
  void schedule(const std::string& stage, const Schedule& schedule);
  /// Fuses, orders and lowers `graph`, the chosen one, and writes its units and the schedule of
  /// each order strategy, without moves ahead.
  void lowering(const Graph& graph, const LowerOptions& options);
  void timeline(const std::string& csv) const;
  void inputs(std::span<const ArrayType> types, std::span<const DeviceBufferPtr> buffers) const;

 private:
  void text(const std::string& name, const std::string& text);

  std::string folder_;
  std::vector<std::string> keys_;
  int n_texts_ = 0;
};

/// Returns the keys of a graph's inputs in files: an input's name, or its value number ("%3") if it
/// has no name or shares it.
std::vector<std::string> input_keys(const Graph& graph);

}  // namespace stow
