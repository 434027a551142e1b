// The values that a gradient keeps from its forward part for its backward part.
// Not its memory over time; that is the plan's.
#pragma once

#include <string>
#include <vector>

#include "stowage/ir/graph.h"

namespace stow {

/// One value that the backward part reads.
struct SavedResidual {
  enum class Source : uint8_t {
    kArgument,  ///< An argument of the function; needs no extra memory.
    kCaptured,  ///< An array that the function captured; needs no extra memory.
    kNamed,     ///< A value that has a name.
    kCarry,     ///< A carry of a scan, at the beginning of each iteration.
    kOutput     ///< The result of an op.
  };
  ArrayType type;  ///< Type of the value; if `stacked`, of the stack.
  Source source = Source::kOutput;
  std::string name;      ///< The argument's path, the name, or the op's.
  bool stacked = false;      ///< True if a scan keeps one value for each iteration.
  ir::ProvenancePtr place;   ///< Place in the source that computed the value; null if unknown.
};
/// Returns "f32[3,4] from the argument '0/w'", "f32[8] named 'h' at mlp (m.cpp:41)",
/// "f32[5,8] output of dot_general at m.cpp:40, stacked by scan".
std::string to_string(const SavedResidual& residual);

/// Returns the values that the backward part of a joint graph (autodiff/reverse.h) reads after the
/// policies of its regions are realized: arguments, captured arrays, then computed values in order.
/// The graph's first `n_arguments` inputs are arguments, the last `n_cotangents` are cotangents.
/// Errors: TraceError as compile().
std::vector<SavedResidual> saved_residuals(const ir::Graph& joint, size_t n_arguments,
                                           size_t n_cotangents);

}  // namespace stow
