// Inlining of checkpoint and custom_vjp nodes; activity analysis for the reverse pass.
// Not differentiation itself.
#pragma once

#include <vector>

#include "stowage/autodiff/reverse.h"
#include "stowage/base/inside.h"

namespace stow {

/// Returns the graph with every checkpoint node replaced by its body. The body's nodes belong to a
/// new region with the checkpoint's policy; regions nest as the checkpoints did. Nested graphs,
/// such as bodies of scans, are unchanged.
Graph flatten_checkpoints(const Graph& graph);
/// flatten_checkpoints, also in nested graphs, and with every custom_vjp node replaced by its
/// function. Called after all differentiation.
Graph flatten_all(const Graph& graph);

/// Appends the nodes of `from` to `to`, with `inputs` in place of the inputs of `from`. Checkpoint
/// nodes become regions within `parent`. Returns the values in `to` of the outputs of `from`. Every
/// appended node gets Node::backward = `backward`; backward nodes get no region.
std::vector<ValueId> inline_flat(const Graph& from, std::span<const ValueId> inputs, Graph& to,
                                 RegionId parent, bool backward);

/// Activity analysis: for each value of a graph, whether it needs a cotangent.
class Activity {
 public:
  /// True if the value is a float that depends on an input by which the graph is differentiated.
  bool varied(ValueId v) const { return varied_[v.index()]; }
  /// True if an output that has a cotangent depends on the value.
  bool useful(ValueId v) const { return useful_[v.index()]; }
  /// True if the value is varied and useful: it needs a cotangent.
  bool active(ValueId v) const { return varied(v) && useful(v); }

 private:
  friend Activity activity(const Graph& flat, const ReverseSpec& spec);
  std::vector<bool> varied_, useful_;
};
/// Finds the activity of every value. `flat` holds no checkpoint nodes.
Activity activity(const Graph& flat, const ReverseSpec& spec);

}  // namespace stow
