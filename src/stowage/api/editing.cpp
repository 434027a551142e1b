// insert, delete_, resize: arrays with places added or taken away, the places being known.
// The functions are declared in shaping.h.
#include <algorithm>
#include <numeric>

#include "stowage/api/indexing.h"
#include "stowage/api/math.h"
#include "stowage/api/math_internal.h"

namespace stow {
namespace {

// x and an axis of it, or x flattened.
std::pair<Array, int> along(const char* name, const Array& x, std::optional<int> axis) {
  if (!axis) return {ravel(x), 0};
  return {x, static_cast<int>(normalize_axis(name, *axis, x.rank(), x.type()))};
}

// A place in [0, limit), negative ones counted from the end of n.
int64_t place_within(const char* name, int64_t place, int64_t n, int64_t limit) {
  const int64_t at = place < 0 ? place + n : place;
  if (at < 0 || at >= limit)
    trace_error_here("[{}] place {} is out of range for an axis of {}", name, place, n);
  return at;
}

// Values with as many axes as x.
Array padded_to_rank(const Array& values, const Array& x) {
  Dims dims = values.shape().dims();
  if (static_cast<int>(dims.size()) > x.rank())
    trace_error_here("[insert] expected values of no more axes than the array, got {} for {}",
                     to_string(values.type()), to_string(x.type()));
  dims.insert(dims.begin(), static_cast<size_t>(x.rank()) - dims.size(), 1);
  return reshape(values, dims);
}

// Values with the extents of x but on `axis`, where there are `count`.
Array spread_values(const Array& values, const Array& x, int axis, int64_t count) {
  Dims target = x.shape().dims();
  target[static_cast<size_t>(axis)] = count;
  const ArrayType type{x.dtype(), Shape(target)};
  if (!(broadcast_shapes("insert", values.type(), type) == type.shape))
    trace_error_here("[insert] values {} do not broadcast to ({})", to_string(values.type()),
                     to_string(type.shape));
  return broadcast_array(values, type.shape);
}

Array inserted(const Array& x, int axis, const Dims& places, const Array& values) {
  const int64_t n = x.shape()[axis];
  std::vector<size_t> order(places.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t i, size_t j) { return places[i] < places[j]; });
  std::vector<int64_t> sources;
  int64_t next = 0;
  for (const size_t i : order) {
    for (; next < places[i]; ++next) sources.push_back(next);
    sources.push_back(n + static_cast<int64_t>(i));
  }
  for (; next < n; ++next) sources.push_back(next);
  if (sources.empty()) return x;
  return take_static(concatenate({x, values}, axis), axis, sources);
}

}  // namespace

Array take_static(const Array& x, int axis, const std::vector<int64_t>& sources) {
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

Array insert(const Operand& x, int64_t place, const Operand& values, std::optional<int> axis) {
  const CallSiteScope site(x.at);
  const auto [a, at] = along("insert", to_array(x), axis);
  const Array v = to_array(values, {a.dtype(), a.type().weak});
  return run_as_one("insert", [&, a = a, at = at] {
    const int64_t n = a.shape()[at];
    const Array moved = moveaxis(padded_to_rank(v, a), 0, at);
    const int64_t count = moved.shape()[at];
    const Dims places(static_cast<size_t>(count), place_within("insert", place, n, n + 1));
    return inserted(a, at, places, spread_values(moved, a, at, count));
  });
}

Array insert(const Operand& x, const Dims& places, const Operand& values, std::optional<int> axis) {
  const CallSiteScope site(x.at);
  const auto [a, at] = along("insert", to_array(x), axis);
  const Array v = to_array(values, {a.dtype(), a.type().weak});
  return run_as_one("insert", [&, a = a, at = at] {
    const int64_t n = a.shape()[at];
    Dims where;
    for (const int64_t place : places) where.push_back(place_within("insert", place, n, n + 1));
    const Array padded = padded_to_rank(v, a);
    // One place takes all the values.
    if (where.size() == 1) where.assign(static_cast<size_t>(padded.shape()[at]), where[0]);
    const auto count = static_cast<int64_t>(where.size());
    return inserted(a, at, where, spread_values(padded, a, at, count));
  });
}

Array delete_(const Operand& x, const Dims& places, std::optional<int> axis) {
  const CallSiteScope site(x.at);
  const auto [a, at] = along("delete_", to_array(x), axis);
  return run_as_one("delete_", [&, a = a, at = at] {
    const int64_t n = a.shape()[at];
    std::vector<bool> gone(static_cast<size_t>(n));
    for (const int64_t place : places)
      gone[static_cast<size_t>(place_within("delete_", place, n, n))] = true;
    std::vector<int64_t> sources;
    for (int64_t i = 0; i < n; ++i)
      if (!gone[static_cast<size_t>(i)]) sources.push_back(i);
    return sources.empty() ? slice(a, at, 0, 0) : take_static(a, at, sources);
  });
}

Array resize(const Operand& x, const Shape& shape) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  const int64_t n = a.size(), wanted = shape.elems();
  return run_as_one("resize", [&] {
    if (n == 0 || wanted == 0) return zeros(shape, a.dtype());
    const Array repeated = tile(ravel(a), {(wanted + n - 1) / n});
    return reshape(slice(repeated, 0, 0, wanted), shape.dims());
  });
}

}  // namespace stow
