// The pass that combines small independent all_reduces into one, without a change of bits.
// Not the addition of parts before they are summed; passes/combine.h does that.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

/// The largest all_reduce in bytes that counts as small: its time is dominated by the latency of a
/// message. A network of 10 GB/s sends this many bytes in a few microseconds, about one latency.
inline constexpr int64_t kSmallReduceBytes = int64_t{64} << 10;
/// The most bytes of a combined all_reduce. Operands wait for each other and the result has a
/// buffer of its own, so the peak may grow by twice as much.
inline constexpr int64_t kCombinedReduceBytes = int64_t{256} << 10;

/// Combines small all_reduces of one group, kind, dtype and region: concatenates their operands,
/// reduces once and slices the result. A reduction is made element by element, so bits stay. An
/// all_reduce joins earlier ones only if no node between them reads one of their results, so no
/// reader waits longer. If the program has a backward pass, all_reduces of the forward pass stay,
/// since each is kept or recomputed on its own. Nested graphs included; linear in time.
Graph combine_all_reduces(const Graph& graph);

}  // namespace stow
