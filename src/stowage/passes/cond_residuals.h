// The part of the residuals pass that rewrites pairs of forward and backward conds.
// Not the choice inside a branch; that is the pass's own, called back.
#pragma once

#include <functional>
#include <set>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// Realises one joint branch. `costly_inputs` must be kept to be read; outputs that are not
/// `boundary` ones (by number) are there only if the policy keeps them.
using RealizeBranch = std::function<Graph(
    const Graph& joint, const std::set<ValueId>& costly_inputs, const std::vector<bool>& boundary)>;

/// True for a result of a cond that is saved for a backward cond.
bool is_cond_residual(const Graph& graph, ValueId v);

/// Joins every pair of a forward cond and the one backward cond that reads its residuals, realises
/// each branch and splits them again. A policy around a cond acts inside its branches: what it says
/// to recompute is computed again by the backward cond, in the branch that was taken. Values keep
/// their numbers up to the first pair.
Graph realize_conds(const Graph& graph, const std::set<ValueId>& costly_inputs,
                    const RealizeBranch& realize);

}  // namespace stow
