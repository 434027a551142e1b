// The functions of names.h that create, move, index and multiply.
#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "stowage/api/at.h"
#include "stowage/api/indexing.h"
#include "stowage/api/linalg.h"
#include "stowage/api/math_internal.h"
#include "stowage/api/names.h"

namespace stow {
namespace {

// Places of [n, m] for which `keep(column - row)` holds.
template <typename Keep>
std::pair<Array, Array> places_where(int64_t n, int64_t m, Keep keep, SourceLocation at) {
  std::vector<int32_t> rows, columns;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < m; ++j)
      if (keep(j - i)) {
        rows.push_back(static_cast<int32_t>(i));
        columns.push_back(static_cast<int32_t>(j));
      }
  const Shape shape{static_cast<int64_t>(rows.size())};
  return {Array::from(rows, shape, DType::kI32, at), Array::from(columns, shape, DType::kI32, at)};
}

std::vector<Array> parts_along(const char* name, const Operand& x, int n, int axis) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  if (a.rank() <= axis)
    trace_error_here("[{}] expected an array with axis {}, got {}", name, axis,
                     to_string(a.type()));
  return split(a, n, axis);
}

// Starts of zeros but for one axis.
std::vector<Array> starts_along(const Array& x, int64_t axis, const Operand& start) {
  const Array given = to_array(start);
  std::vector<Array> starts(static_cast<size_t>(x.rank()), scalar_constant(0, given.dtype()));
  starts[static_cast<size_t>(axis)] = given;
  return starts;
}

enum class Combine { kSum, kProduct, kLargest, kSmallest };

Array segments(const char* name, const Operand& x, const Operand& ids, int64_t n, Combine how) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x), given = to_indices(name, "ids", ids);
  const Dims& whole = a.shape().dims();
  const Dims& lead = given.shape().dims();
  if (n < 0) trace_error_here("[{}] expected a number of segments of 0 or more, got {}", name, n);
  if (lead.size() > whole.size() || !std::equal(lead.begin(), lead.end(), whole.begin()))
    trace_error_here("[{}] expected ids of the leading axes of the array, got {} for {}", name,
                     to_string(given.type()), to_string(a.type()));
  Dims dims = {n};
  dims.insert(dims.end(), whole.begin() + given.rank(), whole.end());
  return run_as_one(name, [&] {
    // Negative ids do not count from the end here.
    const Array places = is_unsigned_int(given.dtype()) ? given : where(given < 0, n, given);
    switch (how) {
      case Combine::kSum:
        return zeros(Shape(dims), a.dtype()).at({places}).add(a);
      case Combine::kProduct:
        return ones(Shape(dims), a.dtype()).at({places}).multiply(a);
      case Combine::kLargest:
        return full(Shape(dims), neutral_value(true, a.dtype()), a.dtype()).at({places}).max(a);
      case Combine::kSmallest:
        return full(Shape(dims), neutral_value(false, a.dtype()), a.dtype()).at({places}).min(a);
    }
    return a;
  });
}

}  // namespace

Array identity(int64_t n, DType dtype, SourceLocation at) {
  return eye(n, n, dtype, at);
}
Array empty(const Shape& shape, DType dtype, SourceLocation at) {
  return zeros(shape, dtype, at);
}
Array empty_like(const Operand& x) {
  return zeros_like(x);
}

Array logspace(double start, double stop, int64_t n, bool endpoint, double base, DType dtype,
               SourceLocation at) {
  const CallSiteScope site(at);
  const DType wide = dtype_bytes(dtype) == 8 ? DType::kF64 : DType::kF32;
  return run_as_one("logspace", [&] {
    return astype(pow(base, linspace(start, stop, n, endpoint, wide, at)), dtype);
  });
}

