// The parameters of each op, one plain struct an op that has any.
// Not operands; whatever is a value at run time is an operand.
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
/// Reshape: the new shape. DynamicSlice(operand, a start an axis…): the sizes of the slice.
/// RandomBits(key u32[2], first i64, or none): u32 of `shape`, Threefry 2x32 over a 64-bit counter
/// that is `first`, or 0, at the first element.
struct ShapeParams {
  Shape shape;
  friend bool operator==(const ShapeParams&, const ShapeParams&) = default;
};
/// Convert, Bitcast: the new dtype is `dtype`.
struct DTypeParams {
  DType dtype = DType::kF32;
  friend bool operator==(const DTypeParams&, const DTypeParams&) = default;
};
/// Broadcast: operand axis i becomes result axis `axes[i]`, its extent 1 or that of the result.
struct BroadcastParams {
  Shape shape;
  Dims axes;
  friend bool operator==(const BroadcastParams&, const BroadcastParams&) = default;
};
/// Transpose: result axis i is operand axis `axes[i]`. Reductions, Reverse: the axes meant.
struct AxesParams {
  Dims axes;
  friend bool operator==(const AxesParams&, const AxesParams&) = default;
};
/// Half-open ranges with a positive stride.
struct SliceParams {
  Dims start, limit, stride;
  friend bool operator==(const SliceParams&, const SliceParams&) = default;
};
/// Pad(operand, scalar): low and high may be negative; interior counts between elements.
struct PadParams {
  Dims low, high, interior;
  friend bool operator==(const PadParams&, const PadParams&) = default;
};
/// Concatenate, the cumulative ops, LinearScan(a, b), Sort (the first operand is the key; stable):
/// along `axis`. `flag` is the cumulative ops' reverse and Sort's descending.
struct AxisParams {
  int64_t axis = 0;
  bool flag = false;
  friend bool operator==(const AxisParams&, const AxisParams&) = default;
};
/// ArgMax, ArgMin: the first index of the extreme, NaN counting as extreme.
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
/// WindowSum and its like: one entry an axis of the operand, XLA's reduce-window. Between elements
/// of the operand lie `base_dilation` - 1 holes, then low and high are added (negative: cut off);
/// holes and what was added take no part. WindowArgMax, WindowArgMin: the row-major place in the
/// operand of the first extreme of each window, -1 of a window without elements.
struct WindowParams {
  Dims sizes, strides, low, high, base_dilation, window_dilation;
  friend bool operator==(const WindowParams&, const WindowParams&) = default;
};
/// Gather(operand, indices): XLA's general form; the index vector is the last axis of indices.
/// Out-of-range starts are clamped, or with a third operand, a scalar, such windows are filled.
/// Scatter and its like (operand, indices, updates) with the same
/// fields (offset_axes being XLA's update window, collapsed_axes its inserted window); a window of
/// updates not wholly in range is dropped, others are taken in row-major order of the indices.
struct GatherParams {
  Dims offset_axes;      ///< Result axes that are offsets into the slice.
  Dims collapsed_axes;   ///< Operand axes of slice size 1 that are dropped.
  Dims start_index_map;  ///< Operand axis of each component of the index vector.
  Dims slice_sizes;      ///< One an operand axis.
  /// Collapsed axes whose starts are not in the index vectors: the start along operand axis
  /// `batch_axes[k]` is the place of the index vector along axis `index_batch_axes[k]` of indices.
  Dims batch_axes = {}, index_batch_axes = {};
  /// Number of tiles of the whole array of which a scatter writes one: one in so many updates lies
  /// within that tile. It changes the estimated cost of a scatter, not its result.
  int64_t n_tiles = 1;
  friend bool operator==(const GatherParams&, const GatherParams&) = default;
};
/// DotGeneral(lhs, rhs): result axes are batch, free of lhs, free of rhs.
struct DotParams {
  Dims lhs_contract, rhs_contract, lhs_batch, rhs_batch;
  DType out = DType::kF32;
  friend bool operator==(const DotParams&, const DotParams&) = default;
};
/// Convolution(lhs [N,C,S…], rhs [O,C/groups,K…]) -> [N/batch_groups,O,…], XLA's general form with
/// one entry a spatial axis; padding may be negative, dilation puts zeros between elements.
struct ConvParams {
  Dims strides, low, high, lhs_dilation, rhs_dilation;
  int64_t feature_groups = 1, batch_groups = 1;
  friend bool operator==(const ConvParams&, const ConvParams&) = default;
};
/// Attention(q [B,T,H,D], k [B,S,G,D], v [B,S,G,D]) -> (out [B,T,H,D], lse f32 [B,H,T]).
/// AttentionGrad(q, k, v, out, lse, d_out) -> (dq, dk, dv). Both also with KeyIntervals (attention.h).
struct AttentionParams {
  float scale = 1;
  bool causal = false;
  int64_t offset = 0;  ///< Causal: query i sees the keys up to i + offset.
  friend bool operator==(const AttentionParams&, const AttentionParams&) = default;
};
/// DevicePut: the memory kind of the result.
struct DevicePutParams {
  MemoryKind kind = MemoryKind::kDevice;
  friend bool operator==(const DevicePutParams&, const DevicePutParams&) = default;
};
/// Name: the name a checkpoint policy may ask for. DebugPrint(token, arrays…) -> token: its format.
struct NameParams {
  std::string name;
  friend bool operator==(const NameParams&, const NameParams&) = default;
};

