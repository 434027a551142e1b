// The text of a graph: SSA, one node a line, read back by ir/parse.h.
// Not a report; it shows all that a graph holds, except the functions of policies.
#pragma once

#include <string>

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// The whole graph:
///
///   graph(%0: f32[8,64] "x", %1: f32[64] "w") {
///     region 0 {parent=none, policy="dots_saveable", prevent_cse=true}
///     %2 = broadcast(%1) {shape=[8,64], axes=[1]} region 0 : f32[8,64] @"mlp" "m.cpp":7
///     %3 = add(%0, %2) backward : f32[8,64]
///     return %3
///   }
///
/// Value numbers are ValueIds. A nested graph follows its node, indented. Memory kinds stand in the
/// type (f32<disk>[4]); a weak type ends with ~. Constants hold numbers, or hex"…" (bytes in memory
/// order) if numbers would not give the same bits or would be more than 8. Strings escape \"
/// and \\, and control bytes as \xHH. Never fails, even on a malformed graph.
std::string print(const Graph& graph);

/// Returns the line of one node as in print(), without nested graphs.
std::string print_node(const Graph& graph, const Node& node);

}  // namespace stow
