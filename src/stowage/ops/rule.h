// Shared code of the op definitions: checks of operands, parameters and axes, and common rules.
// Not an interface for other folders; only the sources of ops/ include it.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/ops/build.h"
#include "stowage/ops/table.h"

namespace stow::ops {

// ---- Checks. Each throws TraceError through the context if its condition does not hold. ----

/// The extents are not negative and the array has fewer than 2^62 bytes, zero extents counting as
/// one. `what` begins the message: "result", "operand 1".
void check_size(const InferContext& c, const ArrayType& type, std::string_view what);
void check_count(const InferContext& c, size_t n_operands);
void check_no_graphs(const InferContext& c);
/// Every operand passes check_size() and is on the device.
void check_operands(const InferContext& c);
/// Throws the error for parameters that do not fit the op.
[[noreturn]] void wrong_params(const InferContext& c);

/// Returns the parameters, which must be a P.
template <typename P>
const P& params_of(const InferContext& c) {
  const P* p = std::get_if<P>(&c.params);
  if (!p) wrong_params(c);
  return *p;
}

/// Checks an op without nested graphs whose operands, of any number, are on the device. Returns its
/// parameters.
template <typename P>
const P& expect_any_count(const InferContext& c) {
  check_no_graphs(c);
  const P& p = params_of<P>(c);
  check_operands(c);
  return p;
}
/// Checks an op without nested graphs that moves no byte: its one operand may be in any memory.
/// Returns its parameters.
template <typename P>
const P& expect_view(const InferContext& c) {
  check_no_graphs(c);
  const P& p = params_of<P>(c);
  check_count(c, 1);
  check_size(c, c.operand(0), "operand 0");
  return p;
}
/// As expect_any_count(), for an op of `n_operands` operands.
template <typename P>
const P& expect(const InferContext& c, size_t n_operands) {
  check_count(c, n_operands);
  return expect_any_count<P>(c);
}

/// `axis` names an axis of `type`.
void check_axis(const InferContext& c, int64_t axis, const ArrayType& type);
/// All `axes` are in [0, rank) and none occurs twice; `what` names them in messages.
void check_axes(const InferContext& c, const Dims& axes, int rank, std::string_view what);
/// As check_axes, and increasing.
void check_sorted_axes(const InferContext& c, const Dims& axes, int rank, std::string_view what);
/// `list` has one entry for each axis of `type`.
void check_per_axis(const InferContext& c, const Dims& list, const ArrayType& type,
                    std::string_view what);

/// A set of dtypes that an op takes.
enum class Kinds : uint8_t { kAny, kNumeric, kSigned, kFloat, kInteger, kBits };
void check_kinds(const InferContext& c, size_t operand, Kinds kinds);
/// Operands from `first` on have one dtype.
void check_same_dtypes(const InferContext& c, size_t first = 0);
/// Operands from `first` on have one shape.
void check_same_shapes(const InferContext& c, size_t first = 0);

// ---- Results ----

/// Returns the type of a result on the device, which passes check_size(). Weak if all operands are.
ArrayType result_type(const InferContext& c, DType dtype, Shape shape);
/// As result_type(), in the memory of the first operand.
ArrayType result_type_in_place(const InferContext& c, DType dtype, Shape shape);
/// As result_type(), but never weak.
ArrayType strong_result_type(const InferContext& c, DType dtype, Shape shape);

inline bool contains(const Dims& list, int64_t x) {
  for (int64_t y : list)
    if (x == y) return true;
  return false;
}
/// The axes in [0, rank) that are not in `axes`, in order.
Dims other_axes(const Dims& axes, int rank);
/// 0, 1, … rank - 1.
Dims all_axes(int rank);

// ---- Gradients ----

/// The rule of an op that is not differentiable, or constant almost everywhere.
Cotangents no_cotangents(const VjpContext& x);

/// Calls f[i]() for each operand i whose cotangent is needed, in order.
template <typename... F>
Cotangents cotangents(const VjpContext& x, F... f) {
  Cotangents result(x.operands.size());
  size_t i = 0;
  ((x.needed[i] ? void(result[i] = f()) : void(), ++i), ...);
  return result;
}

// ---- Batching ----

/// Returns the number of axis `axis` of one example after the batch axis is inserted at `batch`.
inline int64_t shifted_for_batch(int64_t axis, int64_t batch) {
  return axis + (axis >= batch ? 1 : 0);
}
/// shifted_for_batch() of each axis.
Dims shifted_for_batch(Dims axes, int64_t batch);
/// Returns `list` with `value` inserted before entry `at`.
Dims inserted(Dims list, int64_t at, int64_t value);
Val move_axis(const Val& x, int64_t from, int64_t to);
/// Returns operand i with its batch axis moved to `axis`; broadcast if it has none.
Val batched_at(const BatchContext& c, size_t i, int64_t axis);
/// Returns batched_at() of every operand.
std::vector<Val> all_batched_at(const BatchContext& c, int64_t axis);
/// Appends the node's op with these parameters and operands; all results have the batch at `axis`.
Batched rebuilt(const BatchContext& c, Params params, std::span<const Val> operands, int64_t axis);

/// For nodes without operands, which are never batched: an error.
[[noreturn]] Batched batch_leaf(const BatchContext& c);
/// For elementwise ops.
Batched batch_elementwise(const BatchContext& c);
/// For identity ops: result i is operand i.
Batched batch_marks(const BatchContext& c);
/// For ops with AxisParams whose operands all have that axis.
Batched batch_along_axis(const BatchContext& c);
/// For reductions: ops with AxesParams that drop those axes.
Batched batch_reduce(const BatchContext& c);
/// For any op: a scan over the examples. Used by ops that cannot take another axis.
Batched batch_by_loop(const BatchContext& c);

// ---- Sharding ----

/// `n` letters, counting from `first`.
std::vector<int> letters(int n, int first = 0);
/// For operands and results of one shape: letter i for axis i.
ShardingFactors shard_elementwise(const InferContext& c, std::span<const ArrayType> results);
/// As shard_elementwise(), but the axis of AxisParams stays whole.
ShardingFactors shard_but_axis(const InferContext& c, std::span<const ArrayType> results);
/// Every axis stays whole.
ShardingFactors shard_whole(const InferContext& c, std::span<const ArrayType> results);

// ---- Localisation ----

/// Builds the same op with the same parameters.
std::vector<Val> local_same(const LocalContext& c);
/// Builds the same op with these parameters, and with these operands.
std::vector<Val> local_with(const LocalContext& c, Params params);
std::vector<Val> local_with(const LocalContext& c, Params params, std::span<const Val> operands);
/// For ShapeParams: builds the op with the shape of the local result.
std::vector<Val> local_shaped(const LocalContext& c);
/// For ops that the partitioner rewrites itself; never called.
[[noreturn]] std::vector<Val> local_by_partitioner(const LocalContext& c);
/// Returns, as a scalar, the index of the first element that a position holds of an axis of extent
/// `extent` that mesh axes `axes` cut; zero without mesh axes.
Val local_start(const LocalContext& c, const MeshAxes& axes, int64_t extent,
                DType dtype = DType::kI32);

// ---- Cost ----

/// Bytes of all operands and results.
double traffic(const InferContext& c, std::span<const ArrayType> results);
/// One operation an element of the first result.
Cost cost_elementwise(const InferContext& c, std::span<const ArrayType> results);
/// For ops that read and write without arithmetic.
Cost cost_move(const InferContext& c, std::span<const ArrayType> results);
/// For views and identity ops: no cost.
Cost cost_free(const InferContext& c, std::span<const ArrayType> results);

// ---- Elementwise families ----

/// For N operands of one type, whose dtype is in K; the result has that type.
template <size_t N, Kinds K>
std::vector<ArrayType> infer_elementwise(const InferContext& c) {
  expect<NoParams>(c, N);
  check_kinds(c, 0, K);
  check_same_dtypes(c);
  check_same_shapes(c);
  return {result_type(c, c.operand(0).dtype, c.operand(0).shape)};
}

using InferFunction = std::vector<ArrayType> (*)(const InferContext&);
using VjpFunction = Cotangents (*)(const VjpContext&);

constexpr OpDef elementwise(OpKind op, InferFunction infer, VjpFunction vjp) {
  return {.op = op,
          .infer = infer,
          .vjp = vjp,
          .batch = batch_elementwise,
          .shard = shard_elementwise,
          .local = local_same,
          .cost = cost_elementwise};
}

}  // namespace stow::ops
