// jnp.pad by what the array holds: edge, reflect, symmetric, wrap, linear ramp.
#include <algorithm>

#include "stowage/api/math.h"
#include "stowage/api/math_internal.h"
#include "stowage/api/shaping.h"

namespace stow {
namespace {

// Which of n elements lies at place i, which may lie outside [0, n).
int64_t source(PadMode mode, int64_t i, int64_t n) {
  const auto modulo = [](int64_t a, int64_t b) { return ((a % b) + b) % b; };
  switch (mode) {
    case PadMode::kEdge:
    case PadMode::kLinearRamp:
      return std::clamp<int64_t>(i, 0, n - 1);
    case PadMode::kWrap:
      return modulo(i, n);
    case PadMode::kReflect: {
      if (n == 1) return 0;
      const int64_t at = modulo(i, 2 * (n - 1));
      return at < n ? at : 2 * (n - 1) - at;
    }
    case PadMode::kSymmetric: {
      const int64_t at = modulo(i, 2 * n);
      return at < n ? at : 2 * n - 1 - at;
    }
  }
  return 0;
}

// Elements sources of an axis, in runs that rise, fall or stay.
Array picked(const Array& x, int axis, const std::vector<int64_t>& sources) {
  std::vector<Array> parts;
  for (size_t i = 0; i < sources.size();) {
    size_t end = i + 1;
    const int64_t step = end < sources.size() ? sources[end] - sources[i] : 1;
    if (step >= -1 && step <= 1)
      while (end < sources.size() && sources[end] - sources[end - 1] == step) ++end;
    const int64_t low = std::min(sources[i], sources[end - 1]),
                  high = std::max(sources[i], sources[end - 1]);
    Array part = slice(x, axis, low, high + 1);
    const auto count = static_cast<int64_t>(end - i);
    if (count > 1 && step < 0) part = flip(part, axis);
    if (count > 1 && step == 0) part = repeat(part, count, axis);
    parts.push_back(part);
    i = end;
  }
  return parts.size() == 1 ? parts[0] : concatenate(parts, axis);
}

// From 0 at the end to the edge, which it does not reach.
Array ramp(const Array& edge, int axis, int64_t width, bool before) {
  Dims dims(static_cast<size_t>(edge.rank()), 1);
  dims[static_cast<size_t>(axis)] = width;
  const Array steps = reshape(arange(width), dims);
  const Array share =
      astype(before ? steps : static_cast<int32_t>(width - 1) - steps, DType::kF32) /
      static_cast<double>(width);
  return convert_to(edge * convert_to(share, edge.dtype()), edge.dtype());
}

}  // namespace

Array pad(const Operand& x, const std::vector<PadWidth>& widths, PadMode mode) {
  const Site site(x.at);
  Array a = to_array(x);
  if (static_cast<int>(widths.size()) != a.rank())
    fail_here("[pad] {} widths given for {}", widths.size(), to_string(a.type()));
  if (mode == PadMode::kLinearRamp && !is_float(a.dtype()))
    fail_here("[pad] a linear ramp is of floats, got {}", to_string(a.type()));
  return run_as_one("pad", [&] {
    for (int axis = 0; axis < a.rank(); ++axis) {
      const auto [before, after] = widths[static_cast<size_t>(axis)];
      const int64_t n = a.shape()[axis];
      if (before < 0 || after < 0)
        fail_here("[pad] negative width ({}, {}); pad_general takes those", before, after);
      if (before + after == 0) continue;
      if (n == 0) fail_here("[pad] axis {} of {} has no elements to pad with", axis,
                            to_string(a.type()));
      if (mode == PadMode::kLinearRamp) {
        std::vector<Array> parts;
        if (before > 0) parts.push_back(ramp(slice(a, axis, 0, 1), axis, before, true));
        parts.push_back(a);
        if (after > 0) parts.push_back(ramp(slice(a, axis, n - 1, n), axis, after, false));
        a = concatenate(parts, axis);
        continue;
      }
      std::vector<int64_t> sources;
      for (int64_t i = -before; i < n + after; ++i) sources.push_back(source(mode, i, n));
      a = picked(a, axis, sources);
    }
    return a;
  });
}

}  // namespace stow
