// The part of the residuals pass that applies the policy of a region to bodies of scans in it.
// Not the choice between keeping and recomputing the scan's results.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// A value of a scan's body that a policy keeps, exposed as an additional stacked result of the
/// scan.
struct ExposedValue {
  int result = 0;  ///< Number of the scan's result.
  ValueId inner;   ///< The value in the body.
  PolicyAnswer answer;
};
/// The exposed values of one scan.
struct ExposedScan {
  std::vector<ExposedValue> values;
  /// Scans in the body whose exposed stacks are among `values`, by node number.
  std::map<size_t, ExposedScan> nested;
};

/// A graph whose scans also stack the values of their bodies that a policy keeps. Nodes keep their
/// numbers.
struct ExposedGraph {
  Graph graph;
  std::map<size_t, ExposedScan> scans;  ///< By node number.
  std::vector<ValueId> images;          ///< By value of the original graph: its value here.
};
/// Adds exposed values to every scan with residuals for which `policy_of` returns a policy. Values
/// in a region inside the body are left to that region. The new results have no readers yet; those
/// that never get one are dead code.
ExposedGraph expose_scans(const Graph& graph,
                          const std::function<const Policy*(const Node&)>& policy_of);

/// Returns the clone of a scan that reads some exposed stacks instead of computing their values.
/// `given` has, by exposed value, the type of its stack if it is read; the type holds its memory
/// kind. The caller appends the stacks, in order, to the operands of the node. The body moves a
/// slice to the device when it is used.
Node given_exposed(const Node& scan, const ExposedScan& exposed,
                   const std::vector<std::optional<ArrayType>>& given);

}  // namespace stow
