// The check that a graph is well-formed and well-typed, run after every pass.
// Not a check of results; tests compare bits.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// The error of verify() for a wrong node; it holds the innermost wrong node and its graph.
class VerifyError : public TraceError {
 public:
  VerifyError(const std::string& message, const Graph* graph, NodeId node)
      : TraceError(message), graph(graph), node(node) {}
  const Graph* graph;
  NodeId node;
};

/// Checks that each type is the one that the op's rule derives; operands are defined before their
/// use; values and nodes refer to each other; parameters and nested graphs fit the op; outputs and
/// regions exist; a region's parent comes before it; all this holds for nested graphs, which
/// are nested at most 64 deep.
/// Errors: TraceError "[op] …" and, on a second line, the node (a VerifyError). Never aborts.
void verify(const Graph& graph);

}  // namespace stow
