// The second half of the residuals pass: shortens the lives of recomputed values.
// Not the choice of residuals by policy and bytes (residuals.h).
#pragma once

#include <string>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// Facts about a graph that the residuals pass made.
struct Recomputation {
  /// By node: true if it recomputes forward work.
  std::vector<bool> clone;
  /// By value: the forward value that a clone's result repeats, if the policy allows to keep it;
  /// else invalid.
  std::vector<ValueId> original;
};

/// Every clone of `graph` is computed once, before its first reader. A value that is recomputed
/// early, because another value needs it, is then live until its own readers, which may take more
/// memory than recomputation saved. Example: h[i] = h[i-1] + silu(z[i]), recomputed from all z for
/// the last layer, leaves every h[i] live.
///
/// Returns the graph with shorter lives of recomputed values. After each backward node, the
/// residuals and the recomputed values that wait for later nodes then take no more than a limit:
/// the bytes of the residuals at the beginning of the backward part (or of a recomputed region, if
/// that is more), plus the bytes of one node's work for values that a layer soon needs again. In
/// order of preference:
///   1. A value is recomputed again, if a few elementwise ops compute it.
///   2. Its original is kept from the forward part, if the policy allows that.
///   3. Longer chains are recomputed a second time, with some of their values held.
/// Products, reductions and all else that is not cheap are never recomputed twice.
///
/// Originals are kept one at a time; the whole graph is examined again after each. After
/// `most_kept_in_turn` of them, all that would help are kept at once, and `limits` gets a sentence.
Graph shorten_lives(const Graph& graph, const Recomputation& recomputation,
                    std::vector<std::string>& limits, int most_kept_in_turn);

}  // namespace stow
