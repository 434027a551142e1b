// The second half of the residuals pass: how long recomputed values are held in the backward part.
// Not the choice of residuals by policy and bytes; that is residuals.h.
#pragma once

#include <string>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// Facts that the residuals pass knows of the graph that it made.
struct Recomputation {
  /// True for nodes that recompute forward work, by node.
  std::vector<bool> clone;
  /// The forward value that a clone repeats, where keeping that is allowed; else invalid. By value.
  std::vector<ValueId> original;
};

/// Every clone of `graph` is computed once, before its first reader. A value rebuilt early for
/// another one then waits for its own readers, which takes more memory than the residuals that it
/// spared: h[i] = h[i-1] + silu(z[i]) rebuilt from all z for the last layer leaves every h[i] live.
///
/// Returns the graph with lives of recomputed values shortened until, after each backward node, the
/// residuals and the recomputed values that wait for later nodes take no more than the residuals
/// did when the backward part began (or a recomputed region did, where that is more), and what the
/// work of one node takes where a layer needs them again soon. In order of preference:
///   1. a value is recomputed again, where a few elementwise ops give it back;
///   2. its original is kept from the forward part, where the policy allows that;
///   3. longer chains are recomputed a second time, with some of their values held.
/// Products, reductions and everything else that is not cheap are never recomputed twice.
///
/// Originals are kept one after another, each followed by another look at the whole graph. After
/// `most_kept_in_turn` of them all that would help are kept at once, and a sentence in `limits` says so.
Graph shorten_lives(const Graph& graph, const Recomputation& recomputation,
                    std::vector<std::string>& limits, int most_kept_in_turn);

}  // namespace stow
