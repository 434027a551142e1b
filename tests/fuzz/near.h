// How near results of a random program are to the naive interpreter's.
// Not a comparison of bits.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>

#include "stowage/core/scalar.h"
#include "tests/support/evaluate.h"

namespace stow::testing {

inline double number(const ArrayType& type, const Bytes& bytes, size_t i) {
  const auto width = static_cast<size_t>(dtype_bytes(type.dtype));
  return decode_scalar(type.dtype, std::span(bytes).subspan(i * width, width));
}

// Inputs a little off: what a small error does to the results.
inline std::vector<Bytes> perturbed(const Graph& graph, std::vector<Bytes> inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ArrayType& type = graph.type(graph.inputs()[i]);
    if (!is_float(type.dtype)) continue;
    Bytes bytes;
    for (size_t e = 0; e < static_cast<size_t>(type.elems()); ++e) {
      const double nudge = (e % 2 ? 1 : -1) * (type.dtype == DType::kBF16  ? 0x1p-8
                                               : type.dtype == DType::kF16 ? 0x1p-11
                                                                           : 0x1p-20);
      const auto element = *encode_scalar(type.dtype, number(type, inputs[i], e) * (1 + nudge));
      bytes.insert(bytes.end(), element.begin(), element.end());
    }
    inputs[i] = std::move(bytes);
  }
  return inputs;
}

// Against the naive interpreter, as near as the program is well-conditioned.
inline std::string compare_loosely(const Graph& graph, const std::vector<Bytes>& inputs,
                                   const std::vector<Bytes>& got) {
  const std::vector<Bytes> want = evaluate(graph, inputs);
  const std::vector<Bytes> near = evaluate(graph, perturbed(graph, inputs));
  for (size_t o = 0; o < want.size(); ++o) {
    const ArrayType& type = graph.type(graph.outputs()[o]);
    double size = 1, moved = 0;
    const auto n = static_cast<size_t>(type.elems());
    for (size_t i = 0; i < n; ++i) {
      const double a = number(type, want[o], i), b = number(type, near[o], i);
      if (!std::isfinite(a) || !std::isfinite(b)) return "";  // no measure of it
      size = std::max(size, std::fabs(a));
      moved = std::max(moved, std::fabs(a - b));
    }
    const double error = is_float(type.dtype) ? 1e-4 * size + 100 * moved : 0;
    for (size_t i = 0; i < n; ++i)
      if (const double a = number(type, got[o], i), b = number(type, want[o], i);
          !(std::fabs(a - b) <= error) &&
          !(type.dtype != DType::kF32 && type.dtype != DType::kF64 &&
            std::fabs(a - b) <= 0.1 * size))
        return fmt::format("interpreter: output {} of type {} differs at {}: {} for {}", o,
                           to_string(type), i, a, b);
  }
  return "";
}

}  // namespace stow::testing
