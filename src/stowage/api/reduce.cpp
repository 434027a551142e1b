#include "stowage/api/reduce.h"

#include <algorithm>
#include <limits>

#include "stowage/api/indexing.h"
#include "stowage/api/math.h"
#include "stowage/api/math_internal.h"

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

}  // namespace

Array sum(const Operand& x, const Axes& axes, bool keepdims) {
  const Site site(x.at);
  return reduce(OpKind::kReduceSum, "sum", widened(to_array(x)), axes, keepdims);
}

Array prod(const Operand& x, const Axes& axes, bool keepdims) {
  const Site site(x.at);
  return reduce(OpKind::kReduceProd, "prod", widened(to_array(x)), axes, keepdims);
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

}  // namespace stow
