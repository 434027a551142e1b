// jnp.pad by what the array holds: edge, reflect, symmetric, wrap, linear ramp.
#include <algorithm>

#include "stowage/api/indexing.h"
#include "stowage/api/math.h"
#include "stowage/api/math_internal.h"
#include "stowage/api/reduce.h"
#include "stowage/api/shaping.h"

namespace stow {
namespace {

// The element, of n, that is read at place i, which may lie outside [0, n).
int64_t source(PadMode mode, int64_t i, int64_t n) {
  const auto modulo = [](int64_t a, int64_t b) { return ((a % b) + b) % b; };
  switch (mode) {
    case PadMode::kEdge:
    case PadMode::kLinearRamp:
    case PadMode::kMaximum:
    case PadMode::kMinimum:
    case PadMode::kMean:
    case PadMode::kMedian:
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

// From `end` at the end to the edge, which it does not reach.
Array ramp(const Array& edge, int axis, int64_t width, bool before, double end) {
  Dims dims(static_cast<size_t>(edge.rank()), 1);
  dims[static_cast<size_t>(axis)] = width;
  const Array steps = reshape(arange(width), dims);
  const Array share =
      convert_to(astype(before ? steps : static_cast<int32_t>(width - 1) - steps, DType::kF32) /
                     static_cast<double>(width),
                 edge.dtype());
  const Array line = edge * share;
  return convert_to(end == 0 ? line : end * (1.0 - share) + line, edge.dtype());
}

// The statistic that pads an axis at one end: extent 1.
Array statistic(const Array& x, int axis, PadMode mode, const PadOptions& options, bool before) {
  const int64_t n = x.shape()[axis];
  const int64_t length = std::min(n, options.stat_length.value_or(n));
  const Array part = before ? slice(x, axis, 0, length) : slice(x, axis, n - length, n);
  Array value = mode == PadMode::kMaximum   ? max(part, axis, true)
                : mode == PadMode::kMinimum ? min(part, axis, true)
                : mode == PadMode::kMean    ? mean(part, axis, true)
                                            : median(part, axis, true);
  if (is_integer(x.dtype())) value = round(value);
  return convert_to(value, x.dtype());
}

// The values that pad one side of an axis, in modes that compute them.
Array side(const Array& x, int axis, PadMode mode, const PadOptions& options, int64_t width,
           bool before) {
  const int64_t n = x.shape()[axis];
  if (mode == PadMode::kLinearRamp) {
    const Array edge = before ? slice(x, axis, 0, 1) : slice(x, axis, n - 1, n);
    return ramp(edge, axis, width, before, options.end_value);
  }
  return repeat(statistic(x, axis, mode, options, before), width, axis);
}

void check_pad(const Array& a, const std::vector<PadWidth>& widths, PadMode mode,
               const PadOptions& options) {
  if (static_cast<int>(widths.size()) != a.rank())
    trace_error_here("[pad] expected two widths for each axis, got {} pairs for {}", widths.size(),
                     to_string(a.type()));
  if (mode == PadMode::kLinearRamp && !is_float(a.dtype()))
    trace_error_here("[pad] expected floats for a linear ramp, got {}", to_string(a.type()));
  if (options.stat_length && *options.stat_length <= 0)
    trace_error_here("[pad] expected a stat_length of 1 or more, got {}", *options.stat_length);
  for (const auto [before, after] : widths)
    if (before < 0 || after < 0)
      trace_error_here("[pad] negative width ({}, {}); pad_general takes those", before, after);
}

}  // namespace

Array pad(const Operand& x, const std::vector<PadWidth>& widths, PadMode mode,
          const PadOptions& options) {
  const CallSiteScope site(x.at);
  Array a = to_array(x);
  check_pad(a, widths, mode, options);
  return run_as_one("pad", [&] {
    for (int axis = 0; axis < a.rank(); ++axis) {
      const auto [before, after] = widths[static_cast<size_t>(axis)];
      const int64_t n = a.shape()[axis];
      if (before + after == 0) continue;
      if (n == 0)
        trace_error_here("[pad] axis {} of {} has no elements to pad with", axis,
                         to_string(a.type()));
      if (mode >= PadMode::kLinearRamp) {
        std::vector<Array> parts;
        if (before > 0) parts.push_back(side(a, axis, mode, options, before, true));
        parts.push_back(a);
        if (after > 0) parts.push_back(side(a, axis, mode, options, after, false));
        a = concatenate(parts, axis);
        continue;
      }
      std::vector<int64_t> sources;
      for (int64_t i = -before; i < n + after; ++i) sources.push_back(source(mode, i, n));
      a = take_static(a, axis, sources);
    }
    return a;
  });
}

}  // namespace stow
