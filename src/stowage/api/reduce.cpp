#include "stowage/api/reduce.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "stowage/api/indexing.h"
#include "stowage/api/math.h"
#include "stowage/api/math_internal.h"
#include "stowage/core/scalar.h"

namespace stow {
namespace {

Dims sorted_axes(std::string_view name, const Axes& axes, const Array& x) {
  Dims list = normalize_axes(name, axes, x.type(), true);
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

Array arg_extreme(OpKind op, std::string_view name, const Operand& x, std::optional<int> axis,
                  bool keepdims) {
  const CallSiteScope site(x.at);
  Array a = to_array(x);
  const int rank = a.rank();
  if (!axis) a = ravel(a);
  if (a.dtype() == DType::kBool) a = convert_to(a, DType::kI32);
  const int64_t i = normalize_axis(name, axis.value_or(0), a.rank(), a.type());
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

// The options, checked: what of them `name` does not take must not be given.
struct Taken {
  bool initial = false, dtype = false;
};
void check_options(std::string_view name, const ReduceOptions& o, const Array& x, Taken taken) {
  if (o.initial && !taken.initial)
    trace_error_here("[{}] takes no initial value; leave it out", name);
  if (o.dtype && !taken.dtype) trace_error_here("[{}] takes no dtype; leave it out", name);
  if (o.initial && o.initial->rank() != 0)
    trace_error_here("[{}] the initial value must be a scalar, got {}", name,
                     to_string(o.initial->array().type()));
  if (o.where) check_where(name, *o.where, x);
}

Array masked(const Array& x, const ReduceOptions& o, const ScalarValue& instead) {
  return o.where ? where(*o.where, x, scalar_constant(instead, x.dtype())) : x;
}

// Sums and products with all options. Small floats are widened where more than one rounding would
// follow.
Array fold(OpKind op, const char* name, const Operand& x, const Axes& axes,
           const ReduceOptions& o) {
  const CallSiteScope site(x.at);
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
    const Array parts = masked(convert_to(a, within), o, sums ? 0 : 1);
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

// The number of elements that take part, less ddof: a C++ number without a mask, else an array of
// x's dtype.
Operand n_counted(const char* name, const Array& x, const Dims& axes, const ReduceOptions& o,
                  int ddof) {
  if (!o.where) return static_cast<double>(n_reduced(x, axes) - ddof);
  const Array ones = convert_to(broadcast_array(*o.where, x.shape()), x.dtype());
  const Array n = reduce(OpKind::kReduceSum, name, ones, axes, o.keepdims);
  return ddof == 0 ? n : n - static_cast<double>(ddof);
}

// The operand of a mean or a variance, and the dtype of the result, in which it is computed if that
// is not narrower than f32.
std::pair<Array, DType> check_float(const char* name, const Operand& x, const ReduceOptions& o) {
  if (o.dtype && !is_float(*o.dtype))
    trace_error_here("[{}] dtype must be a float, got {}", name, dtype_name(*o.dtype));
  const Array a = o.dtype ? to_array(x) : to_float_array(x);
  check_options(name, o, a, {.dtype = true});
  return {a, o.dtype.value_or(a.dtype())};
}
Array to_compute_in(const Array& x, DType dtype) {
  return dtype == DType::kF64 ? convert_to(x, dtype) : convert_to(x, DType::kF32);
}

Array extreme(OpKind op, const char* name, const Operand& x, const Axes& axes,
              const ReduceOptions& o) {
  const CallSiteScope site(x.at);
  const Array a = to_array(x);
  check_options(name, o, a, {.initial = true});
  if (!o.initial && o.where)
    trace_error_here(
        "[{}] expected an initial value beside where, which may select nothing; set initial", name);
  for (int64_t axis : sorted_axes(name, axes, a))
    if (!o.initial && a.shape()[static_cast<int>(axis)] == 0)
      trace_error_here("[{}] expected elements along axis {}, got {}; set initial", name, axis,
                       to_string(a.type()));
  const bool largest = op == OpKind::kReduceMax;
  if (a.dtype() == DType::kBool) op = largest ? OpKind::kReduceOr : OpKind::kReduceAnd;
  if (!o.initial) return reduce(op, name, a, axes, o.keepdims);
  const ScalarValue none = neutral_value(largest, a.dtype());
  return run_as_one(name, [&] {
    const Array found = reduce(op, name, masked(a, o, none), axes, o.keepdims);
    const Array first = astype(*o.initial, a.dtype());
    return largest ? maximum(first, found) : minimum(first, found);
  });
}

Array some_or_all(OpKind op, const char* name, const Operand& x, const Axes& axes,
                  const ReduceOptions& o) {
  const CallSiteScope site(x.at);
  const Array given = to_array(x);
  check_options(name, o, given, {});
  return run_as_one(name, [&] {
    const Array a = astype(given, DType::kBool);
    return reduce(op, name, masked(a, o, op == OpKind::kReduceAnd), axes, o.keepdims);
  });
}

}  // namespace

ScalarValue neutral_value(bool largest, DType t) {
  if (t == DType::kBool) return !largest;
  if (t == DType::kU64 && !largest) return std::numeric_limits<uint64_t>::max();
  if (!is_float(t)) return largest ? min_int_value(t) : max_int_value(t);
  const double inf = std::numeric_limits<double>::infinity();
  return largest ? -inf : inf;
}

void check_where(std::string_view name, const Array& where, const Array& x) {
  if (where.dtype() != DType::kBool)
    trace_error_here("[{}] where must be bool, got {}", name, to_string(where.type()));
  if (broadcast_shapes(name, x.type(), where.type()) != x.shape())
    trace_error_here("[{}] where {} does not broadcast to {}", name, to_string(where.type()),
                     to_string(x.type()));
}

Array sum(const Operand& x, const Axes& axes, const ReduceOptions& options) {
  return fold(OpKind::kReduceSum, "sum", x, axes, options);
}
Array prod(const Operand& x, const Axes& axes, const ReduceOptions& options) {
  return fold(OpKind::kReduceProd, "prod", x, axes, options);
}

Array mean(const Operand& x, const Axes& axes, const ReduceOptions& options) {
  const CallSiteScope site(x.at);
  const auto [given, dtype] = check_float("mean", x, options);
  const Dims list = sorted_axes("mean", axes, given);
  return run_as_one("mean", [&, given = given, dtype = dtype] {
    const Array a = to_compute_in(given, dtype);
    const Array total =
        reduce(OpKind::kReduceSum, "mean", masked(a, options, 0.0), list, options.keepdims);
    return convert_to(total / n_counted("mean", a, list, options, 0), dtype);
  });
}

Array var(const Operand& x, const Axes& axes, int ddof, const ReduceOptions& options) {
  const CallSiteScope site(x.at);
  const auto [given, dtype] = check_float("var", x, options);
  const Dims list = sorted_axes("var", axes, given);
  return run_as_one("var", [&, given = given, dtype = dtype] {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const Array a = to_compute_in(given, dtype);
    const Array center = mean(a, list, {.keepdims = true, .where = options.where});
    const Array squares = masked(square(a - center), options, 0.0);
    const Array total = reduce(OpKind::kReduceSum, "var", squares, list, options.keepdims);
    const Operand n = n_counted("var", a, list, options, ddof);
    Array result = total / n;
    if (options.where)
      result = where(n > 0, result, full_like(result, nan));
    else if (n.scalar().real <= 0)
      result = 0.0 * result + nan;
    return convert_to(result, dtype);
  });
}

Array standard_deviation(const Operand& x, const Axes& axes, int ddof,
                         const ReduceOptions& options) {
  const CallSiteScope site(x.at);
  return sqrt(var(x, axes, ddof, options));
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

Array sum(const Operand& x, const Axes& axes, bool keepdims) {
  return sum(x, axes, {.keepdims = keepdims});
}
Array prod(const Operand& x, const Axes& axes, bool keepdims) {
  return prod(x, axes, {.keepdims = keepdims});
}
Array mean(const Operand& x, const Axes& axes, bool keepdims) {
  return mean(x, axes, {.keepdims = keepdims});
}
Array var(const Operand& x, const Axes& axes, int ddof, bool keepdims) {
  return var(x, axes, ddof, {.keepdims = keepdims});
}
Array standard_deviation(const Operand& x, const Axes& axes, int ddof, bool keepdims) {
  return standard_deviation(x, axes, ddof, {.keepdims = keepdims});
}
Array max(const Operand& x, const Axes& axes, bool keepdims) {
  return max(x, axes, {.keepdims = keepdims});
}
Array min(const Operand& x, const Axes& axes, bool keepdims) {
  return min(x, axes, {.keepdims = keepdims});
}
Array any(const Operand& x, const Axes& axes, bool keepdims) {
  return any(x, axes, {.keepdims = keepdims});
}
Array all(const Operand& x, const Axes& axes, bool keepdims) {
  return all(x, axes, {.keepdims = keepdims});
}

Array argmax(const Operand& x, std::optional<int> axis, bool keepdims) {
  return arg_extreme(OpKind::kArgMax, "argmax", x, axis, keepdims);
}
Array argmin(const Operand& x, std::optional<int> axis, bool keepdims) {
  return arg_extreme(OpKind::kArgMin, "argmin", x, axis, keepdims);
}

namespace {

// The logarithm of a sum; -inf, with a gradient of 0, where the largest term is that of -inf.
Array log_total(const Array& total, const Array& peak) {
  const double inf = std::numeric_limits<double>::infinity();
  const Array is_void = peak == -inf;
  return where(is_void, -inf, log(where(is_void, 1.0, total)));
}

}  // namespace

Array logsumexp(const Operand& x, const Axes& axes, bool keepdims) {
  const CallSiteScope site(x.at);
  const Array a = to_float_array(x);
  const Dims list = sorted_axes("logsumexp", axes, a);
  // A sum of nothing: its logarithm, and no gradient but through the (empty) operand.
  if (n_reduced(a, list) == 0)
    return run_as_one("logsumexp", [&] { return log(sum(exp(a), list, keepdims)); });
  return run_as_one("logsumexp", [&] {
    const Array peak = stop_gradient(max(a, list, true));
    const Array shift = where(isfinite(peak), peak, 0.0);
    const Array result = log_total(sum(exp(a - shift), list, true), peak) + shift;
    return keepdims ? result : squeeze(result, list);
  });
}

Array logsumexp(const Operand& x, const Axes& axes, const ReduceOptions& options,
                const std::optional<Array>& b) {
  const CallSiteScope site(x.at);
  Array a = to_array(x, b ? float_dtype(x, *b) : float_dtype(x, x));
  check_options("logsumexp", options, a, {});
  const Dims list = sorted_axes("logsumexp", axes, a);
  if (b && broadcast_shapes("logsumexp", a.type(), b->type()) != a.shape())
    trace_error_here("[logsumexp] b {} does not broadcast to {}", to_string(b->type()),
                     to_string(a.type()));
  return run_as_one("logsumexp", [&] {
    const double inf = std::numeric_limits<double>::infinity();
    const auto constant = [&](double v) { return scalar_constant(v, a.dtype()); };
    // Elements that take no part are set to 0 before anything is computed, so their gradient is 0
    // too.
    a = masked(a, options, 0.0);
    const Array counted = b ? where(*b != 0, a, constant(-inf)) : a;
    const ReduceOptions part = {
        .keepdims = true, .where = options.where, .initial = constant(-inf)};
    const Array peak = stop_gradient(max(counted, list, part));
    const Array shift = where(isfinite(peak), peak, constant(0));
    Array exponent = a - shift;
    // A term times 0 has a gradient by that 0: its power, which must be finite.
    if (b) {
      const double most = std::floor(std::log(largest_float(a.dtype())));
      const Array unused = where(a > -inf, minimum(exponent, constant(most)), constant(-inf));
      exponent = where(*b != 0, exponent, unused);
    }
    const Array powers = exp(exponent);
    const Array total = sum(b ? powers * convert_to(*b, a.dtype()) : powers, list,
                            {.keepdims = true, .where = options.where});
    Array result = log_total(abs(total), peak) + shift;
    if (b) result = where(total < 0, constant(std::numeric_limits<double>::quiet_NaN()), result);
    return options.keepdims ? result : squeeze(result, list);
  });
}

}  // namespace stow
