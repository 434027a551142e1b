// realized: applies the first fixed passes to a traced graph.
// Not all fixed passes; session/fixed_passes.h lists those.
#pragma once

#include "stowage/autodiff/flatten.h"
#include "stowage/base/inside.h"
#include "stowage/passes/dead_code.h"
#include "stowage/passes/residuals.h"
#include "stowage/passes/simplify.h"

namespace stow::testing {

/// Flattens and simplifies the graph, realizes its residuals and removes dead code.
inline Graph realized(const Graph& traced) {
  return remove_dead_code(realize_residuals(simplify(flatten_all(traced)), nullptr));
}

}  // namespace stow::testing
