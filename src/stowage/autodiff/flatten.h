// Inlining of checkpoint nodes as regions, and which values a derivative passes through.
// Not differentiation itself.
#pragma once

#include <vector>

#include "stowage/autodiff/reverse.h"

namespace stow {

/// The graph with every checkpoint node replaced by its body, whose nodes belong to a new region
/// with the checkpoint's policy. Regions nest as the checkpoints did. Bodies of scans are left.
Graph flatten_checkpoints(const Graph& graph);

/// Which values depend on the inputs differentiated (varied) and reach an output that has a
/// cotangent (useful).
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
