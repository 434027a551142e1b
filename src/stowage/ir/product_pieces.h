// The pieces in which a product's kernel asks a prologue for an operand.
// Not the product (runtime/cpu/kernels/gemm.h) and not the choice of prologues (passes/fuse.h).
#pragma once

#include <cstdint>

#include "stowage/base/inside.h"

namespace stow {

/// Extents of a piece: along k; along m for the left operand; along n for the right operand.
inline constexpr int64_t kPieceDepth = 256, kLeftPieceRows = 192, kRightPieceCols = 32;

/// Elements of a piece of the right operand if `of_right`, else of the left one.
constexpr int64_t product_piece_elems(bool of_right) {
  return kPieceDepth * (of_right ? kRightPieceCols : kLeftPieceRows);
}

}  // namespace stow
