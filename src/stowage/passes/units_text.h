// The text of the units that fuse() makes, for dumps and golden tests.
// Not a format that is read back; for the text of a schedule see ir/schedule_printer.h.
#pragma once

#include <string>

#include "stowage/base/inside.h"
#include "stowage/passes/fuse.h"

namespace stow {

/// Returns, for each unit, a line of its number, kind, iteration space and operand units, then a
/// line for each of its nodes as in ir/print.h:
///
///   unit 1 rows [8,64] n_row_dims=1 reads 0
///     %3 = mul(%1, %2) : f32[8,64]
std::string print(const Graph& graph, const Units& units);

}  // namespace stow
