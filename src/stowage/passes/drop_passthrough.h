// The rewrite of conds and whiles with results that are operands passed through unchanged.
// Not a pass; simplify applies it while it copies a graph.
#pragma once

#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// Rewrites `node` before it is appended with result types `types`. Drops results of a cond that
/// every branch takes from the same operand. Drops carries that a while never changes; they become
/// consts of both graphs. Returns, for each former result, the operand that it equals, or an
/// invalid id if the result stays. `types` keeps the types of results that stay.
std::vector<ValueId> drop_passthrough(Node& node, std::vector<ArrayType>& types);

}  // namespace stow
