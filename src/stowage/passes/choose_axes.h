// The mesh axes that cut the work of each op, chosen by the bytes that resharding sends.
// Not the shardings of values between ops; passes/propagate chooses those.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/ops/localize.h"
#include "stowage/passes/propagate.h"

namespace stow {

/// The mesh axes of an op's letters, and their cost.
struct AxisChoice {
  LetterAxes axes = {};
  OpShardings shardings = {};
  double bytes = 0;     ///< Bytes that one position sends to reshard operands and results.
  int64_t n_parts = 1;  ///< Number of parts into which the op's work is cut.
};

/// Returns the best choice for node `n` of a level; the node must not hold nested graphs.
/// Candidates: no axes; the axes of one result or operand, alone or with axes of the remaining
/// results and operands for other letters. Products prefer the most parts, then the fewest bytes;
/// other ops the fewest bytes, then the most parts. Ties go to the axes of results, then of
/// operands in order.
AxisChoice choose_axes(const GraphShardings& level, const MeshShape& mesh, size_t n);

}  // namespace stow
