// Slices and indexing: the third part of shaping.h.
#include "stowage/api/indexing.h"

#include <algorithm>
#include <limits>

#include "stowage/api/math.h"
#include "stowage/api/math_internal.h"
#include "stowage/api/reduce.h"
#include "stowage/core/scalar.h"

namespace stow {

Array resolve_negative(const Array& indices, int64_t extent) {
  if (is_unsigned_int(indices.dtype())) return indices;
  return where(indices < 0, indices + extent, indices);
}

AlongAxisGather::AlongAxisGather(const Shape& x, const Shape& indices, int64_t axis) {
  params.start_index_map = {axis};
  for (int k = 0; k < x.rank(); ++k) {
    const bool whole = k != axis && indices[k] == 1;
    params.slice_sizes.push_back(whole ? x[k] : 1);
    if (whole) {
      params.offset_axes.push_back(k);
      continue;
    }
    params.collapsed_axes.push_back(k);
    if (k != axis && x[k] != 1) {  // else its only element is broadcast
      params.batch_axes.push_back(k);
      params.index_batch_axes.push_back(std::ssize(vectors));
    }
    vectors.push_back(indices[k]);
  }
  vectors.push_back(1);
}

namespace {

// NumPy's clamping of a range of an axis.
struct Resolved {
  int64_t start, stop, step;
};
Resolved resolve(std::string_view name, const Range& r, int64_t extent) {
  if (r.step == 0) trace_error_here("[{}] expected a step other than 0", name);
  const bool down = r.step < 0;
  const int64_t low = down ? -1 : 0, high = down ? extent - 1 : extent;
  auto place = [&](std::optional<int64_t> i, int64_t otherwise) {
    if (!i) return otherwise;
    return std::clamp(*i < 0 ? *i + extent : *i, low, high);
  };
  return {place(r.start, down ? high : low), place(r.stop, down ? low : high), r.step};
}

// A slice with positive steps, then axes to be reversed.
void resolve_ranges(std::string_view name, const Array& x, const std::vector<Range>& ranges,
                    SliceParams& p, Dims& reversed) {
  for (int i = 0; i < x.rank(); ++i) {
    Resolved r = resolve(name, ranges[static_cast<size_t>(i)], x.shape()[i]);
    if (r.step < 0) {  // the same elements from the other end
      const int64_t n = std::max<int64_t>(0, (r.start - r.stop - r.step - 1) / -r.step);
      reversed.push_back(i);
      r = {n ? r.start + (n - 1) * r.step : 0, n ? r.start + 1 : 0, -r.step};
    }
    r.stop = std::max(r.start, r.stop);
    if (r.stop == r.start) r.step = 1;
    p.start.push_back(r.start);
    p.limit.push_back(r.stop);
    p.stride.push_back(r.step);
  }
}

Array take_slice_of(const Array& x, const SliceParams& p, const Dims& reversed) {
  bool whole = true;
  for (size_t i = 0; i < p.start.size(); ++i)
    whole = whole && p.start[i] == 0 && p.limit[i] == x.shape()[static_cast<int>(i)] &&
            p.stride[i] == 1;
  const Array cut = whole ? x : record1(OpKind::kSlice, p, {x});
  return reversed.empty() ? cut : record1(OpKind::kReverse, AxesParams{reversed}, {cut});
}

// Indices as `mode` has them; gather clamps what is still out of range.
Array resolve_indices(const Array& indices, int64_t extent, IndexMode mode) {
  switch (mode) {
    case IndexMode::kFill:
      return resolve_negative(indices, extent);
    case IndexMode::kClip:
      return indices;
    case IndexMode::kWrap:
      return extent == 0 ? indices : remainder(indices, extent);
  }
  return indices;
}

// The value that is read for a place out of range.
ScalarValue what_fills(const char* name, const Array& x, IndexMode mode,
                       const std::optional<ScalarValue>& fill_value) {
  if (fill_value && mode != IndexMode::kFill)
    trace_error_here("[{}] a fill_value has no effect in this mode; set kFill or leave it out",
                     name);
  return fill_value.value_or(out_of_range_value(x.dtype()));
}

// The last start of each component of an index vector at which its window lies within.
Array last_starts(const Array& indices, const Array& x, const GatherParams& p) {
  std::vector<int64_t> last;
  for (int64_t axis : p.start_index_map)
    last.push_back(std::clamp<int64_t>(
        x.shape()[static_cast<int>(axis)] - p.slice_sizes[static_cast<size_t>(axis)], 0,
        max_int_value(indices.dtype())));
  const Shape shape{static_cast<int64_t>(last.size())};
  return Array::from(std::span<const int64_t>(last), shape, indices.dtype());
}

// Windows of x by these index vectors, those out of range filled in mode kFill.
Array read_along(const Array& x, const Array& vectors, const GatherParams& p, IndexMode mode,
                 const ScalarValue& filling) {
  if (mode != IndexMode::kFill) return record1(OpKind::kGather, p, {x, vectors});
  return record1(OpKind::kGather, p, {x, vectors, scalar_constant(filling, x.dtype())});
}

}  // namespace

ScalarValue out_of_range_value(DType dtype) {
  if (is_float(dtype)) return std::numeric_limits<double>::quiet_NaN();
  if (dtype == DType::kBool) return true;
  if (dtype == DType::kU64) return std::numeric_limits<uint64_t>::max();
  return is_unsigned_int(dtype) ? max_int_value(dtype) : min_int_value(dtype);
}

Array clamp_starts(const Array& indices, const Array& x, const GatherParams& p) {
  return maximum(minimum(indices, last_starts(indices, x, p)), 0);
}

Array fill_out_of_bounds(const Array& read, const Array& indices, const Array& x,
                         const GatherParams& p, const ScalarValue& value) {
  const Array within = all(logical_and(indices >= 0, indices <= last_starts(indices, x, p)), -1);
  // One value an index vector, spread over the axes of its window.
  Dims spread(static_cast<size_t>(read.rank()), 1);
  int next = 0;
  for (int64_t k = 0; k < read.rank(); ++k)
    if (std::find(p.offset_axes.begin(), p.offset_axes.end(), k) == p.offset_axes.end())
      spread[static_cast<size_t>(k)] = within.shape()[next++];
  return where(reshape(within, spread), read, scalar_constant(value, read.dtype()));
}

Array slice(const Operand& x, int axis, int64_t start, int64_t stop, int64_t step) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  std::vector<Range> ranges(static_cast<size_t>(a.rank()));
  ranges[static_cast<size_t>(normalize_axis("slice", axis, a.rank(), a.type()))] = {start, stop,
                                                                                    step};
  SliceParams p;
  Dims reversed;
  resolve_ranges("slice", a, ranges, p, reversed);
  return take_slice_of(a, p, reversed);
}

