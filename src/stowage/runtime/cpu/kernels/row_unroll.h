// Unrolls row programs that read a short dimension both forwards and backwards, as the halves of a
// head in a rotary embedding.
// Not for callers; see row_program.h.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "stowage/ir/row_program.h"

namespace stow::cpu {

/// An unrolled row program and the location of its operands.
struct UnrolledRows {
  /// The location of an operand: a byte offset from an operand of the original program.
  struct Base {
    size_t operand;
    int64_t offset_bytes;
  };
  RowProgram program;
  std::vector<Base> inputs, outputs;
};

/// Unrolls a short dimension, not the innermost, that the program reads backwards. Returns nothing
/// if there is no such dimension or the program has reductions. The result lacks the dimension: it
/// computes all its indices at each point, so that adjacent memory is read and written together, a
/// run of columns at a time. It writes the same bits. An output may be the memory of an input,
/// element for element, as in the original.
std::optional<UnrolledRows> unroll_reversed(const RowProgram& program);

}  // namespace stow::cpu