Array geomspace(double start, double stop, int64_t n, bool endpoint, DType dtype,
                SourceLocation at) {
  const CallSiteScope site(at);
  const bool same_sign = (start < 0 && stop < 0) || (start > 0 && stop > 0);
  if (!same_sign)
    trace_error_here(
        "[geomspace] expected two numbers of one sign, neither of them 0, got {} and {}", start,
        stop);
  const double sign = start < 0 ? -1 : 1;
  return run_as_one("geomspace", [&] {
    const DType wide = dtype_bytes(dtype) == 8 ? DType::kF64 : DType::kF32;
    Array x = sign * logspace(std::log10(sign * start), std::log10(sign * stop), n, endpoint, 10,
                              wide, at);
    // The ends are what was asked for.
    if (n > 0) x = x.at({0}).set(start);
    if (n > 1 && endpoint) x = x.at({-1}).set(stop);
    return astype(x, dtype);
  });
}

std::pair<Array, Array> tril_indices(int64_t n, int64_t k, std::optional<int64_t> m,
                                     SourceLocation at) {
  return places_where(
      n, m.value_or(n), [k](int64_t offset) { return offset <= k; }, at);
}
std::pair<Array, Array> triu_indices(int64_t n, int64_t k, std::optional<int64_t> m,
                                     SourceLocation at) {
  return places_where(
      n, m.value_or(n), [k](int64_t offset) { return offset >= k; }, at);
}

Array vander(const Operand& x, std::optional<int64_t> n, bool increasing) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  if (a.rank() != 1) trace_error_here("[vander] expected a vector, got {}", to_string(a.type()));
  const int64_t count = n.value_or(a.dim(0));
  if (count < 0)
    trace_error_here("[vander] expected a number of powers of 0 or more, got {}", count);
  return run_as_one("vander", [&] {
    const Array rising = iota({count}, 0, a.dtype());
    const Array powers = increasing ? rising : flip(rising);
    return pow(expand_dims(a, 1), powers);
  });
}

Array diagflat(const Operand& x, int64_t k) {
  const CallSiteScope site(x.at);
  return diag(ravel(x), k);
}

Array fill_diagonal(const Operand& x, const Operand& value) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x), v = to_array(value, {a.dtype(), a.type().weak});
  const Dims& dims = a.shape().dims();
  const bool equal_extents =
      std::equal(dims.begin() + (dims.empty() ? 0 : 1), dims.end(), dims.begin());
  if (a.rank() < 2 || (a.rank() > 2 && !equal_extents))
    trace_error_here("[fill_diagonal] expected a matrix, or an array of equal extents, got {}",
                     to_string(a.type()));
  return run_as_one("fill_diagonal", [&] {
    const int64_t n = *std::min_element(dims.begin(), dims.end());
    Array on_diagonal = full(a.shape(), true);
    for (int i = 1; i < a.rank(); ++i)
      on_diagonal = logical_and(on_diagonal, iota(a.shape(), 0) == iota(a.shape(), i));
    if (v.rank() == 0) return where(on_diagonal, v, a);
    // Row i takes element i.
    Dims column(static_cast<size_t>(a.rank()), 1);
    column[0] = dims[0];
    const Array rows = pad(resize(v, {n}), {{0, dims[0] - n}});
    return where(on_diagonal, reshape(rows, column), a);
  });
}

Array put_along_axis(const Operand& x, const Operand& indices, const Operand& values, int axis) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x), given = to_indices("put_along_axis", "indices", indices);
  const auto along = normalize_axis("put_along_axis", axis, a.rank(), a.type());
  if (given.rank() != a.rank())
    trace_error_here(
        "[put_along_axis] expected indices of as many axes as the array, got {} for {}",
        to_string(given.type()), to_string(a.type()));
  for (int i = 0; i < a.rank(); ++i)
    if (i != along && given.shape()[i] != a.shape()[i] && given.shape()[i] != 1)
      trace_error_here(
          "[put_along_axis] expected indices that broadcast to the array, got {} for {}, which "
          "differ in axis {}",
          to_string(given.type()), to_string(a.type()), i);
  return run_as_one("put_along_axis", [&] {
    // Axes that are not indexed go along with the indices, whose extents may be 1.
    Dims dims = a.shape().dims();
    dims[static_cast<size_t>(along)] = given.shape()[static_cast<int>(along)];
    const Array v = broadcast_to(broadcast_to(values, given.shape()), Shape(dims));
    if (a.size() == 0 || v.size() == 0) return a;
    const Array places = resolve_negative(given, a.shape()[static_cast<int>(along)]);
    const AlongAxisGather p(a.shape(), given.shape(), along);
    const Array updates = with_weak(convert_to(v, a.dtype()), false);
    const Array result =
        record1(OpKind::kScatter, p.params, {a, reshape(places, p.vectors), updates});
    return with_weak(result, a.type().weak);
  });
}