Array take(const Operand& x, const Operand& indices, int axis, IndexMode mode,
           const std::optional<ScalarValue>& fill_value) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  const int64_t at = normalize_axis("take", axis, a.rank(), a.type());
  const int64_t extent = a.shape()[static_cast<int>(at)];
  const ScalarValue filling = what_fills("take", a, mode, fill_value);
  const Array given = to_indices("take", "indices", indices);
  if (extent == 0 && given.size() > 0 && mode != IndexMode::kFill)
    trace_error_here("[take] axis {} of {} is empty", axis, to_string(a.type()));
  Dims dims = a.shape().dims();
  dims.erase(dims.begin() + at);
  dims.insert(dims.begin() + at, given.shape().begin(), given.shape().end());
  if (extent == 0) return full(Shape(dims), filling, a.dtype());
  GatherParams p;
  p.collapsed_axes = p.start_index_map = {at};
  p.slice_sizes = a.shape().dims();
  p.slice_sizes[static_cast<size_t>(at)] = 1;
  for (int64_t k = 0; k < a.rank() - 1; ++k) p.offset_axes.push_back(k < at ? k : k + given.rank());
  return run_as_one("take", [&] {
    const Array i = resolve_indices(given, extent, mode);
    return read_along(a, expand_dims(i, i.rank()), p, mode, filling);
  });
}

