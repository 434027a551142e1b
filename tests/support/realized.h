// realized(): a traced program as the passes before lowering see it.
// Not all fixed passes; session/fixed_passes.h lists those.
#pragma once

#include "stowage/autodiff/flatten.h"
#include "stowage/base/inside.h"
#include "stowage/passes/dead_code.h"
#include "stowage/passes/residuals.h"
#include "stowage/passes/simplify.h"

namespace stow::testing {

/// The graph flattened and simplified, its residuals chosen, dead code gone.
inline Graph realized(const Graph& traced) {
  return remove_dead_code(realize_residuals(simplify(flatten_all(traced)), nullptr));
}

}  // namespace stow::testing
