// Shared code of the op definitions: checks of operands, parameters and axes, and common rules.
// Not part of the contract; only the sources of ops/ include it.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/ops/build.h"
#include "stowage/ops/table.h"

namespace stow::ops {

// ---- Checks. Each throws TraceError through the context. ----

/// The extents are not negative and the array is below 2^62 bytes; zero extents count as one, so
/// that no product overflows. `what` begins the message: "result", "operand 1".
void check_size(const InferContext& c, const ArrayType& type, std::string_view what);
void check_count(const InferContext& c, size_t n_operands);
void check_no_graphs(const InferContext& c);
/// Every operand has a possible size and lies on the device.
void check_operands(const InferContext& c);
[[noreturn]] void wrong_params(const InferContext& c);

template <typename P>
const P& params_of(const InferContext& c) {
  const P* p = std::get_if<P>(&c.params);
  if (!p) wrong_params(c);
  return *p;
}

/// The parameters of an op without nested graphs whose operands lie on the device. The second form
/// leaves the number of operands to the rule.
template <typename P>
const P& expect_any_count(const InferContext& c) {
  check_no_graphs(c);
  const P& p = params_of<P>(c);
  check_operands(c);
  return p;
}
/// The same for an op that moves no byte: its one operand may lie anywhere.
template <typename P>
const P& expect_view(const InferContext& c) {
  check_no_graphs(c);
  const P& p = params_of<P>(c);
  check_count(c, 1);
  check_size(c, c.operand(0), "operand 0");
  return p;
}
template <typename P>
const P& expect(const InferContext& c, size_t n_operands) {
  check_count(c, n_operands);
  return expect_any_count<P>(c);
}

/// `axis` names an axis of `type`.
void check_axis(const InferContext& c, int64_t axis, const ArrayType& type);
/// All in [0, rank) and none twice; `what` is their name in messages.
void check_axes(const InferContext& c, const Dims& axes, int rank, std::string_view what);
/// As check_axes, and increasing.
void check_sorted_axes(const InferContext& c, const Dims& axes, int rank, std::string_view what);
/// A list has one entry an axis of `type`.
void check_per_axis(const InferContext& c, const Dims& list, const ArrayType& type,
                    std::string_view what);

/// The dtypes an op takes.
enum class Kinds : uint8_t { kAny, kNumeric, kSigned, kFloat, kInteger, kBits };
void check_kinds(const InferContext& c, size_t operand, Kinds kinds);
/// Operands `first`… are alike in dtype (and shape).
void check_same_dtypes(const InferContext& c, size_t first = 0);
void check_same_shapes(const InferContext& c, size_t first = 0);

// ---- Results ----

/// A checked result on the device. Weak where all operands are.
ArrayType derived(const InferContext& c, DType dtype, Shape shape);
/// The same where the first operand lies.
ArrayType derived_in_place(const InferContext& c, DType dtype, Shape shape);
/// The same, never weak.
ArrayType strong(const InferContext& c, DType dtype, Shape shape);

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

/// The rule of what is not differentiable, or constant almost everywhere.
Cotangents no_cotangents(const VjpContext& x);

/// Calls one function an operand, in order, for those that are needed.
template <typename... F>
Cotangents cotangents(const VjpContext& x, F... f) {
  Cotangents result(x.operands.size());
  size_t i = 0;
  ((x.needed[i] ? void(result[i] = f()) : void(), ++i), ...);
  return result;
}

// ---- Batching ----

/// Returns the place of an axis of one example once the batch stands at axis `batch`.
inline int64_t beside(int64_t axis, int64_t batch) {
  return axis + (axis >= batch ? 1 : 0);
}
Dims beside(Dims axes, int64_t batch);
/// `list` with `value` put before entry `at`.
Dims inserted(Dims list, int64_t at, int64_t value);
Val move_axis(const Val& x, int64_t from, int64_t to);
/// Operand i with the batch at `axis`; broadcast where it has none.
Val batched_at(const BatchContext& c, size_t i, int64_t axis);
/// All operands so.
std::vector<Val> all_batched_at(const BatchContext& c, int64_t axis);
/// Appends the node with other parameters and operands; all results have the batch at `axis`.
Batched rebuilt(const BatchContext& c, Params params, std::span<const Val> operands, int64_t axis);

/// Leaves: never over a batch.
[[noreturn]] Batched batch_leaf(const BatchContext& c);
/// Operands and results alike, each element by itself.
Batched batch_elementwise(const BatchContext& c);
/// Result i is operand i.
Batched batch_marks(const BatchContext& c);
/// AxisParams, all operands having that axis.
Batched batch_along_axis(const BatchContext& c);
/// AxesParams, the axes vanishing: reductions.
Batched batch_reduce(const BatchContext& c);
/// Any op: a scan over the examples. The rule where an op takes no further axis.
Batched batch_by_loop(const BatchContext& c);

// ---- Sharding ----

/// `n` letters, counting from `first`.
std::vector<int> letters(int n, int first = 0);
/// All operands and results are alike: letter i for axis i.
ShardingFactors shard_elementwise(const InferContext& c, std::span<const ArrayType> results);
/// As elementwise, with one axis whole (AxisParams).
ShardingFactors shard_but_axis(const InferContext& c, std::span<const ArrayType> results);
/// Every axis whole.
ShardingFactors shard_whole(const InferContext& c, std::span<const ArrayType> results);

// ---- Localisation ----

/// The same op with the same parameters.
std::vector<Val> local_same(const LocalContext& c);
/// The same op with other parameters, and with other operands.
std::vector<Val> local_with(const LocalContext& c, Params params);
std::vector<Val> local_with(const LocalContext& c, Params params, std::span<const Val> operands);
/// ShapeParams: the shape of the local result.
std::vector<Val> local_shaped(const LocalContext& c);
/// For ops that the partitioner takes apart itself: never called.
[[noreturn]] std::vector<Val> local_by_partitioner(const LocalContext& c);
/// The number of the first element that a position holds of an axis of extent `extent` that `axes`
/// cut, as a scalar. Zero where nothing does.
Val local_start(const LocalContext& c, const MeshAxes& axes, int64_t extent,
                DType dtype = DType::kI32);

// ---- Cost ----

/// Bytes of all operands and results.
double traffic(const InferContext& c, std::span<const ArrayType> results);
/// One operation an element of the first result.
Cost cost_elementwise(const InferContext& c, std::span<const ArrayType> results);
/// Reads and writes, without arithmetic.
Cost cost_move(const InferContext& c, std::span<const ArrayType> results);
/// Views and marks.
Cost cost_free(const InferContext& c, std::span<const ArrayType> results);

// ---- Elementwise families ----

/// N operands alike, of the kinds given; the result is like them.
template <size_t N, Kinds K>
std::vector<ArrayType> infer_elementwise(const InferContext& c) {
  expect<NoParams>(c, N);
  check_kinds(c, 0, K);
  check_same_dtypes(c);
  check_same_shapes(c);
  return {derived(c, c.operand(0).dtype, c.operand(0).shape)};
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
