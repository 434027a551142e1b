// Row programs that walk a short dimension both ways, as the halves of a head in a rotary
// embedding. Not for callers; see row_program.h.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "stowage/ir/row_program.h"

namespace stow::cpu {

/// A row program and where its operands lie: at a byte offset from one of the original's.
struct UnrolledRows {
  struct Base {
    size_t operand;
    int64_t offset_bytes;
  };
  RowProgram program;
  std::vector<Base> inputs, outputs;
};

/// Unrolls a short dimension that the program reads backwards and that is not the innermost; none
/// if there is no such dimension or the program reduces. The result has no such dimension: it
/// computes all of it at each point. Adjacent memory is then read and written together, a run of
/// columns at a time. The program writes the same bits. An output may lie over an input, element
/// for element, as in the original.
std::optional<UnrolledRows> unroll_turned(const RowProgram& program);

}  // namespace stow::cpu
