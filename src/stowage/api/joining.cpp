// Joining, cutting and indexing: the second half of shaping.h.
#include <algorithm>

#include "stowage/api/indexing.h"
#include "stowage/api/math.h"
#include "stowage/api/math_internal.h"

namespace stow {
namespace {

// Arrays of one dtype, by promotion.
std::vector<Array> promoted(std::string_view name, const std::vector<Array>& arrays) {
  if (arrays.empty()) fail_here("[{}] no arrays given", name);
  WeakDType dtype = Operand(arrays[0]).dtype();
  for (const Array& a : arrays) dtype = promote(dtype, Operand(a).dtype());
  std::vector<Array> result;
  for (const Array& a : arrays) result.push_back(to_array(a, dtype));
  return result;
}

// NumPy's clamping of a range of an axis.
struct Resolved {
  int64_t start, stop, step;
};
Resolved resolve(std::string_view name, const Range& r, int64_t extent) {
  if (r.step == 0) fail_here("[{}] the step is zero", name);
  const bool down = r.step < 0;
  const int64_t low = down ? -1 : 0, high = down ? extent - 1 : extent;
  auto place = [&](std::optional<int64_t> i, int64_t otherwise) {
    if (!i) return otherwise;
    return std::clamp(*i < 0 ? *i + extent : *i, low, high);
  };
  return {place(r.start, down ? high : low), place(r.stop, down ? low : high), r.step};
}

Array slice_ranges(std::string_view name, const Array& x, const std::vector<Range>& ranges) {
  SliceParams p;
  Dims reversed;
  bool whole = true;
  for (int i = 0; i < x.rank(); ++i) {
    const int64_t extent = x.shape()[i];
    Resolved r = resolve(name, ranges[static_cast<size_t>(i)], extent);
    if (r.step < 0) {  // the same elements from the other end
      const int64_t n = std::max<int64_t>(0, (r.start - r.stop - r.step - 1) / -r.step);
      reversed.push_back(i);
      r = {n ? r.start + (n - 1) * r.step : 0, n ? r.start + 1 : 0, -r.step};
    }
    r.stop = std::max(r.start, r.stop);
    if (r.stop == r.start) r.step = 1;
    whole = whole && r.start == 0 && r.stop == extent && r.step == 1;
    p.start.push_back(r.start);
    p.limit.push_back(r.stop);
    p.stride.push_back(r.step);
  }
  const Array cut = whole ? x : record1(OpKind::kSlice, p, {x});
  return reversed.empty() ? cut : record1(OpKind::kReverse, AxesParams{reversed}, {cut});
}

std::vector<Array> as_starts(std::string_view name, const Array& x,
                             const std::vector<Array>& starts) {
  if (static_cast<int>(starts.size()) != x.rank())
    fail_here("[{}] {} starts given for {}", name, starts.size(), to_string(x.type()));
  for (const Array& s : starts)
    if (s.rank() != 0 || !is_integer(s.dtype()))
      fail_here("[{}] a start must be an integer scalar, got {}", name, to_string(s.type()));
  return starts.empty() ? starts : promoted(name, starts);
}

// Negative indices from the end.
Array wrap_indices(const Array& indices, int64_t extent) {
  if (is_unsigned_int(indices.dtype())) return indices;
  return where(indices < 0, indices + extent, indices);
}

}  // namespace

Array concatenate(const std::vector<Array>& arrays, int axis, SourceLocation at) {
  const Site site(at);
  const std::vector<Array> parts = promoted("concatenate", arrays);
  const int64_t a = check_axis("concatenate", axis, parts[0].rank(), parts[0].type());
  return record(OpKind::kConcatenate, AxisParams{a}, parts).front();
}

Array stack(const std::vector<Array>& arrays, int axis, SourceLocation at) {
  const Site site(at);
  std::vector<Array> parts = promoted("stack", arrays);
  for (Array& part : parts) {
    if (!(part.shape() == parts[0].shape()) && part.rank() == arrays[0].rank())
      fail_here("[stack] {} and {} differ in shape", to_string(arrays[0].type()),
                to_string(part.type()));
  }
  const int rank = parts[0].rank();
  const int64_t a = check_axis("stack", axis, rank + 1, parts[0].type());
  for (Array& part : parts) part = expand_dims(part, a);
  return record(OpKind::kConcatenate, AxisParams{a}, parts).front();
}

std::vector<Array> split_at(const Operand& x, const Dims& indices, int axis) {
  const Site site(x.at);
  const Array a = to_array(x);
  const auto i = static_cast<int>(check_axis("split_at", axis, a.rank(), a.type()));
  std::vector<Array> parts;
  int64_t start = 0;
  for (int64_t stop : indices) {
    if (stop < start || stop > a.shape()[i])
      fail_here("[split_at] indices must rise and lie within axis {} of {}, got {}", axis,
                to_string(a.type()), stop);
    parts.push_back(slice(a, i, start, stop));
    start = stop;
  }
  parts.push_back(slice(a, i, start, a.shape()[i]));
  return parts;
}

std::vector<Array> split(const Operand& x, int n, int axis) {
  const Site site(x.at);
  const Array a = to_array(x);
  const int64_t extent = a.shape()[static_cast<int>(check_axis("split", axis, a.rank(), a.type()))];
  if (n <= 0 || extent % n != 0)
    fail_here("[split] axis {} of {} does not divide into {} parts", axis, to_string(a.type()), n);
  Dims indices;
  for (int i = 1; i < n; ++i) indices.push_back(extent / n * i);
  return split_at(a, indices, axis);
}

Array tile(const Operand& x, const Dims& repetitions) {
  const Site site(x.at);
  Array a = to_array(x);
  Dims shape = a.shape().dims(), n = repetitions;
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

Array repeat(const Operand& x, int64_t n, int axis) {
  const Site site(x.at);
  const Array a = to_array(x);
  const int64_t i = check_axis("repeat", axis, a.rank(), a.type());
  Dims wide = a.shape().dims(), joined = wide;
  wide.insert(wide.begin() + i + 1, n);
  joined[static_cast<size_t>(i)] *= n;
  return reshape(broadcast_to(expand_dims(a, i + 1), Shape(wide)), joined);
}

Array roll(const Operand& x, int64_t shift, int axis) {
  const Site site(x.at);
  const Array a = to_array(x);
  const auto i = static_cast<int>(check_axis("roll", axis, a.rank(), a.type()));
  const int64_t extent = a.shape()[i];
  if (extent == 0 || shift % extent == 0) return a;
  const int64_t by = ((shift % extent) + extent) % extent;
  return concatenate({slice(a, i, extent - by, extent), slice(a, i, 0, extent - by)}, i);
}

Array slice(const Operand& x, int axis, int64_t start, int64_t stop, int64_t step) {
  const Site site(x.at);
  const Array a = to_array(x);
  std::vector<Range> ranges(static_cast<size_t>(a.rank()));
  ranges[static_cast<size_t>(check_axis("slice", axis, a.rank(), a.type()))] = {start, stop, step};
  return slice_ranges("slice", a, ranges);
}

Array dynamic_slice(const Operand& x, const std::vector<Array>& starts, const Dims& sizes) {
  const Site site(x.at);
  std::vector<Array> operands = {to_array(x)};
  for (Array& s : as_starts("dynamic_slice", operands[0], starts)) operands.push_back(s);
  return record(OpKind::kDynamicSlice, ShapeParams{Shape(sizes)}, operands).front();
}

Array dynamic_update_slice(const Operand& x, const Operand& update,
                           const std::vector<Array>& starts) {
  const Site site(x.at);
  const Array a = to_array(x);
  std::vector<Array> operands = {a, to_array(update, {a.dtype(), a.type().weak})};
  for (Array& s : as_starts("dynamic_update_slice", a, starts)) operands.push_back(s);
  return record(OpKind::kDynamicUpdateSlice, NoParams{}, operands).front();
}

Array take(const Operand& x, const Operand& indices, int axis) {
  const Site site(x.at);
  const Array a = to_array(x);
  const int64_t at = check_axis("take", axis, a.rank(), a.type());
  const Array i =
      wrap_indices(to_indices("take", "indices", indices), a.shape()[static_cast<int>(at)]);
  GatherParams p;
  p.collapsed_axes = p.start_index_map = {at};
  p.slice_sizes = a.shape().dims();
  p.slice_sizes[static_cast<size_t>(at)] = 1;
  for (int64_t k = 0; k < a.rank() - 1; ++k) p.offset_axes.push_back(k < at ? k : k + i.rank());
  return record1(OpKind::kGather, p, {a, expand_dims(i, i.rank())});
}

Array take_along_axis(const Operand& x, const Operand& indices, int axis) {
  const Site site(x.at);
  const Array a = to_array(x), given = to_indices("take_along_axis", "indices", indices);
  if (a.rank() != given.rank())
    fail_here("[take_along_axis] {} and indices {} differ in rank", to_string(a.type()),
              to_string(given.type()));
  const auto at = static_cast<int>(check_axis("take_along_axis", axis, a.rank(), a.type()));
  Dims dims = a.shape().dims();
  dims[static_cast<size_t>(at)] = 1;
  const ArrayType others{given.dtype(), Shape(dims)};
  const Shape shape = broadcast_shapes("take_along_axis", given.type(), others);
  const Array chosen = broadcast_array(wrap_indices(given, a.shape()[at]), shape);
  std::vector<Array> components;
  GatherParams p;
  for (int k = 0; k < a.rank(); ++k) {
    const bool one = k != at && a.shape()[k] == 1;  // broadcast: its only element
    components.push_back(k == at ? chosen
                         : one   ? zeros(shape, given.dtype())
                                 : iota(shape, k, given.dtype()));
    p.collapsed_axes.push_back(k);
    p.start_index_map.push_back(k);
    p.slice_sizes.push_back(1);
  }
  return record1(OpKind::kGather, p, {a, stack(components, -1)});
}

Array Array::slice(int axis, int64_t start, int64_t stop, int64_t step, SourceLocation at) const {
  return stow::slice(Operand(*this, at.file, at.line), axis, start, stop, step);
}

Array Array::operator[](int64_t i) const {
  return index({i}, SourceLocation{});
}

Array Array::index(std::initializer_list<Index> indices, SourceLocation at) const {
  const Site site(at);
  int named = 0, ellipses = 0;
  for (const Index& i : indices) {
    named += i.kind == Index::Kind::kInteger || i.kind == Index::Kind::kRange;
    ellipses += i.kind == Index::Kind::kEllipsis;
  }
  if (named > rank() || ellipses > 1)
    fail_here("[index] {} axes and {} ellipses for {}", named, ellipses, to_string(type()));
  std::vector<Range> ranges(static_cast<size_t>(rank()));
  std::vector<Index::Kind>
      result_axes;  // kRange: the next axis of x; kInteger: one that is dropped
  int axis = 0;
  for (const Index& i : indices) {
    switch (i.kind) {
      case Index::Kind::kNewAxis:
        result_axes.push_back(i.kind);
        continue;
      case Index::Kind::kEllipsis:
        axis += rank() - named;
        result_axes.insert(result_axes.end(), static_cast<size_t>(rank() - named),
                           Index::Kind::kRange);
        continue;
      case Index::Kind::kRange:
        ranges[static_cast<size_t>(axis)] = i.range;
        break;
      case Index::Kind::kInteger: {
        const int64_t extent = shape()[axis];
        if (i.integer < -extent || i.integer >= extent)
          fail_here("[index] index {} is out of range for axis {} of {}", i.integer, axis,
                    to_string(type()));
        const int64_t k = i.integer < 0 ? i.integer + extent : i.integer;
        ranges[static_cast<size_t>(axis)] = {k, k + 1, 1};
      }
    }
    result_axes.push_back(i.kind);
    ++axis;
  }
  const Array cut = slice_ranges("index", *this, ranges);
  Dims dims;
  axis = 0;
  for (Index::Kind kind : result_axes) {
    if (kind == Index::Kind::kNewAxis)
      dims.push_back(1);
    else if (kind == Index::Kind::kRange)
      dims.push_back(cut.shape()[axis++]);
    else
      ++axis;
  }
  for (; axis < cut.rank(); ++axis) dims.push_back(cut.shape()[axis]);
  return stow::reshape(cut, dims);
}

Array Array::astype(DType dtype, SourceLocation at) const {
  return stow::astype(Operand(*this, at.file, at.line), dtype);
}
Array Array::reshape(const Dims& dims, SourceLocation at) const {
  return stow::reshape(Operand(*this, at.file, at.line), dims);
}

}  // namespace stow