std::vector<Array> unravel_index(const Operand& indices, const Shape& shape) {
  const CallSiteScope site(indices.at);
  const Array given = to_indices("unravel_index", "indices", indices);
  return traced_or_run("unravel_index", [&] {
    const int64_t n = shape.elems();
    Array rest = clip(where(given < 0, given + n, given), 0, std::max<int64_t>(n - 1, 0));
    std::vector<Array> result(static_cast<size_t>(shape.rank()));
    for (int i = shape.rank(); i-- > 0;) {
      result[static_cast<size_t>(i)] = rest % shape[i];
      rest = floor_divide(rest, shape[i]);
    }
    return result;
  });
}

Array atleast_1d(const Operand& x) {
  return x.rank() >= 1 ? to_array(x) : reshape(x, {1});
}
Array atleast_2d(const Operand& x) {
  const CallSiteScope site(x.at);
  return x.rank() >= 2 ? to_array(x) : expand_dims(atleast_1d(x), 0);
}
Array atleast_3d(const Operand& x) {
  const CallSiteScope site(x.at);
  if (x.rank() >= 3) return to_array(x);
  return x.rank() == 2 ? expand_dims(x, 2) : expand_dims(atleast_1d(x), {0, 2});
}

std::vector<Array> broadcast_arrays(const std::vector<Array>& arrays, SourceLocation at) {
  const CallSiteScope site(at);
  Shape shape;
  for (const Array& a : arrays)
    shape = broadcast_shapes("broadcast_arrays", {DType::kF32, shape}, a.type());
  std::vector<Array> result;
  for (const Array& a : arrays) result.push_back(broadcast_array(a, shape));
  return result;
}

Array append(const Operand& x, const Operand& values, std::optional<int> axis) {
  const CallSiteScope site(x.at);
  if (axis) return concatenate({to_array(x), to_array(values)}, *axis, x.at);
  return concatenate({ravel(x), ravel(values)}, 0, x.at);
}

Array column_stack(const std::vector<Array>& arrays, SourceLocation at) {
  const CallSiteScope site(at);
  std::vector<Array> columns;
  for (const Array& a : arrays) columns.push_back(a.rank() < 2 ? expand_dims(atleast_1d(a), 1) : a);
  return concatenate(columns, 1, at);
}
Array dstack(const std::vector<Array>& arrays, SourceLocation at) {
  const CallSiteScope site(at);
  std::vector<Array> deep;
  for (const Array& a : arrays) deep.push_back(atleast_3d(a));
  return concatenate(deep, 2, at);
}
std::vector<Array> vsplit(const Operand& x, int n) {
  return parts_along("vsplit", x, n, 0);
}
std::vector<Array> hsplit(const Operand& x, int n) {
  return parts_along("hsplit", x, n, x.rank() == 1 ? 0 : 1);
}
std::vector<Array> dsplit(const Operand& x, int n) {
  return parts_along("dsplit", x, n, 2);
}
Array concat(const std::vector<Array>& arrays, int axis, SourceLocation at) {
  return concatenate(arrays, axis, at);
}

