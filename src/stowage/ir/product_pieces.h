// The pieces in which a product takes an operand that a row program makes in passing: a prologue.
// Not the product (runtime/cpu/kernels/gemm.h) and not the choice of prologues (passes/fuse.h).
#pragma once

#include <cstdint>

#include "stowage/base/inside.h"

namespace stow {

/// Extents of a piece: along k, along m of the left operand, along n of the right one.
inline constexpr int64_t kPieceDepth = 256, kLeftPieceRows = 192, kRightPieceCols = 32;

/// Elements of a piece of the left operand, or of the right one.
constexpr int64_t product_piece_elems(bool of_right) {
  return kPieceDepth * (of_right ? kRightPieceCols : kLeftPieceRows);
}

}  // namespace stow
