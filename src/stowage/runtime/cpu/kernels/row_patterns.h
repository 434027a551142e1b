// The table of formulas that one kernel computes: the steps that each matches, and the kernel.
// Not the search for them in a program; row_match.cpp does it.
//
// A kernel rounds every op of its formula, so a program has the same bits with and without it. A
// formula therefore matches only the same ops. Operands of sums and products may be in either
// order, but not associated differently: `x / (1 + exp(-x))` has other bits than `x * logistic(x)`
// and is not matched as a gate; `m + c * (g - m)` is not matched as a moment. docs/row-programs.md
// shows the table.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "stowage/runtime/cpu/kernels/row_kernels.h"
#include "stowage/runtime/cpu/kernels/row_terms.h"

namespace stow::cpu::rows {

/// An elementwise formula.
struct RowPattern {
  enum class Types : uint8_t {
    kF32,        ///< The result and all steps of the formula are f32.
    kFloats,     ///< f32, bf16 or f16, each op rounded to the result's dtype.
    kI32,        ///< i32.
    kWordByI32,  ///< Words of 32 bits that a comparison of i32 selects.
  };
  std::string name;
  Term result;             ///< The step that the kernel computes.
  std::vector<Term> more;  ///< Other results of the kernel, which any step may read.
  std::vector<Term>
      args;  ///< Operands, in the kernel's order. An op among them is a step of its own.
  std::function<MapKernel()> kernel;
  Types types = Types::kF32;
  /// True: searched for in the whole program before formulas without is_first, which may be parts
  /// of it. Its results have columns.
  bool is_first = false;
  /// True: matches only if the kernel needs no more scratch than the single steps.
  bool saves_scratch = false;
};

/// A formula of f32 whose values along a row, or along a column, are summed by one kernel.
struct SumPattern {
  std::string name;
  Term term;
  Term keeps;  ///< A part of the term, or all of it, that the kernel also writes if other steps
               ///< read it; null if there is none.
  std::vector<Term> args;
  /// The kernel of row sums, or of column sums. One of the two is set.
  ReduceRowsKernel ReduceKernels::*rows = nullptr;
  ReduceColumnsKernel ReduceKernels::*columns = nullptr;
};

/// Return the formulas, in the order in which they are tried: a formula precedes its own parts.
const std::vector<RowPattern>& row_patterns();
const std::vector<SumPattern>& sum_patterns();

}  // namespace stow::cpu::rows