/// Scan(consts…, carries…, scanned…) -> (final carries…, stacked…), body in the node's graph 0:
/// (consts…, carries…, slices…) -> (carries…, slices…).
struct ScanParams {
  int64_t length = 0;
  int n_consts = 0, n_carries = 0;
  bool reverse = false;
  Dims in_axes;   ///< The scanned axis of each scanned operand.
  Dims out_axes;  ///< The stacked axis of each stacked result.
  /// The last so many stacked results are residuals, saved for a backward scan.
  int n_residuals = 0;
  /// Number of iterations that are laid out one after another in the loop's body; 0: all of them.
  /// It changes the program's form alone; the numbers are those of a loop.
  int64_t unroll = 1;
  friend bool operator==(const ScanParams&, const ScanParams&) = default;
};

/// Cond(index, operands…) -> results of the branch chosen. The branches are the node's graphs, each
/// (operands…) -> (results…). The index is an i32 scalar, clamped to the branches there are; or a
/// bool scalar for two branches, of which graph 0 is taken for false and graph 1 for true.
struct CondParams {
  /// The last so many results are residuals, saved for a backward cond; which branch fills which
  /// is the branches' affair, and what one does not need it fills with zeros.
  int n_residuals = 0;
  friend bool operator==(const CondParams&, const CondParams&) = default;
};

/// While(condition consts…, body consts…, carries…) -> final carries…; graph 0, the condition, is
/// (condition consts…, carries…) -> bool[] and graph 1, the body, (body consts…, carries…) ->
/// (carries…). The body runs as long as the condition holds of the carries.
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
/// A checkpoint policy: its answers, and its name for reports.
struct Policy {
  std::string name;
  std::function<PolicyAnswer(const PolicyQuery&)> decide;
  std::vector<std::string> wanted_names;  ///< Names it acts on; each must exist to have effect.
};
using PolicyPtr = std::shared_ptr<const Policy>;

/// Checkpoint(args…) -> results of graph 0. `region` is a template: null means nothing saveable.
struct CheckpointParams {
  PolicyPtr policy;
  bool prevent_cse = true;
  friend bool operator==(const CheckpointParams&, const CheckpointParams&) = default;
};

/// CustomVjp(args…, captures…): graph 0 gives the results from the operands; graph 1 the results and
/// residuals from the operands; graph 2 a cotangent for each argument from (residuals…, a cotangent
/// for each result…, captures…). Graphs 1 and 2 stand in for the gradient of graph 0.
struct CustomVjpParams {
  int n_args = 0, n_residuals = 0;
  friend bool operator==(const CustomVjpParams&, const CustomVjpParams&) = default;
};

/// Collectives and AxisIndex. A group is the positions of `mesh` that differ along `axes` alone; the
/// index of a position in it has the first of them as the major one. Where `groups` is not empty, it
/// divides that group into `n_groups` of equal size: it lists the indices, each once, a group after another
/// (JAX's axis_index_groups), and a position's index is its place in its group's list. Array axes stay where
/// they are (JAX's tiled=True).
///   AxisIndex -> i32[]: the index.   AllReduce: every element reduced over the group by `kind`.
///   AllGather: the parts along `axis`, by index.   ReduceScatter: the sum's part along `axis`.
///   AllToAll: part i along `axis` goes to index i; the parts that come stand along `concat_axis`.
///   Permute: `pairs` holds source, destination, source, …; zeros where nothing comes.
/// A sum is the balanced pairwise tree over the index, ((0+1)+(2+3))+…, split at the largest power of
/// two below the number of terms, in the array's dtype.
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
/// Reshard: the operand lies so from here on. FullToShard(whole) -> the part at a position, and
/// ShardToFull(part) -> whole: the borders of code that is written for one position (shard_map). Along
/// axes that are `automatic` that code sees the whole, and the partitioner cuts it.
struct ReshardParams {
  MeshShape mesh;
  AxisSharding sharding;  ///< Without partial axes; of a border without automatic ones.
  MeshAxes automatic = {};
  friend bool operator==(const ReshardParams&, const ReshardParams&) = default;
};

using Params =
    std::variant<NoParams, ConstantParams, IotaParams, ShapeParams, DTypeParams, BroadcastParams,
                 AxesParams, SliceParams, PadParams, AxisParams, ArgReduceParams, GatherParams,
                 DotParams, AttentionParams, DevicePutParams, NameParams, ScanParams, CondParams,
                 WhileParams, CheckpointParams, CustomVjpParams, TopKParams, WindowParams, ConvParams,
                 CollectiveParams, ReshardParams>;

}  // namespace stow::ir
