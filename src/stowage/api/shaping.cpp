#include "stowage/api/shaping.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "stowage/api/indexing.h"
#include "stowage/api/math.h"
#include "stowage/api/math_internal.h"

namespace stow {

Dims normalize_axes(std::string_view name, const Axes& axes, const ArrayType& type, bool all) {
  const int rank = type.shape.rank();
  Dims list;
  if (!axes.given()) {
    if (all)
      for (int i = 0; i < rank; ++i) list.push_back(i);
    return list;
  }
  for (int64_t axis : axes.list()) {
    const int64_t a = normalize_axis(name, axis, rank, type);
    if (std::find(list.begin(), list.end(), a) != list.end())
      trace_error_here("[{}] axis {} is given twice for {}", name, axis, to_string(type));
    list.push_back(a);
  }
  return list;
}

Array full(const Shape& shape, ScalarValue value, std::optional<DType> dtype, SourceLocation at) {
  const CallSiteScope site(at);
  const WeakDType type{dtype.value_or(value.dtype), !dtype && value.dtype != DType::kBool};
  return broadcast_array(scalar_constant(value, type), shape);
}
Array zeros(const Shape& shape, DType dtype, SourceLocation at) {
  return full(shape, 0, dtype, at);
}
Array ones(const Shape& shape, DType dtype, SourceLocation at) {
  return full(shape, 1, dtype, at);
}
Array full_like(const Operand& x, ScalarValue value, std::optional<DType> dtype) {
  const CallSiteScope site(x.at);
  const WeakDType type = dtype ? WeakDType{*dtype, false} : x.dtype();
  return broadcast_array(scalar_constant(value, type), x.shape());
}
Array zeros_like(const Operand& x) {
  return zeros_like(x, std::nullopt);
}
Array ones_like(const Operand& x) {
  return ones_like(x, std::nullopt);
}
Array zeros_like(const Operand& x, std::optional<DType> dtype) {
  return full_like(x, 0, dtype);
}
Array ones_like(const Operand& x, std::optional<DType> dtype) {
  return full_like(x, 1, dtype);
}

Array iota(const Shape& shape, int axis, DType dtype, SourceLocation at) {
  const CallSiteScope site(at);
  const ArrayType type{dtype, shape};
  return record1(OpKind::kIota,
                 IotaParams{type, normalize_axis("iota", axis, shape.rank(), type)}, {});
}

Array arange(int64_t start, int64_t stop, int64_t step, DType dtype, SourceLocation at) {
  const CallSiteScope site(at);
  if (step == 0) trace_error_here("[arange] the step is zero");
  const int64_t span = step > 0 ? stop - start : start - stop, by = step > 0 ? step : -step;
  Array x = iota({std::max<int64_t>(0, (span + by - 1) / by)}, 0, dtype);
  if (step != 1) x = x * scalar_constant(step, dtype);
  return start == 0 ? x : x + scalar_constant(start, dtype);
}
Array arange(int64_t stop, DType dtype, SourceLocation at) {
  return arange(0, stop, 1, dtype, at);
}

Array arange_of_floats(double start, double stop, double step, DType dtype, SourceLocation at) {
  const CallSiteScope site(at);
  const double count = std::ceil((stop - start) / step);
  if (!(std::abs(count) < 0x1p53))
    trace_error_here("[arange] expected fewer than 2^53 numbers, got those from {} to {} by {}",
                     start, stop, step);
  return run_as_one("arange", [&] {
    const auto n = static_cast<int64_t>(std::max(0.0, count));
    return astype(iota({n}, 0, DType::kF64) * step + start, dtype);
  });
}

Array linspace(double start, double stop, int64_t n, bool endpoint, DType dtype,
               SourceLocation at) {
  const CallSiteScope site(at);
  if (n < 0) trace_error_here("[linspace] expected 0 numbers or more, got {}", n);
  const int64_t steps = endpoint ? n - 1 : n;
  return run_as_one("linspace", [&] {
    const DType wide = dtype_bytes(dtype) == 8 ? DType::kF64 : DType::kF32;
    Array x = full({n}, start, wide);
    if (steps > 0) {
      // Weights of both ends, so that the last number is `stop` itself.
      const Array i = iota({n}, 0, wide) / static_cast<double>(steps);
      x = start * (1 - i) + stop * i;
      if (endpoint) x = where(iota({n}, 0) == n - 1, full({n}, stop, wide), x);
    }
    return convert_to(is_integer(dtype) ? floor(x) : x, dtype);
  });
}

std::vector<Array> meshgrid(const std::vector<Array>& vectors, bool ij, SourceLocation at) {
  const CallSiteScope site(at);
  const size_t rank = vectors.size();
  Dims extents;
  for (const Array& v : vectors) {
    if (v.rank() > 1) trace_error_here("[meshgrid] expected vectors, got {}", to_string(v.type()));
    extents.push_back(v.size());
  }
  std::vector<size_t> axis(rank);
  std::iota(axis.begin(), axis.end(), size_t{0});
  if (!ij && rank >= 2) std::swap(axis[0], axis[1]);
  Dims shape(rank);
  for (size_t i = 0; i < rank; ++i) shape[axis[i]] = extents[i];
  std::vector<Array> grids;
  for (size_t i = 0; i < rank; ++i) {
    Dims spread(rank, 1);
    spread[axis[i]] = extents[i];
    grids.push_back(broadcast_to(reshape(vectors[i], spread), Shape(shape)));
  }
  return grids;
}

Array eye(int64_t n, std::optional<int64_t> m, DType dtype, SourceLocation at) {
  const CallSiteScope site(at);
  const Shape shape{n, m.value_or(n)};
  return astype(iota(shape, 0) == iota(shape, 1), dtype);
}

Array reshape(const Operand& x, const Dims& dims) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  Dims result = dims;
  int64_t known = 1;
  std::optional<size_t> unknown;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] >= 0) {
      known *= dims[i];
    } else if (dims[i] == -1 && !unknown) {
      unknown = i;
    } else {
      trace_error_here(
          "[reshape] expected extents of 0 or more, and at most one of -1, got ({}) for {}",
          to_string(Shape(dims)), to_string(a.type()));
    }
  }
  if (unknown && known > 0) result[*unknown] = a.size() / known;
  if ((unknown && known == 0) || Shape(result).elems() != a.size())
    trace_error_here("[reshape] {} has {} elements and cannot be ({})", to_string(a.type()),
                     a.size(), to_string(Shape(dims)));
  if (a.shape().dims() == result) return a;
  return record1(OpKind::kReshape, ShapeParams{Shape(result)}, {a});
}

