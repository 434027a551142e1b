// Graphs from files: read, parsed and verified, with errors that name file and line.
// Not their compilation; see session/compile.h.
#pragma once

#include <string>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/ir/parse.h"

namespace stow {

/// The bytes that all values of a graph and of those nested in it may have together, so that sums
/// of sizes stay far from 64 bits.
inline constexpr int64_t kMaxGraphBytes = int64_t{1} << 58;

/// The graph of a file, which may come from anywhere.
/// Errors: "FILE: reason"; "FILE:LINE:COLUMN: expected …" where it is no graph; "FILE:LINE: [op] …"
/// where a node is wrong; "FILE: …" where its values are larger than kMaxGraphBytes.
Result<GraphPtr> load_graph(const std::string& path, const PolicyResolver& policies = {});

}  // namespace stow
