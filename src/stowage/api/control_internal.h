// Shared by loops: the tracing of a body whose carry keeps its types.
// Not public.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "stowage/api/trace.h"

namespace stow {

/// The words with which an error names a leaf: "carry 'h'", or "the carry" if `path` is empty, as
/// it is for a tree that is a single array.
std::string leaf_name(std::string_view what, const std::string& path);

/// A loop's body, the inputs that it declares, and the names that errors give them.
struct LoopBody {
  const char* what;                        ///< "scan", for errors.
  std::vector<std::string> carry_paths;    ///< The path of each carry in its tree.
  std::vector<std::string> names;          ///< Names of the carries, then of the slices.
  std::vector<ArrayType> slices;           ///< Types of the inputs that follow the carries.
  /// Inputs: carries, slices. Outputs: the next carries, then any further results.
  std::function<std::vector<Array>(std::span<const Array>)> body;
};

/// Traces the body. Inputs of the graph: the captures, the carries, the slices. `carry`: the
/// initial carries. If one has a weak dtype and the body returns another type, it is converted to
/// that type, and the body is traced once more. If the body has effects, their token is appended to
/// the carries (see take_effects in trace.h).
/// Errors: TraceError where the body returns too few arrays or a carry of another type.
NestedTrace trace_loop_body(const LoopBody& loop, std::vector<Array>& carry);

}  // namespace stow
