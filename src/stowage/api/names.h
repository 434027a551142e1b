// Further functions of jax.numpy, jax.lax and jax.ops, each composed of a few others.
// Not new ops: math.h, shaping.h, reduce.h and linalg.h have the functions that these call.
#pragma once

#include <utility>
#include <vector>

#include "stowage/api/math.h"
#include "stowage/api/reduce.h"
#include "stowage/api/scan.h"
#include "stowage/api/shaping.h"

namespace stow {

// Errors of all: TraceError naming the function and the types.

Array absolute(const Operand& x);                         ///< abs.
Array fabs(const Operand& x);                             ///< abs; integers give f32.
Array positive(const Operand& x);                         ///< x itself.
Array true_divide(const Operand& a, const Operand& b);    ///< operator/.
Array float_power(const Operand& a, const Operand& b);    ///< pow of floats; integers give f32.
Array equal(const Operand& a, const Operand& b);          ///< operator==.
Array not_equal(const Operand& a, const Operand& b);      ///< operator!=.
Array less(const Operand& a, const Operand& b);           ///< operator<.
Array less_equal(const Operand& a, const Operand& b);     ///< operator<=.
Array greater(const Operand& a, const Operand& b);        ///< operator>.
Array greater_equal(const Operand& a, const Operand& b);  ///< operator>=.
Array bitwise_and(const Operand& a, const Operand& b);    ///< operator&.
Array bitwise_or(const Operand& a, const Operand& b);     ///< operator|.
Array bitwise_xor(const Operand& a, const Operand& b);    ///< operator^.
Array bitwise_not(const Operand& x);                      ///< operator~.
Array invert(const Operand& x);                           ///< operator~.
Array left_shift(const Operand& a, const Operand& b);     ///< operator<<.
Array right_shift(const Operand& a, const Operand& b);    ///< operator>>.
std::pair<Array, Array> divmod(const Operand& a, const Operand& b);  ///< floor_divide, remainder.

/// The larger of two numbers; if one is NaN, the other one.
Array fmax(const Operand& a, const Operand& b);
Array fmin(const Operand& a, const Operand& b);  ///< The smaller; if one is NaN, the other one.
/// 0 below 0, 1 above; `at_zero` at 0.
Array heaviside(const Operand& x, const Operand& at_zero);
/// log2(2^a + 2^b) without overflow.
Array logaddexp2(const Operand& a, const Operand& b);
/// sin(pi x) / (pi x), 1 at 0.
Array sinc(const Operand& x);
Array deg2rad(const Operand& x);  ///< Degrees as radians.
Array radians(const Operand& x);  ///< The same.
Array rad2deg(const Operand& x);  ///< Radians as degrees.
Array degrees(const Operand& x);  ///< The same.
/// x * 2^n for integers n; rounded once, also if the result is subnormal.
Array ldexp(const Operand& x, const Operand& n);
/// x = first * 2^second with 1/2 <= |first| < 1 and an i32 second. For 0, NaN and infinities the
/// first is x and the second 0. The gradient of the first by x is 2^-second.
std::pair<Array, Array> frexp(const Operand& x);
/// x - trunc(x) and trunc(x). As in JAX, the first is NaN if x is infinite.
std::pair<Array, Array> modf(const Operand& x);
Array isposinf(const Operand& x);  ///< True where x is infinity.
Array isneginf(const Operand& x);  ///< True where x is minus infinity.
/// bool[]: true if isclose holds for all elements.
Array allclose(const Operand& a, const Operand& b, double rtol = 1e-5, double atol = 1e-8,
               bool equal_nan = false);
/// bool[]: true if the shapes and all elements are equal.
Array array_equal(const Operand& a, const Operand& b, bool equal_nan = false);
/// array_equal after broadcasting; false if the shapes do not broadcast.
Array array_equiv(const Operand& a, const Operand& b);
/// At each place the element of the first choice whose condition holds there, else of `otherwise`.
/// All broadcast.
Array select(const std::vector<Array>& conditions, const std::vector<Array>& choices,
             const Operand& otherwise = 0, STOW_AT);
/// p[0] x^(n-1) + … + p[n-1], by Horner's rule.
Array polyval(const Operand& p, const Operand& x);

Array identity(int64_t n, DType dtype = DType::kF32, STOW_AT);        ///< eye(n).
Array empty(const Shape& shape, DType dtype = DType::kF32, STOW_AT);  ///< Zeros, as in JAX.
Array empty_like(const Operand& x);                                   ///< Zeros, as in JAX.
/// base to the powers linspace(start, stop, n, endpoint).
Array logspace(double start, double stop, int64_t n, bool endpoint = true, double base = 10,
               DType dtype = DType::kF32, STOW_AT);
/// `n` numbers in geometric progression from start to stop, which have the same sign and are not 0.
Array geomspace(double start, double stop, int64_t n, bool endpoint = true,
                DType dtype = DType::kF32, STOW_AT);
/// Row and column indices (i32) of the elements on and below the k-th diagonal of [n, m], in
/// row-major order; m is n by default.
std::pair<Array, Array> tril_indices(int64_t n, int64_t k = 0, std::optional<int64_t> m = {},
                                     STOW_AT);
std::pair<Array, Array> triu_indices(int64_t n, int64_t k = 0, std::optional<int64_t> m = {},
                                     STOW_AT);  ///< The same of the elements on and above it.
/// The Vandermonde matrix of a vector: row i has the powers n - 1 to 0 of x[i]; `increasing`: the
/// powers 0 to n - 1. n is the extent of x by default.
Array vander(const Operand& x, std::optional<int64_t> n = {}, bool increasing = false);
/// diag of the flattened array.
Array diagflat(const Operand& x, int64_t k = 0);
/// x, a matrix or an array whose extents are equal, with `value` on its diagonal: a scalar, or
/// elements that are repeated as often as needed.
Array fill_diagonal(const Operand& x, const Operand& value);
Array put_along_axis(const Operand& x, const Operand& indices, const Operand& values,
                     int axis);  ///< x with `values` at the elements that take_along_axis reads.
/// Converts row-major flat indices into one index array for each axis of `shape`. Indices out of
/// range are clamped.
std::vector<Array> unravel_index(const Operand& indices, const Shape& shape);

Array atleast_1d(const Operand& x);  ///< A scalar as a vector.
Array atleast_2d(const Operand& x);  ///< A vector as a row.
Array atleast_3d(const Operand& x);  ///< A vector as [1, n, 1], a matrix as [n, m, 1].
std::vector<Array> broadcast_arrays(const std::vector<Array>& arrays, STOW_AT);  ///< To one shape.
Array append(const Operand& x, const Operand& values,
             std::optional<int> axis = {});  ///< concatenate, of both flattened without an axis.
Array column_stack(const std::vector<Array>& arrays, STOW_AT);  ///< hstack, vectors as columns.
Array dstack(const std::vector<Array>& arrays, STOW_AT);        ///< Along the third axis.
std::vector<Array> vsplit(const Operand& x, int n);             ///< split along axis 0.
std::vector<Array> hsplit(const Operand& x, int n);             ///< Along axis 1, a vector along 0.
std::vector<Array> dsplit(const Operand& x, int n);             ///< Along axis 2.
Array concat(const std::vector<Array>& arrays, int axis = 0, STOW_AT);  ///< concatenate.
Array flipud(const Operand& x);                                         ///< flip of axis 0.
Array fliplr(const Operand& x);                                         ///< flip of axis 1.
/// x rotated by k quarter turns, from axis1 towards axis2.
Array rot90(const Operand& x, int k = 1, int axis1 = 0, int axis2 = 1);
Array permute_dims(const Operand& x, const Axes& axes);     ///< transpose.
Array matrix_transpose(const Operand& x);                   ///< swapaxes of the last two.
Array rollaxis(const Operand& x, int axis, int start = 0);  ///< Moves `axis` before axis `start`.

/// lax.broadcast_in_dim: axis i of x becomes axis `axes[i]` of `shape`; extents of 1 are repeated.
Array broadcast_in_dim(const Operand& x, const Shape& shape, const Dims& axes);
Array collapse(const Operand& x, int start,
               std::optional<int> stop = {});   ///< Merges axes [start, stop) into one.
Array rev(const Operand& x, const Axes& axes);  ///< flip.
Array slice_in_dim(const Operand& x, int64_t start, int64_t stop, int64_t stride = 1,
                   int axis = 0);  ///< slice along one axis.
/// Element `index` of an axis, a negative one from the end. With `keepdims` the axis stays with
/// extent 1; else it is dropped.
Array index_in_dim(const Operand& x, int64_t index, int axis = 0, bool keepdims = true);
/// dynamic_slice along one axis.
Array dynamic_slice_in_dim(const Operand& x, const Operand& start, int64_t size, int axis = 0);
Array dynamic_index_in_dim(const Operand& x, const Operand& index, int axis = 0,
                           bool keepdims = true);  ///< index_in_dim, clamped to lie within.
/// dynamic_update_slice along one axis.
Array dynamic_update_slice_in_dim(const Operand& x, const Operand& update, const Operand& start,
                                  int axis);
/// x with the element `index` of an axis replaced. `update` has the axis with extent 1, or lacks
/// it.
Array dynamic_update_index_in_dim(const Operand& x, const Operand& update, const Operand& index,
                                  int axis);

Array amax(const Operand& x, const Axes& axes = {}, bool keepdims = false);  ///< max.
Array amin(const Operand& x, const Axes& axes = {}, bool keepdims = false);  ///< min.
/// argmax of the elements that are no NaN; -1 if all are.
Array nanargmax(const Operand& x, std::optional<int> axis = {}, bool keepdims = false);
Array nanargmin(const Operand& x, std::optional<int> axis = {},
                bool keepdims = false);                            ///< argmin, as nanargmax.
Array nancumsum(const Operand& x, std::optional<int> axis = {});   ///< NaN counting as 0.
Array nancumprod(const Operand& x, std::optional<int> axis = {});  ///< NaN counting as 1.
Array nanpercentile(const Operand& x, double q, const Axes& axes = {},
                    bool keepdims = false);  ///< nanquantile(x, q / 100).
/// logsumexp minus the logarithm of the number of elements (jax.nn.logmeanexp).
Array logmeanexp(const Operand& x, const Axes& axes = {}, bool keepdims = false);
/// The integral of y along an axis by the trapezoidal rule with spacing dx.
Array trapezoid(const Operand& y, const Operand& dx = 1.0, int axis = -1);
/// The covariance matrix of the rows of a matrix, divided by n - ddof (jnp.cov); for a vector, its
/// variance.
Array cov(const Operand& x, int ddof = 1);
/// The correlation coefficients of the rows of a matrix, within [-1, 1].
Array corrcoef(const Operand& x);

/// Result k is the sum of the slices x[i] with ids[i] = k. Slices whose id is out of range are
/// ignored.
/// Shapes:  x [I…, D…], ids [I…] of integers; returns [n, D…]. A segment without slices gives 0 for
///          a sum and 1 for a product; for a maximum minus infinity, the lowest integer or false;
///          for a minimum infinity, the highest integer or true.
Array segment_sum(const Operand& x, const Operand& ids, int64_t n);
Array segment_prod(const Operand& x, const Operand& ids, int64_t n);  ///< Products.
Array segment_max(const Operand& x, const Operand& ids, int64_t n);   ///< The largest.
Array segment_min(const Operand& x, const Operand& ids, int64_t n);   ///< The smallest.

/// sum(a b) along an axis.
Array vecdot(const Operand& a, const Operand& b, int axis = -1);
Array matvec(const Operand& a, const Operand& x);  ///< a [..., n, m] times x [..., m].
Array vecmat(const Operand& x, const Operand& a);  ///< x [..., n] times a [..., n, m].
/// The vector product along an axis of extent 3. For extent 2, its third component only.
Array cross(const Operand& a, const Operand& b, int axis = -1);
/// The product of n equal matrices, by squaring; n is not negative.
Array matrix_power(const Operand& x, int64_t n);

/// Applies `function` to each slice along the leading axis of the tree `xs`, one after another, and
/// stacks the results (lax.map).
template <typename F, typename Xs>
auto map(F function, const Xs& xs, STOW_AT) {
  const auto body = [&function](const None& none, const Xs& slice) {
    return std::pair(none, as_tree(function(slice)));
  };
  return scan(body, None{}, xs, {}, at).second;
}

/// The result of a function as abstract arrays; nothing is computed (jax.eval_shape).
template <typename F, typename... Args>
auto eval_shape(F function, const Args&... args) {
  return jit(std::move(function)).lower(args...).result();
}

}  // namespace stow