Array transpose(const Operand& x, const Axes& axes) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  Dims order = normalize_axes("transpose", axes, a.type(), true);
  if (!axes.given()) std::reverse(order.begin(), order.end());
  if (static_cast<int>(order.size()) != a.rank())
    trace_error_here("[transpose] expected {} axes for {}, got {}", a.rank(), to_string(a.type()),
                     order.size());
  if (std::is_sorted(order.begin(), order.end())) return a;
  return record1(OpKind::kTranspose, AxesParams{order}, {a});
}

Array swapaxes(const Operand& x, int a, int b) {
  const CallSiteScope site(x.at);
  const int rank = x.rank();
  const ArrayType type{x.dtype().dtype, x.shape()};
  Dims order(static_cast<size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[static_cast<size_t>(normalize_axis("swapaxes", a, rank, type))],
            order[static_cast<size_t>(normalize_axis("swapaxes", b, rank, type))]);
  return transpose(x, order);
}

Array moveaxis(const Operand& x, int source, int destination) {
  return moveaxis(x, Dims{source}, Dims{destination});
}

Array moveaxis(const Operand& x, const Dims& sources, const Dims& destinations) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  const Dims from = normalize_axes("moveaxis", sources, a.type(), false);
  const Dims to = normalize_axes("moveaxis", destinations, a.type(), false);
  if (from.size() != to.size())
    trace_error_here("[moveaxis] expected a place for each axis, got {} axes and {} places",
                     from.size(), to.size());
  Dims order(static_cast<size_t>(a.rank()), -1);
  for (size_t i = 0; i < from.size(); ++i) order[static_cast<size_t>(to[i])] = from[i];
  int64_t next = 0;
  for (int64_t& axis : order) {
    if (axis >= 0) continue;
    while (std::find(from.begin(), from.end(), next) != from.end()) ++next;
    axis = next++;
  }
  return transpose(a, order);
}

Array squeeze(const Operand& x, const Axes& axes) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  const Dims given = normalize_axes("squeeze", axes, a.type(), false);
  Dims dims;
  for (int i = 0; i < a.rank(); ++i) {
    const bool named = std::find(given.begin(), given.end(), i) != given.end();
    if (named && a.shape()[i] != 1)
      trace_error_here("[squeeze] axis {} of {} has extent {}, not 1", i, to_string(a.type()),
                       a.shape()[i]);
    if (axes.given() ? !named : a.shape()[i] != 1) dims.push_back(a.shape()[i]);
  }
  return reshape(a, dims);
}

Array expand_dims(const Operand& x, const Axes& axes) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  const int rank = a.rank() + static_cast<int>(axes.list().size());
  std::vector<bool> added(static_cast<size_t>(rank), false);
  for (int64_t axis : axes.list()) {
    const auto i = static_cast<size_t>(normalize_axis("expand_dims", axis, rank, a.type()));
    if (added[i]) trace_error_here("[expand_dims] axis {} is given twice", axis);
    added[i] = true;
  }
  Dims dims;
  for (int i = 0, from = 0; i < rank; ++i)
    dims.push_back(added[static_cast<size_t>(i)] ? 1 : a.shape()[from++]);
  return reshape(a, dims);
}

