// The check that a graph is well-formed and well-typed, run after every pass.
// Not a check of what a program means; bits are the interpreter's matter.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// Error that verify() throws for a wrong node: it names the innermost one and the graph that owns
/// it.
class VerifyError : public TraceError {
 public:
  VerifyError(const std::string& message, const Graph* graph, NodeId node)
      : TraceError(message), graph(graph), node(node) {}
  const Graph* graph;
  NodeId node;
};

/// Derives every type again with the op's own rule. Also: operands are defined before their use,
/// nodes own the values they say, parameters and nested graphs are those the op takes, outputs and
/// regions exist, a region's parent comes before it, nested graphs hold all this, and are not
/// nested more than 64 deep.
/// Errors: TraceError "[op] …" and, on a second line, the node (a VerifyError). Never aborts.
void verify(const Graph& graph);

}  // namespace stow
