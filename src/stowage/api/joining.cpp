// Joining, cutting and dynamic slices: the second part of shaping.h.
#include <algorithm>

#include "stowage/api/indexing.h"
#include "stowage/api/math.h"
#include "stowage/api/math_internal.h"

namespace stow {
namespace {

// Arrays of one dtype, by promotion.
std::vector<Array> promoted(std::string_view name, const std::vector<Array>& arrays) {
  if (arrays.empty()) trace_error_here("[{}] expected at least one array, got none", name);
  WeakDType dtype = Operand(arrays[0]).dtype();
  for (const Array& a : arrays) dtype = promote(dtype, Operand(a).dtype());
  std::vector<Array> result;
  for (const Array& a : arrays) result.push_back(to_array(a, dtype));
  return result;
}

std::vector<Array> as_starts(std::string_view name, const Array& x,
                             const std::vector<Array>& starts) {
  if (static_cast<int>(starts.size()) != x.rank())
    trace_error_here("[{}] expected a start for each axis, got {} for {}", name, starts.size(),
                     to_string(x.type()));
  for (const Array& s : starts)
    if (s.rank() != 0 || !is_integer(s.dtype()))
      trace_error_here("[{}] a start must be an integer scalar, got {}", name, to_string(s.type()));
  if (starts.empty()) return starts;
  std::vector<Array> all = promoted(name, starts);
  if (is_unsigned_int(all[0].dtype())) return all;
  // Below 0 they count from the end.
  for (int i = 0; i < x.rank(); ++i) {
    Array& s = all[static_cast<size_t>(i)];
    if (s.dtype() == DType::kI8) s = convert_to(s, DType::kI32);
    s = where(s < 0, s + x.dim(i), s);
  }
  return all;
}

}  // namespace

Array concatenate(const std::vector<Array>& arrays, int axis, SourceLocation at) {
  const CallSiteScope site(at);
  const std::vector<Array> parts = promoted("concatenate", arrays);
  const int64_t a = normalize_axis("concatenate", axis, parts[0].rank(), parts[0].type());
  return record(OpKind::kConcatenate, AxisParams{a}, parts).front();
}

Array stack(const std::vector<Array>& arrays, int axis, SourceLocation at) {
  const CallSiteScope site(at);
  std::vector<Array> parts = promoted("stack", arrays);
  for (Array& part : parts) {
    if (!(part.shape() == parts[0].shape()))
      trace_error_here("[stack] expected arrays of one shape, got {} and {}",
                       to_string(arrays[0].type()), to_string(part.type()));
  }
  const int rank = parts[0].rank();
  const int64_t a = normalize_axis("stack", axis, rank + 1, parts[0].type());
  for (Array& part : parts) part = expand_dims(part, a);
  return record(OpKind::kConcatenate, AxisParams{a}, parts).front();
}

std::vector<Array> split_at(const Operand& x, const Dims& indices, int axis) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  const auto i = static_cast<int>(normalize_axis("split_at", axis, a.rank(), a.type()));
  std::vector<Array> parts;
  int64_t start = 0;
  for (int64_t stop : indices) {
    if (stop < start || stop > a.shape()[i])
      trace_error_here("[split_at] indices must rise and lie within axis {} of {}, got {}", axis,
                       to_string(a.type()), stop);
    parts.push_back(slice(a, i, start, stop));
    start = stop;
  }
  parts.push_back(slice(a, i, start, a.shape()[i]));
  return parts;
}

std::vector<Array> split(const Operand& x, int n, int axis) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  const int64_t extent =
      a.shape()[static_cast<int>(normalize_axis("split", axis, a.rank(), a.type()))];
  if (n <= 0 || extent % n != 0)
    trace_error_here(
        "[split] expected parts that divide axis {} of {}, got {}; array_split takes any "
        "number from 1 on",
        axis, to_string(a.type()), n);
  Dims indices;
  for (int i = 1; i < n; ++i) indices.push_back(extent / n * i);
  return split_at(a, indices, axis);
}

std::vector<Array> array_split(const Operand& x, int n, int axis) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  const int64_t extent =
      a.shape()[static_cast<int>(normalize_axis("array_split", axis, a.rank(), a.type()))];
  if (n <= 0) trace_error_here("[array_split] expected at least 1 part, got {}", n);
  Dims indices;
  for (int64_t i = 1; i < n; ++i) indices.push_back(extent / n * i + std::min(i, extent % n));
  return split_at(a, indices, axis);
}

std::vector<Array> unstack(const Operand& x, int axis) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  const auto i = static_cast<int>(normalize_axis("unstack", axis, a.rank(), a.type()));
  std::vector<Array> parts;
  for (int64_t k = 0; k < a.shape()[i]; ++k) parts.push_back(squeeze(slice(a, i, k, k + 1), i));
  return parts;
}

