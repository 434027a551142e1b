// The text of the units that fuse() makes, for dumps and golden tests.
// Not read back; a schedule's text is (ir/schedule_printer.h).
#pragma once

#include <string>

#include "stowage/base/inside.h"
#include "stowage/passes/fuse.h"

namespace stow {

/// One line a unit, by its number: its kind and iteration space, the units that it reads, then its nodes
/// as in ir/print.h, one a line:
///
///   unit 1 rows [8,64] n_row_dims=1 reads 0
///     %3 = mul(%1, %2) : f32[8,64]
std::string print(const Graph& graph, const Units& units);

}  // namespace stow
