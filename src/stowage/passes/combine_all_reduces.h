// Small all_reduces of a local program that can be one, with the bits of each.
// Not the addition of parts before they are summed; that is passes/combine.h.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// An all_reduce of at most so many bytes is small: its time is that of a message, not of its bytes. A
/// network of 10 GB/s and more sends them in some microseconds, which is what a message takes to start.
inline constexpr int64_t kSmallReduceBytes = int64_t{64} << 10;
/// Bytes that all_reduces which are one have together, at most. Operands wait for each other and results
/// have a buffer of their own, so that is also what a peak may grow by, twice.
inline constexpr int64_t kCombinedReduceBytes = int64_t{256} << 10;

/// Puts small all_reduces of one group, kind, dtype and region together: their operands are one
/// array, whose reduction is cut into their results. A reduction is made element by element, so
/// bits stay. One joins those before it if no node between reads a result of theirs: nothing waits
/// that did not before. All_reduces of the forward pass stay as they are if the program has a
/// backward pass, since what is kept of them is chosen one by one. Nested graphs included; linear
/// in time.
Graph combine_all_reduces(const Graph& graph);

}  // namespace stow
