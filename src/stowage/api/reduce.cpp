#include "stowage/api/reduce.h"

#include <algorithm>
#include <limits>

#include "stowage/api/indexing.h"
#include "stowage/api/math.h"
#include "stowage/api/math_internal.h"
#include "stowage/core/scalar.h"

namespace stow {
namespace {

Dims sorted_axes(std::string_view name, const Axes& axes, const Array& x) {
  Dims list = check_axes(name, axes, x.type(), true);
  std::sort(list.begin(), list.end());
  return list;
}

Array keep(const Array& reduced, const Array& x, const Dims& axes, bool keepdims) {
  if (!keepdims || axes.empty()) return reduced;
  Dims dims = x.shape().dims();
  for (int64_t axis : axes) dims[static_cast<size_t>(axis)] = 1;
  return reshape(reduced, dims);
}

// As in jax.numpy, no result is weak.
Array reduce(OpKind op, std::string_view name, const Array& x, const Axes& axes, bool keepdims) {
  const Dims list = sorted_axes(name, axes, x);
  if (list.empty()) return with_weak(x, false);
  return keep(record1(op, AxesParams{list}, {x}), x, list, keepdims);
}

// jax.numpy widens the small integers before it adds or multiplies.
Array widened(const Array& x) {
  switch (x.dtype()) {
    case DType::kBool:
    case DType::kI8:
      return convert_to(x, DType::kI32);
    case DType::kU8:
      return convert_to(x, DType::kU32);
    default:
      return x;
  }
}

Array extreme(OpKind op, std::string_view name, const Operand& x, const Axes& axes, bool keepdims) {
  const Site site(x.at);
  const Array a = to_array(x);
  for (int64_t axis : sorted_axes(name, axes, a))
    if (a.shape()[static_cast<int>(axis)] == 0)
      fail_here("[{}] axis {} of {} is empty, and has no {}", name, axis, to_string(a.type()),
                name);
  if (a.dtype() == DType::kBool)
    return reduce(op == OpKind::kReduceMax ? OpKind::kReduceOr : OpKind::kReduceAnd, name, a, axes,
                  keepdims);
  return reduce(op, name, a, axes, keepdims);
}

Array arg_extreme(OpKind op, std::string_view name, const Operand& x, std::optional<int> axis,
                  bool keepdims) {
  const Site site(x.at);
  Array a = to_array(x);
  const int rank = a.rank();
  if (!axis) a = ravel(a);
  if (a.dtype() == DType::kBool) a = convert_to(a, DType::kI32);
  const int64_t i = check_axis(name, axis.value_or(0), a.rank(), a.type());
  const Array index = record1(op, ArgReduceParams{i, DType::kI32}, {a});
  if (!keepdims) return index;
  return axis ? expand_dims(index, i) : reshape(index, Dims(static_cast<size_t>(rank), 1));
}

int64_t n_reduced(const Array& x, const Dims& axes) {
  int64_t n = 1;
  for (int64_t axis : axes) n *= x.shape()[static_cast<int>(axis)];
  return n;
}

bool is_small_float(DType t) {
  return t == DType::kBF16 || t == DType::kF16;
}

// What neither adds to nor takes from an extreme.
Array neutral(OpKind op, DType t) {
  const bool largest = op == OpKind::kReduceMax;
  if (t == DType::kBool) return scalar_constant(!largest, t);
  if (t == DType::kU64 && !largest)
    return scalar_constant(std::numeric_limits<uint64_t>::max(), t);
  if (!is_float(t)) return scalar_constant(largest ? min_int_value(t) : max_int_value(t), t);
  const double inf = std::numeric_limits<double>::infinity();
  return scalar_constant(largest ? -inf : inf, t);
}

// The options, checked: what of them `name` does not take must not be given.
struct Taken {
  bool initial = false, dtype = false;
};
void check_options(std::string_view name, const ReduceOptions& o, const Array& x, Taken taken) {
  if (o.initial && !taken.initial) fail_here("[{}] takes no initial value", name);
  if (o.dtype && !taken.dtype) fail_here("[{}] takes no dtype", name);
  if (o.initial && o.initial->rank() != 0)
    fail_here("[{}] the initial value must be a scalar, got {}", name,
              to_string(o.initial->array().type()));
  if (o.where) check_where(name, *o.where, x);
}

Array masked(const Array& x, const ReduceOptions& o, const Array& instead) {
  return o.where ? where(*o.where, x, instead) : x;
}

// Sums and products with all options. Small floats are widened where more than one rounding would
// follow.
Array fold(OpKind op, const char* name, const Operand& x, const Axes& axes,
           const ReduceOptions& o) {
  const Site site(x.at);
  const bool sums = op == OpKind::kReduceSum;
  const Array given = to_array(x);
  check_options(name, o, given, {.initial = true, .dtype = true});
  return run_as_one(name, [&] {
    // Factors are of the result's dtype, terms are not rounded to a narrow one.
    const Array a = !o.dtype ? widened(given) : sums ? given : convert_to(given, *o.dtype);
    const DType dtype = o.dtype.value_or(a.dtype());
    const bool widens = is_small_float(dtype) && (o.initial || a.dtype() != dtype);
    const DType within = widens ? DType::kF32 : dtype;
    const bool logical = dtype == DType::kBool;  // as asked for: "or" and "and"
    const OpKind with = !logical ? op : sums ? OpKind::kReduceOr : OpKind::kReduceAnd;
    const Array parts = masked(convert_to(a, within), o, scalar_constant(sums ? 0 : 1, within));
    Array result = reduce(with, name, parts, axes, o.keepdims);
    if (o.initial) {
      const Array first = astype(*o.initial, within);
      if (logical)
        result = sums ? logical_or(first, result) : logical_and(first, result);
      else
        result = sums ? first + result : first * result;
    }
    return convert_to(result, dtype);
  });
}

// How many elements take part, in a float dtype.
Array n_counted(const char* name, const Array& x, const Dims& axes, const ReduceOptions& o) {
  if (!o.where) return scalar_constant(static_cast<double>(n_reduced(x, axes)), x.dtype());
  const Array ones = convert_to(broadcast_array(*o.where, x.shape()), x.dtype());
  return reduce(OpKind::kReduceSum, name, ones, axes, o.keepdims);
}

// A float of the dtype to compute in, and the dtype of the result.
std::pair<Array, DType> to_reduced_float(const char* name, const Operand& x,
                                         const ReduceOptions& o) {
  const Array a = o.dtype ? to_array(x) : to_float_array(x);
  if (o.dtype && !is_float(*o.dtype))
    fail_here("[{}] dtype must be a float, got {}", name, dtype_name(*o.dtype));
  const DType dtype = o.dtype.value_or(a.dtype());
  const bool small = is_small_float(dtype);
  return {convert_to(a, small ? DType::kF32 : dtype), dtype};
}

Array extreme(OpKind op, const char* name, const Operand& x, const Axes& axes,
              const ReduceOptions& o) {
  const Site site(x.at);
  const Array a = to_array(x);
  check_options(name, o, a, {.initial = true});
  if (!o.initial && !o.where) return extreme(op, name, a, axes, o.keepdims);
  if (!o.initial) fail_here("[{}] with a where must be told what of nothing is: initial", name);
  return run_as_one(name, [&] {
    const bool largest = op == OpKind::kReduceMax;
    const OpKind with = a.dtype() != DType::kBool ? op
                        : largest                 ? OpKind::kReduceOr
                                                  : OpKind::kReduceAnd;
    const Array found = reduce(with, name, masked(a, o, neutral(op, a.dtype())), axes, o.keepdims);
    const Array first = astype(*o.initial, a.dtype());
    return largest ? maximum(first, found) : minimum(first, found);
  });
}

Array some_or_all(OpKind op, const char* name, const Operand& x, const Axes& axes,
                  const ReduceOptions& o) {
  const Site site(x.at);
  const Array given = to_array(x);
  check_options(name, o, given, {});
  return run_as_one(name, [&] {
    const Array neither = scalar_constant(op == OpKind::kReduceAnd, DType::kBool);
    return reduce(op, name, masked(astype(given, DType::kBool), o, neither), axes, o.keepdims);
  });
}

}  // namespace

void check_where(std::string_view name, const Array& where, const Array& x) {
  if (where.dtype() != DType::kBool)
    fail_here("[{}] where must be bool, got {}", name, to_string(where.type()));
  if (broadcast_shapes(name, x.type(), where.type()) != x.shape())
    fail_here("[{}] where {} does not broadcast to {}", name, to_string(where.type()),
              to_string(x.type()));
}

Array sum(const Operand& x, const Axes& axes, bool keepdims) {
  const Site site(x.at);
  return reduce(OpKind::kReduceSum, "sum", widened(to_array(x)), axes, keepdims);
}
Array prod(const Operand& x, const Axes& axes, bool keepdims) {
  const Site site(x.at);
  return reduce(OpKind::kReduceProd, "prod", widened(to_array(x)), axes, keepdims);
}
Array sum(const Operand& x, const Axes& axes, const ReduceOptions& options) {
  return fold(OpKind::kReduceSum, "sum", x, axes, options);
}
Array prod(const Operand& x, const Axes& axes, const ReduceOptions& options) {
  return fold(OpKind::kReduceProd, "prod", x, axes, options);
}

Array mean(const Operand& x, const Axes& axes, bool keepdims) {
  const Site site(x.at);
  const Array a = to_float_array(x);
  const Dims list = sorted_axes("mean", axes, a);
  const auto n = static_cast<double>(n_reduced(a, list));
  return run_as_one("mean", [&] {
    const Array f = is_small_float(a.dtype()) ? convert_to(a, DType::kF32) : a;
    return convert_to(reduce(OpKind::kReduceSum, "mean", f, list, keepdims) / n, a.dtype());
  });
}

Array var(const Operand& x, const Axes& axes, int ddof, bool keepdims) {
  const Site site(x.at);
  const Array a = to_float_array(x);
  const Dims list = sorted_axes("var", axes, a);
  const auto n = static_cast<double>(n_reduced(a, list) - ddof);
  return run_as_one("var", [&] {
    const Array f = is_small_float(a.dtype()) ? convert_to(a, DType::kF32) : a;
    const Array squares = square(f - mean(f, list, true));
    const Array total = reduce(OpKind::kReduceSum, "var", squares, list, keepdims);
    Array result = total / n;
    if (n <= 0) result = 0.0 * result + std::numeric_limits<double>::quiet_NaN();
    return convert_to(result, a.dtype());
  });
}

Array standard_deviation(const Operand& x, const Axes& axes, int ddof, bool keepdims) {
  const Site site(x.at);
  return sqrt(var(x, axes, ddof, keepdims));
}

Array mean(const Operand& x, const Axes& axes, const ReduceOptions& options) {
  const Site site(x.at);
  const auto [a, dtype] = to_reduced_float("mean", x, options);
  check_options("mean", options, a, {.dtype = true});
  const Dims list = sorted_axes("mean", axes, a);
  return run_as_one("mean", [&, a = a, dtype = dtype] {
    const Array parts = masked(a, options, scalar_constant(0.0, a.dtype()));
    const Array total = reduce(OpKind::kReduceSum, "mean", parts, list, options.keepdims);
    return convert_to(total / n_counted("mean", a, list, options), dtype);
  });
}

Array var(const Operand& x, const Axes& axes, int ddof, const ReduceOptions& options) {
  const Site site(x.at);
  const auto [a, dtype] = to_reduced_float("var", x, options);
  check_options("var", options, a, {.dtype = true});
  const Dims list = sorted_axes("var", axes, a);
  return run_as_one("var", [&, a = a, dtype = dtype] {
    const Array zero = scalar_constant(0.0, a.dtype());
    const Array center = mean(a, list, {.keepdims = true, .where = options.where});
    const Array squares = masked(square(a - center), options, zero);
    const Array total = reduce(OpKind::kReduceSum, "var", squares, list, options.keepdims);
    const Array n = n_counted("var", a, list, options) - static_cast<double>(ddof);
    const Array result = total / n;
    return convert_to(
        where(n > 0, result, full_like(result, std::numeric_limits<double>::quiet_NaN())), dtype);
  });
}

Array standard_deviation(const Operand& x, const Axes& axes, int ddof,
                         const ReduceOptions& options) {
  const Site site(x.at);
  return sqrt(var(x, axes, ddof, options));
}

Array max(const Operand& x, const Axes& axes, bool keepdims) {
  return extreme(OpKind::kReduceMax, "max", x, axes, keepdims);
}
Array min(const Operand& x, const Axes& axes, bool keepdims) {
  return extreme(OpKind::kReduceMin, "min", x, axes, keepdims);
}

Array any(const Operand& x, const Axes& axes, bool keepdims) {
  const Site site(x.at);
  return reduce(OpKind::kReduceOr, "any", astype(x, DType::kBool), axes, keepdims);
}
Array all(const Operand& x, const Axes& axes, bool keepdims) {
  const Site site(x.at);
  return reduce(OpKind::kReduceAnd, "all", astype(x, DType::kBool), axes, keepdims);
}
Array max(const Operand& x, const Axes& axes, const ReduceOptions& options) {
  return extreme(OpKind::kReduceMax, "max", x, axes, options);
}
Array min(const Operand& x, const Axes& axes, const ReduceOptions& options) {
  return extreme(OpKind::kReduceMin, "min", x, axes, options);
}

Array any(const Operand& x, const Axes& axes, const ReduceOptions& options) {
  return some_or_all(OpKind::kReduceOr, "any", x, axes, options);
}
Array all(const Operand& x, const Axes& axes, const ReduceOptions& options) {
  return some_or_all(OpKind::kReduceAnd, "all", x, axes, options);
}

Array argmax(const Operand& x, std::optional<int> axis, bool keepdims) {
  return arg_extreme(OpKind::kArgMax, "argmax", x, axis, keepdims);
}
Array argmin(const Operand& x, std::optional<int> axis, bool keepdims) {
  return arg_extreme(OpKind::kArgMin, "argmin", x, axis, keepdims);
}

Array logsumexp(const Operand& x, const Axes& axes, bool keepdims) {
  const Site site(x.at);
  const Array a = to_float_array(x);
  const Dims list = sorted_axes("logsumexp", axes, a);
  // A sum of nothing: its logarithm, and no gradient but through the (empty) operand.
  if (n_reduced(a, list) == 0)
    return run_as_one("logsumexp", [&] { return log(sum(exp(a), list, keepdims)); });
  return run_as_one("logsumexp", [&] {
    const Array peak = max(a, list, true);
    const Array shift = stop_gradient(where(isfinite(peak), peak, 0.0));
    const Array result = log(sum(exp(a - shift), list, true)) + shift;
    return keepdims ? result : squeeze(result, list);
  });
}

Array logsumexp(const Operand& x, const Axes& axes, const ReduceOptions& options,
                const std::optional<Array>& b) {
  const Site site(x.at);
  Array a = to_array(x, b ? float_dtype(x, *b) : float_dtype(x, x));
  check_options("logsumexp", options, a, {});
  const Dims list = sorted_axes("logsumexp", axes, a);
  if (b && broadcast_shapes("logsumexp", a.type(), b->type()) != a.shape())
    fail_here("[logsumexp] b {} does not broadcast to {}", to_string(b->type()),
              to_string(a.type()));
  return run_as_one("logsumexp", [&] {
    const double inf = std::numeric_limits<double>::infinity();
    const auto constant = [&](double v) { return scalar_constant(v, a.dtype()); };
    // What takes no part is 0 before anything is made of it: its gradient is, too.
    a = masked(a, options, constant(0));
    if (b) a = where(*b != 0, a, constant(-inf));
    const ReduceOptions part = {
        .keepdims = true, .where = options.where, .initial = constant(-inf)};
    const Array peak = max(a, list, part);
    const Array shift = stop_gradient(where(isfinite(peak), peak, constant(0)));
    const Array powers = exp(a - shift);
    const Array total = sum(b ? powers * convert_to(*b, a.dtype()) : powers, list,
                            {.keepdims = true, .where = options.where});
    Array result = log(abs(total)) + shift;
    if (b) result = where(total < 0, constant(std::numeric_limits<double>::quiet_NaN()), result);
    return options.keepdims ? result : squeeze(result, list);
  });
}

}  // namespace stow
