// Compares results of a random program with the reference interpreter, within tolerances.
// Not a comparison of bits.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>

#include "stowage/base/inside.h"
#include "stowage/core/scalar.h"
#include "tests/support/evaluate.h"

namespace stow::testing {

inline double number(const ArrayType& type, const Bytes& bytes, size_t i) {
  const auto width = static_cast<size_t>(dtype_bytes(type.dtype));
  return decode_scalar(type.dtype, std::span(bytes).subspan(i * width, width));
}

// Compares with the reference interpreter and returns the first difference, or "". The tolerance
// depends on the program's condition: a multiple of the change of the results when every
// intermediate value is off by a rounding of its dtype.
inline std::string compare_loosely(const Graph& graph, const std::vector<Bytes>& inputs,
                                   const std::vector<Bytes>& got) {
  constexpr uint64_t kRuns = 3;
  constexpr double kSafety = 8;
  const std::vector<Bytes> want = evaluate(graph, inputs);
  std::vector<std::vector<Bytes>> near;
  for (uint64_t seed = 0; seed < kRuns; ++seed)
    near.push_back(evaluate_nudged(graph, inputs, seed));
  for (size_t o = 0; o < want.size(); ++o) {
    const ArrayType& type = graph.type(graph.outputs()[o]);
    double size = 1, moved = 0;
    const auto n = static_cast<size_t>(type.elems());
    for (size_t i = 0; i < n; ++i) {
      const double a = number(type, want[o], i);
      size = std::max(size, std::fabs(a));
      for (const std::vector<Bytes>& run : near) {
        const double b = number(type, run[o], i);
        if (!std::isfinite(a) || !std::isfinite(b)) return "";  // no measure of it
        moved = std::max(moved, std::fabs(a - b));
      }
    }
    const double error = is_float(type.dtype) ? 1e-6 * size + kSafety * moved : 0;
    for (size_t i = 0; i < n; ++i)
      if (const double a = number(type, got[o], i), b = number(type, want[o], i);
          !(std::fabs(a - b) <= error))
        return fmt::format(
            "interpreter: output {} of type {} differs at {}: {} for {}, more than {}", o,
            to_string(type), i, a, b, error);
  }
  return "";
}

}  // namespace stow::testing
