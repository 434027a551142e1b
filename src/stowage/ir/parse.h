// Reads the text of a graph that ir/print.h writes.
// Not a check of its types; ops/verify.h derives them again.
#pragma once

#include <functional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/ir/graph.h"

namespace stow {

/// Returns the policy of that name; null if there is none.
using PolicyResolver = std::function<PolicyPtr(std::string_view name)>;

/// The line, from 1, on which each node begins: by graph, nested ones included, then by node.
using SourceLines = std::unordered_map<const Graph*, std::vector<int>>;

// Limits of a text. A text beyond one of them is an error.
inline constexpr size_t kMaxTextBytes = size_t{64} << 20;     ///< Size of the text in bytes.
inline constexpr int kMaxGraphDepth = 64;                     ///< Depth of nested graphs.
inline constexpr size_t kMaxRank = 32;                        ///< Highest rank of a type.
inline constexpr int64_t kMaxArrayBytes = int64_t{1} << 56;   ///< Bytes of a type.
inline constexpr int64_t kMaxTextInteger = int64_t{1} << 48;  ///< Magnitude, except in constants.

/// Reads the graph of a text, which need not be trusted. Value numbers must be those that print()
/// writes: consecutive, in order. A parameter that is left out has its default. The text holds only
/// the names of policies; `policies` is called once for each name. `lines`, if not null, receives
/// the lines of the nodes.
/// Errors: "file:line:column: expected …" (columns in bytes from 1). verify() may still refuse a
/// graph that is read without an error.
Result<GraphPtr> parse_graph(std::string_view text, std::string_view file,
                             const PolicyResolver& policies = {}, SourceLines* lines = nullptr);

}  // namespace stow