Array flipud(const Operand& x) {
  return flip(x, 0);
}
Array fliplr(const Operand& x) {
  return flip(x, 1);
}
Array rot90(const Operand& x, int k, int axis1, int axis2) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  const auto i = static_cast<int>(normalize_axis("rot90", axis1, a.rank(), a.type()));
  const auto j = static_cast<int>(normalize_axis("rot90", axis2, a.rank(), a.type()));
  if (i == j) trace_error_here("[rot90] axis {} of {} is given twice", axis1, to_string(a.type()));
  switch (((k % 4) + 4) % 4) {
    case 1:
      return swapaxes(flip(a, j), i, j);
    case 2:
      return flip(a, {i, j});
    case 3:
      return flip(swapaxes(a, i, j), j);
    default:
      return a;
  }
}
Array permute_dims(const Operand& x, const Axes& axes) {
  return transpose(x, axes);
}
Array matrix_transpose(const Operand& x) {
  return swapaxes(x, -1, -2);
}
Array rollaxis(const Operand& x, int axis, int start) {
  const CallSiteScope site(x.at);
  const ArrayType type{x.dtype().dtype, x.shape()};
  const auto from = static_cast<int>(normalize_axis("rollaxis", axis, x.rank(), type));
  const int to = start < 0 ? start + x.rank() : start;
  if (to < 0 || to > x.rank())
    trace_error_here("[rollaxis] place {} is out of range for {}", start, to_string(type));
  return moveaxis(x, from, from < to ? to - 1 : to);
}

Array broadcast_in_dim(const Operand& x, const Shape& shape, const Dims& axes) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  const bool rising =
      std::adjacent_find(axes.begin(), axes.end(), std::greater_equal<>()) == axes.end();
  const bool within = rising && (axes.empty() || (axes[0] >= 0 && axes.back() < shape.rank()));
  if (static_cast<int>(axes.size()) != a.rank() || !within)
    trace_error_here(
        "[broadcast_in_dim] expected a rising axis of ({}) for each axis of {}, got {}",
        to_string(shape), to_string(a.type()), to_string(Shape(axes)));
  Dims dims(static_cast<size_t>(shape.rank()), 1);
  for (int i = 0; i < a.rank(); ++i)
    dims[static_cast<size_t>(axes[static_cast<size_t>(i)])] = a.shape()[i];
  return broadcast_to(reshape(a, dims), shape);
}

Array collapse(const Operand& x, int start, std::optional<int> stop) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  const auto bound = [&](int i) { return i < 0 ? i + a.rank() : i; };
  const int from = bound(start), to = bound(stop.value_or(a.rank()));
  if (from < 0 || to > a.rank() || from >= to)
    trace_error_here("[collapse] expected a range of axes of {}, got {} to {}", to_string(a.type()),
                     start, to);
  const Dims& dims = a.shape().dims();
  Dims joined(dims.begin(), dims.begin() + from);
  joined.push_back(1);
  for (int i = from; i < to; ++i) joined.back() *= dims[static_cast<size_t>(i)];
  joined.insert(joined.end(), dims.begin() + to, dims.end());
  return reshape(a, joined);
}

Array rev(const Operand& x, const Axes& axes) {
  return flip(x, axes);
}
Array slice_in_dim(const Operand& x, int64_t start, int64_t stop, int64_t stride, int axis) {
  return slice(x, axis, start, stop, stride);
}
Array index_in_dim(const Operand& x, int64_t index, int axis, bool keepdims) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  const auto i = static_cast<int>(normalize_axis("index_in_dim", axis, a.rank(), a.type()));
  const int64_t n = a.shape()[i], at = index < 0 ? index + n : index;
  if (at < 0 || at >= n)
    trace_error_here("[index_in_dim] {} is out of range for axis {} of {}", index, axis,
                     to_string(a.type()));
  const Array part = slice(a, i, at, at + 1);
  return keepdims ? part : squeeze(part, i);
}

Array dynamic_slice_in_dim(const Operand& x, const Operand& start, int64_t size, int axis) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  const int64_t i = normalize_axis("dynamic_slice_in_dim", axis, a.rank(), a.type());
  Dims sizes = a.shape().dims();
  sizes[static_cast<size_t>(i)] = size;
  return dynamic_slice(a, starts_along(a, i, start), sizes);
}
Array dynamic_index_in_dim(const Operand& x, const Operand& index, int axis, bool keepdims) {
  const CallSiteScope site(x.at);
  const Array part = dynamic_slice_in_dim(x, index, 1, axis);
  return keepdims ? part : squeeze(part, axis);
}
Array dynamic_update_slice_in_dim(const Operand& x, const Operand& update, const Operand& start,
                                  int axis) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  const int64_t i = normalize_axis("dynamic_update_slice_in_dim", axis, a.rank(), a.type());
  return dynamic_update_slice(a, update, starts_along(a, i, start));
}
Array dynamic_update_index_in_dim(const Operand& x, const Operand& update, const Operand& index,
                                  int axis) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x), u = to_array(update);
  const int64_t i = normalize_axis("dynamic_update_index_in_dim", axis, a.rank(), a.type());
  return dynamic_update_slice_in_dim(a, u.rank() == a.rank() ? u : expand_dims(u, i), index, axis);
}

