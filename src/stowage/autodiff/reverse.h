// Reverse-mode differentiation of a graph into one joint graph of forward and backward.
// Not the choice of residuals: the joint graph keeps everything (see passes/residuals.h).
#pragma once

#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// The outputs and inputs of a differentiation.
struct ReverseSpec {
  std::vector<int> wrt;      ///< Inputs whose gradients are wanted.
  std::vector<int> outputs;  ///< Outputs that have a cotangent.
  /// True: cotangents and gradients are on the device. False: each is in the memory kind of its
  /// value.
  bool on_device = false;
  /// Inputs among `wrt` whose gradients are added to a running sum, as a scan does for its loop
  /// invariants.
  std::vector<int> accumulated;
  ProvenancePtr provenance;  ///< The provenance of the additions to these sums.
};

/// Returns the joint graph.
/// Inputs:  those of `graph`, then a cotangent for each of `spec.outputs`, then a running sum for
///          each of `spec.accumulated`.
/// Outputs: those of `graph`, then a gradient for each of `spec.wrt`: zeros if none of
///          `spec.outputs` depends on the input; for an input with a running sum, the sum plus the
///          gradient.
/// Types:   a cotangent has the type of its output and a gradient that of its input, except for the
///          memory kind under `spec.on_device`.
/// Checkpoint nodes become regions, and their nodes carry the region's id. A differentiated scan
/// becomes a forward scan with residuals and a backward scan.
///
/// Order of sums: a cotangent is the sum of the contributions of its value's readers, the last
/// reader first. For a loop invariant, a backward scan starts from the sum of the later readers and
/// adds the contribution of each iteration. One scan of n iterations, consecutive scans over parts
/// of them, and nested scans therefore give the same bits.
/// Errors: TraceError if an op has no gradient, or an input or output is not of a float type.
Graph reverse(const Graph& graph, const ReverseSpec& spec);

/// The joint graph as two graphs. `forward` returns the outputs, then every value that the backward
/// graph reads. `backward` takes these values, then the cotangents, and returns the gradients.
struct SplitReverse {
  Graph forward, backward;
};
SplitReverse reverse_in_two(const Graph& graph, const ReverseSpec& spec);

}  // namespace stow