Array hstack(const std::vector<Array>& arrays, SourceLocation at) {
  const CallSiteScope site(at);
  const bool vectors = !arrays.empty() && arrays[0].rank() <= 1;
  std::vector<Array> parts;
  for (const Array& a : arrays) parts.push_back(a.rank() == 0 ? expand_dims(a, 0) : a);
  return concatenate(parts, vectors ? 0 : 1, at);
}

Array vstack(const std::vector<Array>& arrays, SourceLocation at) {
  const CallSiteScope site(at);
  std::vector<Array> parts;
  for (const Array& a : arrays) parts.push_back(a.rank() <= 1 ? reshape(a, {1, -1}) : a);
  return concatenate(parts, 0, at);
}

Array tile(const Operand& x, const Dims& repetitions) {
  const CallSiteScope site(x.at);
  Array a = to_array(x);
  Dims shape = a.shape().dims(), n = repetitions;
  for (const int64_t times : n)
    if (times < 0) trace_error_here("[tile] expected repetitions of 0 or more, got {}", times);
  shape.insert(shape.begin(), std::max<int64_t>(0, std::ssize(n) - std::ssize(shape)), 1);
  n.insert(n.begin(), std::max<int64_t>(0, std::ssize(shape) - std::ssize(n)), 1);
  Dims split_dims, wide, joined;
  for (size_t i = 0; i < shape.size(); ++i) {
    split_dims.insert(split_dims.end(), {1, shape[i]});
    wide.insert(wide.end(), {n[i], shape[i]});
    joined.push_back(n[i] * shape[i]);
  }
  return reshape(broadcast_to(reshape(a, split_dims), Shape(wide)), joined);
}

Array repeat(const Operand& x, int64_t n, std::optional<int> axis) {
  const CallSiteScope site(x.at);
  const Array a = axis ? to_array(x) : ravel(x);
  const int64_t i = normalize_axis("repeat", axis.value_or(0), a.rank(), a.type());
  if (n < 0) trace_error_here("[repeat] expected repetitions of 0 or more, got {}", n);
  Dims wide = a.shape().dims(), joined = wide;
  wide.insert(wide.begin() + i + 1, n);
  joined[static_cast<size_t>(i)] *= n;
  return reshape(broadcast_to(expand_dims(a, i + 1), Shape(wide)), joined);
}

Array repeat(const Operand& x, const Dims& counts, std::optional<int> axis) {
  const CallSiteScope site(x.at);
  const Array a = axis ? to_array(x) : ravel(x);
  const auto i = static_cast<int>(normalize_axis("repeat", axis.value_or(0), a.rank(), a.type()));
  if (static_cast<int64_t>(counts.size()) != a.shape()[i])
    trace_error_here("[repeat] expected a count for each element, got {} for axis {} of {}",
                     counts.size(), i, to_string(a.type()));
  std::vector<int64_t> sources;
  for (size_t k = 0; k < counts.size(); ++k) {
    if (counts[k] < 0)
      trace_error_here("[repeat] expected repetitions of 0 or more, got {}", counts[k]);
    sources.insert(sources.end(), static_cast<size_t>(counts[k]), static_cast<int64_t>(k));
  }
  return sources.empty() ? slice(a, i, 0, 0) : take_static(a, i, sources);
}

Array roll(const Operand& x, int64_t shift) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  return reshape(roll(ravel(a), shift, 0), a.shape().dims());
}

Array roll(const Operand& x, const Dims& shifts, const Dims& axes) {
  const CallSiteScope site(x.at);
  if (shifts.size() != axes.size())
    trace_error_here("[roll] expected a shift for each axis, got {} for {} axes", shifts.size(),
                     axes.size());
  Array a = to_array(x);
  for (size_t i = 0; i < axes.size(); ++i) a = roll(a, shifts[i], static_cast<int>(axes[i]));
  return a;
}

Array roll(const Operand& x, int64_t shift, int axis) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  const auto i = static_cast<int>(normalize_axis("roll", axis, a.rank(), a.type()));
  const int64_t extent = a.shape()[i];
  if (extent == 0 || shift % extent == 0) return a;
  const int64_t by = ((shift % extent) + extent) % extent;
  return concatenate({slice(a, i, extent - by, extent), slice(a, i, 0, extent - by)}, i);
}

Array dynamic_slice(const Operand& x, const std::vector<Array>& starts, const Dims& sizes) {
  const CallSiteScope site(x.at);
  std::vector<Array> operands = {to_array(x)};
  for (Array& s : as_starts("dynamic_slice", operands[0], starts)) operands.push_back(s);
  return record(OpKind::kDynamicSlice, ShapeParams{Shape(sizes)}, operands).front();
}

Array dynamic_update_slice(const Operand& x, const Operand& update,
                           const std::vector<Array>& starts) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  std::vector<Array> operands = {a, to_array(update, {a.dtype(), a.type().weak})};
  for (Array& s : as_starts("dynamic_update_slice", a, starts)) operands.push_back(s);
  return record(OpKind::kDynamicUpdateSlice, NoParams{}, operands).front();
}

}  // namespace stow
