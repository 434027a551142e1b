// The rewrite of conds and whiles whose results are operands handed through.
// Not a pass; simplify applies it while it copies a graph.
#pragma once

#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// `node` is about to be appended with these result types. Results of a cond that every branch
/// takes from the same operand, and carries that a while never changes, are dropped: such a carry
/// becomes a const of both graphs. Returns, for each result there was, the operand that it is, or
/// an invalid id; `types` keeps those of the others.
std::vector<ValueId> drop_passthrough(Node& node, std::vector<ArrayType>& types);

}  // namespace stow
