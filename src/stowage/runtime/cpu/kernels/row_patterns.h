// The table of formulas that one kernel computes: what each matches, and the kernel.
// Not the search for them in a program; that is row_match.cpp's.
//
// A kernel rounds every op of its formula, so a program has the same bits with it and without it. A
// formula therefore matches what is written with the same ops: with the operands of sums and
// products in either order, but not in another association. `x / (1 + exp(-x))` has other bits than
// `x * logistic(x)` and is no gate; `m + c * (g - m)` is no moment. docs/row-programs.md shows the
// table.
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
    kF32,        ///< The result and all that it is made of are f32.
    kFloats,     ///< f32, bf16 or f16, each op rounded to the result's dtype.
    kI32,        ///< i32.
    kWordByI32,  ///< Words of 32 bits that a comparison of i32 chooses.
  };
  std::string name;
  Term result;             ///< The step that the kernel stands for.
  std::vector<Term> more;  ///< Other results of the kernel, which any step may read.
  std::vector<Term>
      args;  ///< Operands, in the kernel's order. An op among them is computed before.
  std::function<MapKernel()> kernel;
  Types types = Types::kF32;
  /// Searched for in the whole program before the others, which may be parts of it. Its results
  /// have columns.
  bool is_first = false;
  /// Matches only where the kernel needs no more scratch than the single steps.
  bool saves_scratch = false;
};

/// A formula whose values at the points of a row, or of a column, a reduction of f32 sums up.
struct SumPattern {
  std::string name;
  Term term;
  Term keeps;  ///< A part of the term, or all of it, that the kernel writes if others read it; or
               ///< none.
  std::vector<Term> args;
  /// The kernel; null for reductions without such a kernel. One of the two is set.
  ReduceRowsKernel ReduceKernels::*rows = nullptr;
  ReduceColumnsKernel ReduceKernels::*columns = nullptr;
};

/// The first that matches is taken, so what holds more steps stands above its parts.
const std::vector<RowPattern>& row_patterns();
const std::vector<SumPattern>& sum_patterns();

}  // namespace stow::cpu::rows