Array take_flat(const Operand& x, const Operand& indices, IndexMode mode,
                const std::optional<ScalarValue>& fill_value) {
  const CallSiteScope site(x.at);
  return take(ravel(x), indices, 0, mode, fill_value);
}

Array take_along_axis(const Operand& x, const Operand& indices, int axis, IndexMode mode,
                      const std::optional<ScalarValue>& fill_value) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x), given = to_indices("take_along_axis", "indices", indices);
  if (a.rank() != given.rank())
    trace_error_here("[take_along_axis] expected indices of rank {} for {}, got {}", a.rank(),
                     to_string(a.type()), to_string(given.type()));
  const auto at = static_cast<int>(normalize_axis("take_along_axis", axis, a.rank(), a.type()));
  const int64_t extent = a.shape()[at];
  const ScalarValue filling = what_fills("take_along_axis", a, mode, fill_value);
  Dims dims = a.shape().dims();
  dims[static_cast<size_t>(at)] = 1;
  const ArrayType others{given.dtype(), Shape(dims)};
  const Shape shape = broadcast_shapes("take_along_axis", given.type(), others);
  if (a.size() == 0) {
    if (shape.elems() > 0 && mode != IndexMode::kFill)
      trace_error_here("[take_along_axis] axis {} of {} is empty", axis, to_string(a.type()));
    return full(shape, filling, a.dtype());
  }
  return run_as_one("take_along_axis", [&] {
    // Unlike take, JAX counts negative indices from the end here before it clips.
    const Array i = mode == IndexMode::kClip ? resolve_negative(given, extent)
                                             : resolve_indices(given, extent, mode);
    const AlongAxisGather p(a.shape(), given.shape(), at);
    return read_along(a, stow::reshape(i, p.vectors), p.params, mode, filling);
  });
}

