// The part of the residuals pass that rewrites pairs of a forward and a backward cond.
// Not the choice of kept values inside a branch; the pass makes it, through a callback.
#pragma once

#include <functional>
#include <set>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// Realises one joint branch: chooses its kept values and recomputes the others. `costly_inputs`
/// are inputs that cost a residual if the backward part reads them. `boundary` is true, by output,
/// for outputs that exist in any case; the others exist only if the policy keeps them.
using RealizeBranch = std::function<Graph(
    const Graph& joint, const std::set<ValueId>& costly_inputs, const std::vector<bool>& boundary)>;

/// True for a result of a cond that is saved for a backward cond.
bool is_cond_residual(const Graph& graph, ValueId v);

/// Joins every pair of a forward cond and the one backward cond that reads its residuals, realises
/// each branch and splits the pair again. A policy of a region around a cond acts inside its
/// branches: the backward cond recomputes values in the branch that was taken. Values before the
/// first pair keep their numbers.
Graph realize_conds(const Graph& graph, const std::set<ValueId>& costly_inputs,
                    const RealizeBranch& realize);

}  // namespace stow
