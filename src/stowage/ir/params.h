// The parameters of the ops, as plain structs.
// Not operands; a value that is known at run time only is an operand.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "stowage/core/array_type.h"
#include "stowage/core/axis_sharding.h"
#include "stowage/ir/op_list.h"

namespace stow::ir {

struct NoParams {
  friend bool operator==(const NoParams&, const NoParams&) = default;
};
/// Constant: the bytes of one element, or of every element in row-major order.
struct ConstantParams {
  ArrayType type;
  std::vector<std::byte> data;
  bool is_splat() const { return static_cast<int64_t>(data.size()) == dtype_bytes(type.dtype); }
  friend bool operator==(const ConstantParams&, const ConstantParams&) = default;
};
/// Iota: counts along `axis` of `type`.
struct IotaParams {
  ArrayType type;
  int64_t axis = 0;
  friend bool operator==(const IotaParams&, const IotaParams&) = default;
};
/// Reshape: the new shape. DynamicSlice(operand, one start for each axis…): the sizes of the slice.
/// RandomBits(key u32[2], optional first i64[]) -> u32 of `shape`: Threefry 2x32 over a 64-bit
/// counter that begins at `first`, or at 0 without it.
struct ShapeParams {
  Shape shape;
  friend bool operator==(const ShapeParams&, const ShapeParams&) = default;
};
/// Convert, Bitcast: the new dtype is `dtype`.
struct DTypeParams {
  DType dtype = DType::kF32;
  friend bool operator==(const DTypeParams&, const DTypeParams&) = default;
};
/// Broadcast: operand axis i becomes result axis `axes[i]`; its extent is 1 or that of the result.
struct BroadcastParams {
  Shape shape;
  Dims axes;
  friend bool operator==(const BroadcastParams&, const BroadcastParams&) = default;
};
/// Transpose: result axis i is operand axis `axes[i]`. Reductions, Reverse: the reduced or reversed
/// axes.
struct AxesParams {
  Dims axes;
  friend bool operator==(const AxesParams&, const AxesParams&) = default;
};
/// Slice: for each axis, the half-open range [start, limit) with a positive stride.
struct SliceParams {
  Dims start, limit, stride;
  friend bool operator==(const SliceParams&, const SliceParams&) = default;
};
/// Pad(operand, scalar): for each axis, elements added in front, behind and between two elements.
/// `low` and `high` may be negative, which removes elements.
struct PadParams {
  Dims low, high, interior;
  friend bool operator==(const PadParams&, const PadParams&) = default;
};
/// Concatenate, the cumulative ops, LinearScan(a, b), Sort (stable; the first operand is the key):
/// the axis. `flag` means reverse for cumulative ops and descending for Sort.
struct AxisParams {
  int64_t axis = 0;
  bool flag = false;
  friend bool operator==(const AxisParams&, const AxisParams&) = default;
};
/// ArgMax, ArgMin: the first index of the largest or smallest element; a NaN counts as that
/// element.
struct ArgReduceParams {
  int64_t axis = 0;
  DType index_dtype = DType::kI32;
  friend bool operator==(const ArgReduceParams&, const ArgReduceParams&) = default;
};
/// TopK(operand) -> (values, i32 indices): the `k` largest along `axis`, the largest first.
struct TopKParams {
  int64_t axis = 0, k = 0;
  friend bool operator==(const TopKParams&, const TopKParams&) = default;
};
/// WindowSum, WindowMax, WindowMin: XLA's reduce-window, with one entry for each axis of the
/// operand. `base_dilation` - 1 holes lie between elements of the operand; then `low` and `high`
/// holes are added in front and behind (negative: elements are removed). Holes take no part in the
/// reduction. WindowArgMax, WindowArgMin: the row-major index in the operand of the first largest
/// or smallest element of each window; -1 for a window without elements.
struct WindowParams {
  Dims sizes, strides, low, high, base_dilation, window_dilation;
  friend bool operator==(const WindowParams&, const WindowParams&) = default;
};
/// Gather(operand, indices, optional fill): XLA's general form; the index vector is the last axis
/// of `indices`. Out-of-range starts are clamped; with `fill`, a scalar, windows out of range are
/// filled with it instead. Scatter, ScatterAdd, … (operand, indices, updates) have the same fields:
/// `offset_axes` are XLA's update_window_dims, `collapsed_axes` its inserted_window_dims. A window
/// of updates that is not wholly in range is dropped; the others are applied in row-major order of
/// the indices.
struct GatherParams {
  Dims offset_axes;      ///< Result axes that are offsets into the slice.
  Dims collapsed_axes;   ///< Operand axes of slice size 1 that are dropped.
  Dims start_index_map;  ///< Operand axis of each component of the index vector.
  Dims slice_sizes;      ///< By operand axis.
  /// Collapsed axes whose starts are not in the index vectors (XLA's batching dims): the start
  /// along operand axis `batch_axes[k]` is the position of the index vector along axis
  /// `index_batch_axes[k]` of `indices`.
  Dims batch_axes = {}, index_batch_axes = {};
  /// For a scatter whose operand is one tile of a larger array: the number of tiles, so one update
  /// in `n_tiles` lies in range. It changes the estimated cost of the scatter, not its result.
  int64_t n_tiles = 1;
  friend bool operator==(const GatherParams&, const GatherParams&) = default;
};
/// DotGeneral(lhs, rhs): result axes are the batch axes, the free axes of lhs, the free axes of
/// rhs. `out` is the dtype of the result.
struct DotParams {
  Dims lhs_contract, rhs_contract, lhs_batch, rhs_batch;
  DType out = DType::kF32;
  friend bool operator==(const DotParams&, const DotParams&) = default;
};
/// Convolution(lhs [N,C,S…], rhs [O,C/groups,K…]) -> [N/batch_groups,O,…]: XLA's general form, with
/// one entry for each spatial axis. Padding may be negative; dilation puts zeros between elements.
struct ConvParams {
  Dims strides, low, high, lhs_dilation, rhs_dilation;
  int64_t feature_groups = 1, batch_groups = 1;
  friend bool operator==(const ConvParams&, const ConvParams&) = default;
};
/// Attention(q [B,T,H,D], k [B,S,G,D], v [B,S,G,D]) -> (out [B,T,H,D], lse f32 [B,H,T]).
/// AttentionGrad(q, k, v, out, lse, d_out) -> (dq, dk, dv). Both also take KeyIntervals
/// (attention.h).
struct AttentionParams {
  float scale = 1;
  bool causal = false;
  int64_t offset = 0;  ///< If causal, query i sees the keys up to i + offset.
  friend bool operator==(const AttentionParams&, const AttentionParams&) = default;
};
/// DevicePut: the memory kind of the result.
struct DevicePutParams {
  MemoryKind kind = MemoryKind::kDevice;
  friend bool operator==(const DevicePutParams&, const DevicePutParams&) = default;
};
/// Name: the name by which a checkpoint policy may ask for the value. DebugPrint(token, arrays…) ->
/// token: the format.
struct NameParams {
  std::string name;
  friend bool operator==(const NameParams&, const NameParams&) = default;
};

/// Scan(consts…, carries…, scanned…) -> (final carries…, stacked…). The node's graph 0 is the body,
/// (consts…, carries…, slices…) -> (carries…, slices…).
struct ScanParams {
  int64_t length = 0;
  int n_consts = 0, n_carries = 0;
  bool reverse = false;
  Dims in_axes;   ///< The scanned axis of each scanned operand.
  Dims out_axes;  ///< The stacked axis of each stacked result.
  /// The last `n_residuals` stacked results are residuals, saved for a backward scan.
  int n_residuals = 0;
  /// Number of iterations that are written out in the loop's body; 0: all of them. It changes only
  /// the form of the program; the bits are those of the loop.
  int64_t unroll = 1;
  friend bool operator==(const ScanParams&, const ScanParams&) = default;
};

/// Cond(index, operands…) -> results of the chosen branch. The branches are the node's graphs, each
/// (operands…) -> (results…). The index is an i32 scalar, clamped to the number of branches; or,
/// for two branches, a bool scalar: false takes graph 0, true takes graph 1.
struct CondParams {
  /// The last `n_residuals` results are residuals, saved for a backward cond. A branch fills
  /// residuals that it does not use with zeros.
  int n_residuals = 0;
  friend bool operator==(const CondParams&, const CondParams&) = default;
};

/// While(condition consts…, body consts…, carries…) -> final carries…. Graph 0, the condition, is
/// (condition consts…, carries…) -> bool[]; graph 1, the body, is (body consts…, carries…) ->
/// (carries…). The body runs as long as the condition is true.
struct WhileParams {
  int n_cond_consts = 0, n_body_consts = 0;
  friend bool operator==(const WhileParams&, const WhileParams&) = default;
};

/// The answer of a checkpoint policy for a value.
enum class Mark : uint8_t { kUndecided, kKeep, kRecompute, kOffload };

/// A value that a policy is asked about.
struct PolicyQuery {
  OpKind op;
  const struct Node* node;
  std::string_view name;  ///< The name, if `op` is kName; else empty.
  /// All names of the same data in the region: of this value, of values from which it is reshaped,
  /// transposed or reversed, and of reshapes, transposes and reversals of it.
  std::span<const std::string_view> twins = {};
};
struct PolicyAnswer {
  Mark mark = Mark::kRecompute;
  MemoryKind destination = MemoryKind::kPinnedHost;  ///< Memory that Mark::kOffload moves to.
};
/// A checkpoint policy: a function that decides for each value, and a name for reports.
struct Policy {
  std::string name;
  std::function<PolicyAnswer(const PolicyQuery&)> decide;
  std::vector<std::string> wanted_names;  ///< Names it acts on; each must exist to have effect.
};
using PolicyPtr = std::shared_ptr<const Policy>;

/// Checkpoint(args…) -> results of graph 0. A null policy saves nothing.
struct CheckpointParams {
  PolicyPtr policy;
  bool prevent_cse = true;
  friend bool operator==(const CheckpointParams&, const CheckpointParams&) = default;
};

/// CustomVjp(args…, captures…) -> results. Graph 0 is the function, (args…, captures…) ->
/// (results…). Graph 1 is the forward rule, (args…, captures…) -> (results…, residuals…). Graph 2
/// is the backward rule, (residuals…, cotangents of the results…, captures…) -> (cotangents of the
/// args…). Graphs 1 and 2 replace the gradient of graph 0.
struct CustomVjpParams {
  int n_args = 0, n_residuals = 0;
  friend bool operator==(const CustomVjpParams&, const CustomVjpParams&) = default;
};

/// Collectives and AxisIndex. A group is the positions of `mesh` that differ only along `axes`. The
/// index of a position in its group counts along `axes`, the first being the major one. A nonempty
/// `groups` divides that group into `n_groups` smaller ones of equal size: it lists the indices of
/// one group after another, each index once (JAX's axis_index_groups), and a position's index is
/// then its place in the list of its group. Array axes stay where they are (JAX's tiled=True).
///   AxisIndex -> i32[]: the index.
///   AllReduce: each element reduced over the group by `kind`.
///   AllGather: the parts concatenated along `axis`, in the order of the index.
///   ReduceScatter: the part of the sum along `axis` that belongs to the index.
///   AllToAll: sends part i along `axis` to index i, and joins received parts along `concat_axis`.
///   Permute: `pairs` lists source, destination, source, …; other positions get zeros.
/// A sum is the balanced pairwise tree over the index, ((0+1)+(2+3))+…, split at the largest power
/// of two below the number of terms, in the array's dtype.
struct CollectiveParams {
  MeshShape mesh;
  MeshAxes axes;
  int64_t axis = 0, concat_axis = 0;
  ReduceKind kind = ReduceKind::kSum;
  Dims pairs = {};
  Dims groups = {};
  int64_t n_groups = 1;
  int64_t group_size() const { return mesh.extent_of(axes) / n_groups; }
  friend bool operator==(const CollectiveParams&, const CollectiveParams&) = default;
};
/// Reshard: the operand, with `sharding` from here on. FullToShard(whole) -> the part at one
/// position, and ShardToFull(part) -> whole, are the borders of code that is written for one
/// position (shard_map). Along the mesh axes in `automatic`, that code sees the whole array and the
/// partitioner cuts it.
struct ReshardParams {
  MeshShape mesh;
  AxisSharding sharding;  ///< Never partial; never cut by axes in `automatic`.
  MeshAxes automatic = {};
  friend bool operator==(const ReshardParams&, const ReshardParams&) = default;
};

using Params =
    std::variant<NoParams, ConstantParams, IotaParams, ShapeParams, DTypeParams, BroadcastParams,
                 AxesParams, SliceParams, PadParams, AxisParams, ArgReduceParams, GatherParams,
                 DotParams, AttentionParams, DevicePutParams, NameParams, ScanParams, CondParams,
                 WhileParams, CheckpointParams, CustomVjpParams, TopKParams, WindowParams,
                 ConvParams, CollectiveParams, ReshardParams>;

}  // namespace stow::ir