ResolvedIndex::ResolvedIndex(const Array& x, std::span<const Index> indices) {
  using Kind = Index::Kind;
  int named = 0, ellipses = 0;
  for (const Index& i : indices) {
    named += i.kind == Kind::kInteger || i.kind == Kind::kRange || i.kind == Kind::kArray;
    ellipses += i.kind == Kind::kEllipsis;
    has_arrays = has_arrays || i.kind == Kind::kArray;
  }
  if (named > x.rank() || ellipses > 1)
    trace_error_here("[index] expected at most {} axes and 1 ellipsis for {}, got {} and {}",
                     x.rank(), to_string(x.type()), named, ellipses);
  // One entry an axis of x or new axis: a missing ellipsis stands at the end.
  std::vector<Index> all;
  const auto fill = [&] {
    for (int i = 0; i < x.rank() - named; ++i) all.emplace_back(Kind::kRange);
  };
  for (const Index& i : indices) i.kind == Kind::kEllipsis ? fill() : all.push_back(i);
  if (ellipses == 0) fill();

  std::vector<Range> ranges(static_cast<size_t>(x.rank()));
  std::vector<Array> components;
  Dims by_array;  // axes that an array, or with arrays an integer, takes
  int axis = 0;
  for (const Index& i : all) {
    if (i.kind == Kind::kNewAxis) continue;
    const int64_t extent = x.shape()[axis];
    if (i.kind == Kind::kRange) ranges[static_cast<size_t>(axis)] = i.range;
    if (i.kind == Kind::kInteger) {
      if (i.integer < -extent || i.integer >= extent)
        trace_error_here("[index] index {} is out of range for axis {} of {}", i.integer, axis,
                         to_string(x.type()));
      const int64_t k = i.integer < 0 ? i.integer + extent : i.integer;
      if (has_arrays) {
        components.push_back(
            scalar_constant(k, extent > (int64_t{1} << 31) ? DType::kI64 : DType::kI32));
      } else {
        ranges[static_cast<size_t>(axis)] = {k, k + 1, 1};
      }
    }
    if (i.kind == Kind::kArray)
      components.push_back(resolve_negative(to_indices("index", "an index", i.array), extent));
    if (i.kind == Kind::kArray || (has_arrays && i.kind == Kind::kInteger))
      by_array.push_back(axis);
    ++axis;
  }
  resolve_ranges("index", x, ranges, slice, reversed);
  Dims dims;
  for (size_t a = 0; a < slice.start.size(); ++a)
    dims.push_back((slice.limit[a] - slice.start[a] + slice.stride[a] - 1) / slice.stride[a]);
  cut = Shape(dims);

  // Finds the place of the arrays' axes in the result: that of the first array, or the front.
  Shape spread;
  bool together = true;
  size_t first = all.size(), last = 0;
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i].kind == Kind::kArray || (has_arrays && all[i].kind == Kind::kInteger)) {
      first = std::min(first, i);
      last = i;
    }
  if (has_arrays) {
    for (size_t i = first; i <= last; ++i)
      together = together && all[i].kind != Kind::kRange && all[i].kind != Kind::kNewAxis;
    ArrayType joint = components[0].type();
    for (const Array& c : components)
      joint = {promote({joint.dtype}, {c.dtype()}).dtype,
               broadcast_shapes("index", joint, c.type())};
    if (is_float(joint.dtype)) joint.dtype = DType::kI64;
    spread = joint.shape;
    for (Array& c : components)
      c = expand_dims(broadcast_array(convert_to(c, joint.dtype), spread), spread.rank());
    vectors = components.size() == 1 ? components[0] : concatenate(components, -1);
  }
  Dims read_dims, result_dims;
  const auto put_arrays = [&] {
    for (int64_t extent : spread) {
      read_dims.push_back(extent);
      result_dims.push_back(extent);
    }
  };
  if (has_arrays && !together) put_arrays();
  axis = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (has_arrays && together && i == first) put_arrays();
    if (all[i].kind == Kind::kNewAxis) {
      result_dims.push_back(1);
      continue;
    }
    if (all[i].kind == Kind::kRange) {
      gather.offset_axes.push_back(static_cast<int64_t>(read_dims.size()));
      read_dims.push_back(cut[axis]);
      result_dims.push_back(cut[axis]);
    }
    ++axis;
  }
  gather.collapsed_axes = gather.start_index_map = by_array;
  gather.slice_sizes = cut.dims();
  for (int64_t a : by_array) gather.slice_sizes[static_cast<size_t>(a)] = 1;
  read = Shape(read_dims);
  result = Shape(result_dims);
}

Array ResolvedIndex::take_slice(const Array& x) const {
  return take_slice_of(x, slice, reversed);
}

Array Array::slice(int axis, int64_t start, int64_t stop, int64_t step, SourceLocation at) const {
  return stow::slice(Operand(*this, at.file, at.line), axis, start, stop, step);
}

Array Array::operator[](ElementNumber i) const {
  return index({i.number}, i.at);
}

Array Array::index(std::initializer_list<Index> indices, SourceLocation at) const {
  const CallSiteScope site(at);
  bool arrays = false;
  for (const Index& i : indices) arrays = arrays || i.kind == Index::Kind::kArray;
  const auto run = [&] {
    const ResolvedIndex places(*this, std::span(indices.begin(), indices.size()));
    const Array part = places.take_slice(*this);
    if (!places.has_arrays) return stow::reshape(part, places.result.dims());
    if (places.result.elems() == 0) return zeros(places.result, part.dtype());
    for (int64_t axis : places.gather.collapsed_axes)
      if (part.shape()[static_cast<int>(axis)] == 0)
        trace_error_here("[index] axis {} of {} is empty", axis, to_string(type()));
    const Array read = record1(OpKind::kGather, places.gather, {part, places.vectors});
    return stow::reshape(read, places.result.dims());
  };
  return arrays ? run_as_one("index", run) : run();
}

Array Array::astype(DType dtype, SourceLocation at) const {
  return stow::astype(Operand(*this, at.file, at.line), dtype);
}
Array Array::reshape(const Dims& dims, SourceLocation at) const {
  return stow::reshape(Operand(*this, at.file, at.line), dims);
}

}  // namespace stow
