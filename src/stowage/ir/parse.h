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

/// The policy of that name; null if there is none.
using PolicyResolver = std::function<PolicyPtr(std::string_view name)>;

/// The line, from 1, on which each node of a graph and of those nested in it begins.
using SourceLines = std::unordered_map<const Graph*, std::vector<int>>;

/// The most bytes of a text; more is an error, as any damage is.
inline constexpr size_t kMaxTextBytes = size_t{64} << 20;
inline constexpr int kMaxGraphDepth = 64;
inline constexpr size_t kMaxRank = 32;                        ///< Highest rank of a type.
inline constexpr int64_t kMaxArrayBytes = int64_t{1} << 56;   ///< Extents of 0 counting as 1.
inline constexpr int64_t kMaxTextInteger = int64_t{1} << 48;  ///< Either sign; not of constants.

/// The graph of a text, which may come from anywhere. Value numbers must be those that print()
/// writes: the next free one, in order. A parameter left out has its default. Policies survive by
/// name alone: `policies` gives the policy of a name, asked once a name.
/// Errors: "file:line:column: expected …" (columns in bytes from 1). What is well-formed here may
/// still be refused by verify(). `lines`, where given, receives the lines of the nodes.
Result<GraphPtr> parse_graph(std::string_view text, std::string_view file,
                             const PolicyResolver& policies = {}, SourceLines* lines = nullptr);

}  // namespace stow
