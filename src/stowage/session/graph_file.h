// load_graph: reads, parses and verifies a graph file, with errors that name file and line.
// Not their compilation; see session/compile.h.
#pragma once

#include <string>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/ir/parse.h"

namespace stow {

/// Largest sum of the bytes of all values of a graph and its nested graphs. It keeps sums of sizes
/// far from the 64-bit limit.
inline constexpr int64_t kMaxGraphBytes = int64_t{1} << 58;

/// Returns the graph in a file. The file may be untrusted.
/// Errors: "FILE: reason"; "FILE:LINE:COLUMN: expected …" for wrong syntax; "FILE:LINE: [op] …" for
/// an invalid node; "FILE: …" if the values exceed kMaxGraphBytes.
Result<GraphPtr> load_graph(const std::string& path, const PolicyResolver& policies = {});

}  // namespace stow
