// Creating, reshaping, joining, cutting and indexing arrays, by the names of jax.numpy and jax.lax.
// Not arithmetic; see math.h.
#pragma once

#include <vector>

#include "stowage/api/array.h"

namespace stow {

/// An argument that names axes: one axis, a list, or nothing. Nothing means all axes, unless the
/// function says otherwise.
class Axes {
 public:
  Axes() = default;
  Axes(int axis) : given_(true), axes_{axis} {}      // NOLINT: converts by design
  Axes(int64_t axis) : given_(true), axes_{axis} {}  // NOLINT
  Axes(std::initializer_list<int64_t> axes) : given_(true), axes_(axes) {}
  Axes(Dims axes) : given_(true), axes_(std::move(axes)) {}  // NOLINT
  bool given() const { return given_; }  ///< False if nothing was given.
  const Dims& list() const { return axes_; }  ///< As given, not normalised.

 private:
  bool given_ = false;
  Dims axes_;
};

// Errors of all that follows: TraceError naming the function, the type and the place.

Array zeros(const Shape& shape, DType dtype = DType::kF32, STOW_AT);  ///< All 0.
Array ones(const Shape& shape, DType dtype = DType::kF32, STOW_AT);   ///< All 1.
/// All `value`. Without `dtype`, the value's type decides: f32, i32 or bool; a number then has a
/// weak dtype, as in JAX.
Array full(const Shape& shape, ScalarValue value, std::optional<DType> dtype = {}, STOW_AT);
// The results have the shape of x, and its dtype unless another is given.
Array zeros_like(const Operand& x);                              ///< All 0.
Array zeros_like(const Operand& x, std::optional<DType> dtype);  ///< All 0.
Array ones_like(const Operand& x);                               ///< All 1.
Array ones_like(const Operand& x, std::optional<DType> dtype);   ///< All 1.
/// All `value`.
Array full_like(const Operand& x, ScalarValue value, std::optional<DType> dtype = {});
/// 0, 1, …, stop - 1; or start, start + step, … before stop.
Array arange(int64_t stop, DType dtype = DType::kI32, STOW_AT);
Array arange(int64_t start, int64_t stop, int64_t step = 1, DType dtype = DType::kI32, STOW_AT);
/// Returns the floats start + i step that lie before stop; their number is computed in f64.
Array arange_of_floats(double start, double stop, double step, DType dtype, SourceLocation at);
template <std::floating_point Stop>
Array arange(Stop stop, DType dtype = DType::kF32, STOW_AT) {
  return arange_of_floats(0, stop, 1, dtype, at);
}
template <concepts::Scalar Start, concepts::Scalar Stop, concepts::Scalar Step = int>
requires(std::floating_point<Start> || std::floating_point<Stop> || std::floating_point<Step>)
Array arange(Start start, Stop stop, Step step = 1, DType dtype = DType::kF32, STOW_AT) {
  return arange_of_floats(static_cast<double>(start), static_cast<double>(stop),
                          static_cast<double>(step), dtype, at);
}
/// An array of `shape` whose elements are their index along `axis`.
Array iota(const Shape& shape, int axis, DType dtype = DType::kI32, STOW_AT);
/// `n` evenly spaced numbers from start to stop; `endpoint`: stop is the last of them. Computed in
/// f32, or in f64 if the dtype has 64 bits; for an integer dtype the numbers are rounded down.
Array linspace(double start, double stop, int64_t n, bool endpoint = true,
               DType dtype = DType::kF32, STOW_AT);
/// Returns one array for each vector, broadcast over the axes of all vectors. `ij`: axis k is that
/// of vector k (indexing="ij"); else the first two axes are swapped (NumPy's default "xy").
std::vector<Array> meshgrid(const std::vector<Array>& vectors, bool ij = false, STOW_AT);
/// Ones on the diagonal of a matrix [n, m]; m is n by default.
Array eye(int64_t n, std::optional<int64_t> m = {}, DType dtype = DType::kF32, STOW_AT);

/// The elements in row-major order as an array of extents `dims`; one extent may be -1, and is
/// computed.
Array reshape(const Operand& x, const Dims& dims);
/// Reverses the axes, or permutes them: axis i of the result is axes[i] of x.
Array transpose(const Operand& x, const Axes& axes = {});
Array swapaxes(const Operand& x, int a, int b);  ///< Exchanges two axes.
Array moveaxis(const Operand& x, int source, int destination);  ///< Moves one axis.
/// Moves axis sources[i] to destinations[i]; the others keep their order.
Array moveaxis(const Operand& x, const Dims& sources, const Dims& destinations);
/// Drops axes of extent 1, by default every one.
Array squeeze(const Operand& x, const Axes& axes = {});
/// Adds axes of extent 1; `axes` are their numbers in the result.
Array expand_dims(const Operand& x, const Axes& axes);
Array broadcast_to(const Operand& x, const Shape& shape);  ///< By NumPy's rule.
/// The elements in row-major order as a vector.
Array ravel(const Operand& x);

Array concatenate(const std::vector<Array>& arrays, int axis = 0, STOW_AT);  ///< Along an axis.
/// Joins along the second axis; vectors along the first.
Array hstack(const std::vector<Array>& arrays, STOW_AT);
/// Joins along the first axis; vectors are rows.
Array vstack(const std::vector<Array>& arrays, STOW_AT);
/// Joins arrays of one shape along a new axis.
Array stack(const std::vector<Array>& arrays, int axis = 0, STOW_AT);
/// Cuts an axis into `n` equal parts.
std::vector<Array> split(const Operand& x, int n, int axis = 0);
/// Cuts an axis into n parts; if they cannot be equal, the first parts are longer by one.
std::vector<Array> array_split(const Operand& x, int n, int axis = 0);
/// The slices of an axis, each without that axis.
std::vector<Array> unstack(const Operand& x, int axis = 0);
/// Cuts an axis before each of these indices.
std::vector<Array> split_at(const Operand& x, const Dims& indices, int axis = 0);
/// Repeats the whole array repetitions[i] times along axis i.
Array tile(const Operand& x, const Dims& repetitions);
/// Repeats each element n times along an axis; without an axis, in the flattened array.
Array repeat(const Operand& x, int64_t n, std::optional<int> axis = {});
/// Repeats element i counts[i] times.
Array repeat(const Operand& x, const Dims& counts, std::optional<int> axis = {});
Array flip(const Operand& x, const Axes& axes = {});  ///< Reverses axes, all by default.
/// Inserts `values` before indices of an axis of x; without an axis, of x flattened (jnp.insert).
/// Indices count in x before the insertion, negative ones from the end. With one number `place`,
/// all values go there, and their axis 0 becomes `axis`. With a list, value i goes before
/// places[i]; values broadcast.
/// Types: the dtype of x. Errors: also TraceError for an index out of range.
Array insert(const Operand& x, int64_t place, const Operand& values, std::optional<int> axis = {});
Array insert(const Operand& x, const Dims& places, const Operand& values,
             std::optional<int> axis = {});
inline Array insert(const Operand& x, std::initializer_list<int64_t> places, const Operand& values,
                    std::optional<int> axis = {}) {
  return insert(x, Dims(places), values, axis);  // else {1} were a number
}
/// x without the indices `places` of an axis; without an axis, of x flattened (jnp.delete, whose
/// name is a keyword of C++). Errors: also TraceError for an index out of range.
Array delete_(const Operand& x, const Dims& places, std::optional<int> axis = {});
/// Fills `shape` with the elements of x in row-major order, starting over when they run out
/// (jnp.resize); zeros if x has none.
Array resize(const Operand& x, const Shape& shape);
/// Shifts elements along an axis, cyclically.
Array roll(const Operand& x, int64_t shift, int axis);
Array roll(const Operand& x, int64_t shift);  ///< Rolls the flattened array, in the shape of x.
Array roll(const Operand& x, const Dims& shifts, const Dims& axes);  ///< One axis after another.

/// How many elements to add before and after an axis.
struct PadWidth {
  int64_t before = 0, after = 0;
};
/// Pads with `value`, one width an axis (jnp.pad's mode "constant").
Array pad(const Operand& x, const std::vector<PadWidth>& widths, const Operand& value = 0);
/// The values that padding adds, axis by axis, as in NumPy.
enum class PadMode : uint8_t {
  kEdge,       ///< The nearest element.
  kReflect,    ///< The array mirrored at its edge element, which is not repeated.
  kSymmetric,  ///< The array mirrored beyond its edge element, which is repeated.
  kWrap,       ///< The array, repeated periodically.
  kLinearRamp,  ///< A straight line from the edge element to `end_value`; floats only.
  // Statistics of the whole axis, or of the `stat_length` elements nearest to the padded end.
  // Results for integers are rounded.
  kMaximum,
  kMinimum,
  kMean,
  kMedian
};
struct PadOptions {
  std::optional<int64_t> stat_length = {};  ///< Elements that a statistic reads; none: all.
  double end_value = 0;                     ///< Outermost value of kLinearRamp.
};
/// Pads by a rule, one width for each axis (jnp.pad).
/// Errors: also TraceError if an axis without elements is padded.
Array pad(const Operand& x, const std::vector<PadWidth>& widths, PadMode mode,
          const PadOptions& options = {});
/// XLA's pad: adds low[i] and high[i] elements at the ends of axis i (a negative number removes)
/// and interior[i] between neighbouring elements.
Array pad_general(const Operand& x, const Operand& value, const Dims& low, const Dims& high,
                  const Dims& interior);

/// Elements start, start + step, … of the half-open range [start, stop) of one axis, as
/// Array::slice.
Array slice(const Operand& x, int axis, int64_t start, int64_t stop, int64_t step = 1);
/// A slice of these sizes whose starts, one scalar for each axis, are known at run time only. They
/// are clamped so that the slice lies within x.
Array dynamic_slice(const Operand& x, const std::vector<Array>& starts, const Dims& sizes);
/// `x` with `update` written at starts that are known at run time only, clamped so that it lies
/// within x.
Array dynamic_update_slice(const Operand& x, const Operand& update,
                           const std::vector<Array>& starts);

/// The effect of an index that is out of range after negative ones have been counted from the end.
enum class IndexMode : uint8_t {
  kFill,  ///< Reads NaN, the smallest signed or largest unsigned integer, or true; writes nothing.
  kClip,  ///< Stands for the nearest index in range; in `take` any negative index stands for 0.
  kWrap,  ///< Stands for the index modulo the extent.
};
/// Elements `indices` of an axis. `fill_value`: the value that kFill reads.
/// Shapes: the shape of x with the axis replaced by the shape of indices.
Array take(const Operand& x, const Operand& indices, int axis = 0,
           IndexMode mode = IndexMode::kFill, const std::optional<ScalarValue>& fill_value = {});
/// Takes from the flattened array (jnp.take without an axis).
Array take_flat(const Operand& x, const Operand& indices, IndexMode mode = IndexMode::kFill,
                const std::optional<ScalarValue>& fill_value = {});
/// result[i, j, …] = x[…, indices[i, j, …] at `axis`, …]; the other axes broadcast.
Array take_along_axis(const Operand& x, const Operand& indices, int axis,
                      IndexMode mode = IndexMode::kFill,
                      const std::optional<ScalarValue>& fill_value = {});
/// The k-th diagonal of two axes, as the last axis of the result.
Array diagonal(const Operand& x, int64_t k = 0, int axis1 = 0, int axis2 = 1);
/// A vector as the k-th diagonal of a matrix, or the diagonal of a matrix.
Array diag(const Operand& x, int64_t k = 0);
/// Ones on and below the k-th diagonal of [n, m].
Array tri(int64_t n, std::optional<int64_t> m = {}, int64_t k = 0, DType dtype = DType::kF32,
          STOW_AT);
/// x with zeros above the k-th diagonal of the last two axes.
Array tril(const Operand& x, int64_t k = 0);
/// x with zeros below the k-th diagonal of the last two axes.
Array triu(const Operand& x, int64_t k = 0);

/// A half-open range of an axis; a missing end is the axis's own.
struct Range {
  std::optional<int64_t> start, stop;
  int64_t step = 1;
};
inline Range range(int64_t start, int64_t stop, int64_t step = 1) {  ///< One with both ends.
  return {start, stop, step};
}

/// One entry of Array::index: an integer (the axis is dropped), a range, all_of_axis, newaxis,
/// ellipsis, or an array of integers. Several arrays broadcast together. As in NumPy, their axes
/// stand where the first array does, or in front if other kinds of entries stand between arrays or
/// integers.
class Index {
 public:
  enum class Kind : uint8_t { kInteger, kRange, kNewAxis, kEllipsis, kArray };
  Index(int i) : kind(Kind::kInteger), integer(i) {}           // NOLINT: converts by design
  Index(int64_t i) : kind(Kind::kInteger), integer(i) {}       // NOLINT
  Index(Range r) : kind(Kind::kRange), range(r) {}             // NOLINT
  Index(Array a) : kind(Kind::kArray), array(std::move(a)) {}  // NOLINT
  explicit Index(Kind k) : kind(k) {}

  Kind kind;
  int64_t integer = 0;
  Range range;
  Array array;
};
inline const Index all_of_axis{Index::Kind::kRange};
inline const Index newaxis{Index::Kind::kNewAxis};
inline const Index ellipsis{Index::Kind::kEllipsis};

}  // namespace stow
