// Reverse-mode differentiation of a graph into one joint graph of forward and backward.
// Not a decision on what is kept: it keeps everything; passes/residuals.h realises the marks.
#pragma once

#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// The outputs and inputs of a differentiation.
struct ReverseSpec {
  std::vector<int> wrt;      ///< Inputs whose gradients are wanted.
  std::vector<int> outputs;  ///< Outputs that have a cotangent.
  /// Cotangents and gradients lie on the device, wherever lies what they are of. Else each lies
  /// where that does.
  bool on_device = false;
  /// Inputs of `wrt` whose gradients are added to a running sum, as a loop does for what all its
  /// iterations read.
  std::vector<int> sums;
  ProvenancePtr provenance;  ///< The provenance of the additions to these sums.
};

/// The joint graph. Inputs: those of `graph`, then a cotangent for each of `spec.outputs`, of that
/// output's type, then a running sum for each of `spec.sums`. Outputs: those of `graph`, then a gradient
/// for each of `spec.wrt`, of that input's type (zeros where it does not matter), but for
/// `spec.on_device`; of an input with a running sum, the sum with the gradient added. Checkpoint nodes
/// become regions whose nodes carry their id; a differentiated scan becomes a forward scan with
/// residuals and a backward scan.
///
/// Order of sums: a cotangent adds up what the readers of its value give, the last reader first. A
/// backward scan goes on from what the readers behind it gave for an operand that all iterations read,
/// and adds what each iteration gives. So a scan of n iterations, scans of parts of them one after
/// another, and scans of scans give the same bits.
/// Errors: TraceError where an op has no gradient, or an input or output is not of a float type.
Graph reverse(const Graph& graph, const ReverseSpec& spec);

/// The same as two graphs. `forward` gives the outputs, then every value that the backward part
/// reads; `backward` takes these, then the cotangents, and gives the gradients.
struct SplitReverse {
  Graph forward, backward;
};
SplitReverse reverse_in_two(const Graph& graph, const ReverseSpec& spec);

}  // namespace stow