Array segment_sum(const Operand& x, const Operand& ids, int64_t n) {
  return segments("segment_sum", x, ids, n, Combine::kSum);
}
Array segment_prod(const Operand& x, const Operand& ids, int64_t n) {
  return segments("segment_prod", x, ids, n, Combine::kProduct);
}
Array segment_max(const Operand& x, const Operand& ids, int64_t n) {
  return segments("segment_max", x, ids, n, Combine::kLargest);
}
Array segment_min(const Operand& x, const Operand& ids, int64_t n) {
  return segments("segment_min", x, ids, n, Combine::kSmallest);
}

Array vecdot(const Operand& a, const Operand& b, int axis) {
  const CallSiteScope site(a.at);
  const Array x = moveaxis(a, axis, -1), y = moveaxis(b, axis, -1);
  if (x.dim(-1) != y.dim(-1))
    trace_error_here("[vecdot] expected vectors of one extent along axis {}, got {} and {}", axis,
                     to_string(x.type()), to_string(y.type()));
  return run_as_one("vecdot", [&] {
    return squeeze(matmul(expand_dims(x, -2), expand_dims(y, -1)), {-1, -2});
  });
}
Array matvec(const Operand& a, const Operand& x) {
  const CallSiteScope site(a.at);
  return run_as_one("matvec", [&] { return squeeze(matmul(a, expand_dims(x, -1)), -1); });
}
Array vecmat(const Operand& x, const Operand& a) {
  const CallSiteScope site(x.at);
  return run_as_one("vecmat", [&] { return squeeze(matmul(expand_dims(x, -2), a), -2); });
}

Array cross(const Operand& a, const Operand& b, int axis) {
  const CallSiteScope site(a.at);
  const Array x = moveaxis(a, axis, -1), y = moveaxis(b, axis, -1);
  const int64_t n = x.dim(-1), m = y.dim(-1);
  if (n < 2 || n > 3 || m < 2 || m > 3)
    trace_error_here("[cross] axis {} of {} and {} must have extent 3, or 2", axis,
                     to_string(x.type()), to_string(y.type()));
  return run_as_one("cross", [&] {
    const auto part = [](const Array& v, int64_t i) {
      return i < v.dim(-1) ? index_in_dim(v, i, -1, false)
                           : zeros_like(index_in_dim(v, 0, -1, false));
    };
    const auto number = [&](int64_t i, int64_t j) {
      return part(x, i) * part(y, j) - part(x, j) * part(y, i);
    };
    if (n == 2 && m == 2) return number(0, 1);
    return moveaxis(stack({number(1, 2), number(2, 0), number(0, 1)}, -1), -1, axis);
  });
}

Array matrix_power(const Operand& x, int64_t n) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  if (a.rank() < 2 || a.dim(-1) != a.dim(-2))
    trace_error_here("[matrix_power] expected square matrices, got {}", to_string(a.type()));
  if (n < 0)
    trace_error_here(
        "[matrix_power] expected a power of 0 or more, as there is no inverse here, got {}", n);
  return run_as_one("matrix_power", [&] {
    if (n == 0) return broadcast_to(eye(a.dim(-1), {}, a.dtype()), a.shape());
    std::optional<Array> result;
    Array square = a;
    for (int64_t rest = n;; square = matmul(square, square)) {
      if (rest % 2 == 1) result = result ? matmul(*result, square) : square;
      rest /= 2;
      if (rest == 0) return *result;
    }
  });
}

}  // namespace stow