Array broadcast_to(const Operand& x, const Shape& shape) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  const ArrayType target{a.dtype(), shape};
  if (a.rank() > shape.rank() || !(broadcast_shapes("broadcast_to", a.type(), target) == shape))
    trace_error_here("[broadcast_to] {} does not broadcast to ({})", to_string(a.type()),
                     to_string(shape));
  return broadcast_array(a, shape);
}

Array ravel(const Operand& x) {
  return reshape(x, {-1});
}

Array flip(const Operand& x, const Axes& axes) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  Dims list = normalize_axes("flip", axes, a.type(), true);
  std::sort(list.begin(), list.end());
  return list.empty() ? a : record1(OpKind::kReverse, AxesParams{list}, {a});
}

Array pad_general(const Operand& x, const Operand& value, const Dims& low, const Dims& high,
                  const Dims& interior) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  return record1(OpKind::kPad, PadParams{low, high, interior},
                 {a, to_array(value, {a.dtype(), a.type().weak})});
}

Array pad(const Operand& x, const std::vector<PadWidth>& widths, const Operand& value) {
  const CallSiteScope site(x.at);
  Dims low, high;
  for (const PadWidth& w : widths) {
    if (w.before < 0 || w.after < 0)
      trace_error_here("[pad] negative width ({}, {}); pad_general takes those", w.before, w.after);
    low.push_back(w.before);
    high.push_back(w.after);
  }
  if (static_cast<int>(widths.size()) != x.rank())
    trace_error_here("[pad] expected two widths for each axis, got {} pairs for {}", widths.size(),
                     to_string(ArrayType{x.dtype().dtype, x.shape()}));
  return pad_general(x, value, low, high, Dims(widths.size(), 0));
}

Array tri(int64_t n, std::optional<int64_t> m, int64_t k, DType dtype, SourceLocation at) {
  const CallSiteScope site(at);
  const Shape shape{n, m.value_or(n)};
  return run_as_one("tri", [&] { return astype(iota(shape, 0) + k >= iota(shape, 1), dtype); });
}

Array diagonal(const Operand& x, int64_t k, int axis1, int axis2) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  const int64_t r = normalize_axis("diagonal", axis1, a.rank(), a.type());
  const int64_t c = normalize_axis("diagonal", axis2, a.rank(), a.type());
  if (r == c)
    trace_error_here("[diagonal] axis {} is given twice for {}", axis1, to_string(a.type()));
  Dims order;
  for (int64_t i = 0; i < a.rank(); ++i)
    if (i != r && i != c) order.push_back(i);
  order.insert(order.end(), {r, c});
  return run_as_one("diagonal", [&] {
    const Array t = transpose(a, order);
    const int64_t rows = t.dim(-2), cols = t.dim(-1);
    const int64_t first_row = std::max<int64_t>(-k, 0), first_col = std::max<int64_t>(k, 0);
    const int64_t n = std::max<int64_t>(0, std::min(rows - first_row, cols - first_col));
    Dims dims(t.shape().begin(), t.shape().end() - 2);
    if (n == 0)
      return zeros(Shape([&] {
                     dims.push_back(0);
                     return dims;
                   }()),
                   a.dtype());
    // Every (cols + 1)-th element of the rows laid out one after the other.
    dims.push_back(rows * cols);
    const Array flat = reshape(t, dims);
    const int64_t start = first_row * cols + first_col;
    return slice(flat, -1, start, start + (n - 1) * (cols + 1) + 1, cols + 1);
  });
}

Array diag(const Operand& x, int64_t k) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  if (a.rank() == 2) return diagonal(a, k);
  if (a.rank() != 1)
    trace_error_here("[diag] expected a vector or a matrix, got {}", to_string(a.type()));
  return run_as_one("diag", [&] {
    const int64_t by = k < 0 ? -k : k;
    const Shape shape{a.size() + by, a.size() + by};
    const int64_t before = std::max<int64_t>(k, 0), after = by - before;
    const Array row = pad(a, {{before, after}});
    return where(iota(shape, 0) + k == iota(shape, 1), row, zeros_like(row));
  });
}

Array tril(const Operand& x, int64_t k) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  if (a.rank() < 2) trace_error_here("[tril] {} has fewer than two axes", to_string(a.type()));
  const Shape square{a.dim(-2), a.dim(-1)};
  return where(iota(square, 0) + k >= iota(square, 1), a, zeros_like(a));
}

Array triu(const Operand& x, int64_t k) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  if (a.rank() < 2) trace_error_here("[triu] {} has fewer than two axes", to_string(a.type()));
  const Shape square{a.dim(-2), a.dim(-1)};
  return where(iota(square, 0) + k <= iota(square, 1), a, zeros_like(a));
}

}  // namespace stow
