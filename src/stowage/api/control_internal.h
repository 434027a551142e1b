// Shared by loops: the tracing of a body whose carry keeps its types.
// Not public.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "stowage/api/trace.h"

namespace stow {

/// "carry 'h'", or "the carry" of a lone array.
std::string leaf_name(std::string_view what, const std::string& path);

/// The declared inputs of a loop's body and how errors call them.
struct LoopBody {
  const char* what;                        ///< "scan", for errors.
  std::vector<std::string> carry_paths;    ///< One a carry.
  std::vector<std::string> names;          ///< Names of the carries, then of the slices.
  std::vector<ArrayType> slices;           ///< Types of what the body gets after the carries.
  /// Inputs: carries, slices. Outputs: carries, then whatever else.
  std::function<std::vector<Array>(std::span<const Array>)> body;
};

/// Traces the body, the captures going first; twice where a weak initial carry takes the type that
/// the body returns, which `carry` is then converted to. Where the body has effects, their token is
/// one more carry, behind the others (take_effects).
/// Errors: TraceError where the body returns too few arrays or a carry of another type.
Nested trace_loop_body(const LoopBody& loop, std::vector<Array>& carry);

}  // namespace stow
