// The part of the residuals pass by which a policy around a scan acts on the values of its body.
// Not the choice between keeping and recomputing the scan; that is the pass's own.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// A value of a scan's body that a policy says to keep, as one more stacked result of the scan.
struct ExposedValue {
  int result = 0;  ///< Number of the scan's result.
  ValueId inner;   ///< The value in the body.
  PolicyAnswer answer;
};
struct ExposedScan {
  std::vector<ExposedValue> values;
  /// The body's own scans whose exposed stacks are among `values`, by node number.
  std::map<size_t, ExposedScan> nested;
};

/// A graph whose scans stack what a policy keeps of their bodies, too. Nodes keep their numbers.
struct ExposedGraph {
  Graph graph;
  std::map<size_t, ExposedScan> scans;  ///< By node number.
  std::vector<ValueId> images;          ///< By value of the original graph: its value here.
};
/// Widens every scan with residuals for which `policy_of` gives a policy. Values in a region of the
/// body's own are left to that region. Nobody reads the new results yet, and what is not read in the
/// end is dead code.
ExposedGraph expose_scans(const Graph& graph,
                          const std::function<const Policy*(const Node&)>& policy_of);

/// The scan of a widened graph that is given some of its exposed stacks instead of computing what is
/// in them: `given` has the type of each that is, which says where it waits. The stacks are further
/// scanned operands, in order, to be appended to the node's; a slice comes to the device when used.
Node given_exposed(const Node& scan, const ExposedScan& exposed,
                   const std::vector<std::optional<ArrayType>>& given);

}  // namespace stow
