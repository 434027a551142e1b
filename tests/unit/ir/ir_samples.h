// Graphs that hold every op and every parameter, for tests of text, equality and hash.
// Not well-typed; tests of the verifier have graphs of their own.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/ir/parse.h"

namespace stow::testing {

/// Returns a graph with one node for each op, non-default parameters, regions, marks, provenance
/// and nested graphs.
Graph every_op();
/// Returns a policy with this name; the same object for the same name.
PolicyPtr sample_policy(std::string_view name);

}  // namespace stow::testing
