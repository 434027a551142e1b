// The mesh axes that each op of a program works with, chosen by the bytes that resharding sends.
// Not how values lie between ops; that is passes/propagate.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/ops/localize.h"
#include "stowage/passes/propagate.h"

namespace stow {

/// The axes of an op's letters, and what they take.
struct AxisChoice {
  LetterAxes axes = {};
  OpShardings shardings = {};
  double bytes = 0;     ///< Sent by one position to reshard operands and results.
  int64_t n_parts = 1;  ///< Into which the op's work is cut.
};

/// The best choice for node `n` of a level, which holds no graphs. Candidates take the axes of one
/// result or operand and fill other letters from the rest, or do not; or leave all whole. A product
/// wants the most parts, then the fewest bytes; other ops the fewest bytes, then the most parts;
/// ties go to results, then to operands in order.
AxisChoice choose_axes(const GraphShardings& level, const MeshShape& mesh, size_t n);

}  // namespace stow
