// Inlining of checkpoint and custom_vjp nodes, and which values a derivative passes through.
// Not differentiation itself.
#pragma once

#include <vector>

#include "stowage/autodiff/reverse.h"
#include "stowage/base/inside.h"

namespace stow {

/// The graph with every checkpoint node replaced by its body, whose nodes belong to a new region
/// with the checkpoint's policy. Regions nest as the checkpoints did. Bodies of scans are left.
Graph flatten_checkpoints(const Graph& graph);
/// The same, with functions of a gradient rule of their own (custom_vjp) replaced by the functions
/// too, in nested graphs as well: what is left to run once nothing is to be differentiated any
/// more.
Graph flatten_all(const Graph& graph);

/// Appends the nodes of `from` to `to`, its inputs being `inputs`, checkpoints as regions within
/// `parent`; returns the outputs. All are forward work, or all backward work, which has no regions.
std::vector<ValueId> inline_flat(const Graph& from, std::span<const ValueId> inputs, Graph& to,
                                 RegionId parent, bool backward);

/// Activity of each value: varied if it depends on the inputs differentiated, useful if it reaches
/// an output that has a cotangent.
class Activity {
 public:
  bool varied(ValueId v) const { return varied_[v.index()]; }
  bool useful(ValueId v) const { return useful_[v.index()]; }
  bool active(ValueId v) const { return varied(v) && useful(v); }

 private:
  friend Activity activity(const Graph& flat, const ReverseSpec& spec);
  std::vector<bool> varied_, useful_;
};
/// `flat` holds no checkpoint nodes.
Activity activity(const Graph& flat, const ReverseSpec& spec);

}  // namespace stow
