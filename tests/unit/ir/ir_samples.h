// Graphs that hold every op and every parameter, for tests of text, equality and hash.
// Not well-typed; tests of the verifier have graphs of their own.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/ir/parse.h"

namespace stow::testing {

/// One node an op, parameters that differ from their defaults, regions, marks, provenance and
/// nested graphs.
Graph every_op();
/// A policy of that name, one object a name.
PolicyPtr sample_policy(std::string_view name);

}  // namespace stow::testing
