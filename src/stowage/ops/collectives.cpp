// AxisIndex, AllGather, ReduceScatter, AllReduce, AllToAll, Permute: what the positions of a mesh
// do together. Their values differ from position to position; types are those of one position.
#include <algorithm>
#include <set>

#include <fmt/ranges.h>

#include "stowage/ops/rule.h"

namespace stow::ops {
namespace {

// Groups of equal size that hold each index over the axes once.
void check_groups(const InferContext& c, const CollectiveParams& p) {
  const bool has_groups = c.op != OpKind::kAxisIndex && c.op != OpKind::kPermute;
  if (p.n_groups < 1 || (p.groups.empty() && p.n_groups > 1) || (!p.groups.empty() && !has_groups))
    wrong_params(c);
  if (p.groups.empty()) return;
  const int64_t n = p.mesh.extent_of(p.axes);
  if (n % p.n_groups != 0)
    c.error("{} indices are not divisible into {} groups of equal size", n, p.n_groups);
  const std::set<int64_t> indices(p.groups.begin(), p.groups.end());
  if (static_cast<int64_t>(p.groups.size()) != n || static_cast<int64_t>(indices.size()) != n ||
      *indices.begin() != 0 || *indices.rbegin() != n - 1)
    c.error("expected groups that hold each of {} indices once, got [{}]", n,
            fmt::join(p.groups, ", "));
}

// The parameters, whose fields that the op does not use have their defaults.
const CollectiveParams& expect_group(const InferContext& c, size_t n_operands) {
  const auto& p = expect<CollectiveParams>(c, n_operands);
  if (const auto fault = mesh_fault(p.mesh)) c.error("{}", *fault);
  std::set<int> seen;
  for (int axis : p.axes) {
    if (axis < 0 || axis >= p.mesh.rank())
      c.error("mesh axis {} does not exist in {}", axis, to_string(p.mesh));
    if (!seen.insert(axis).second)
      c.error("mesh axis '{}' is named twice", p.mesh.names[static_cast<size_t>(axis)]);
  }
  check_groups(c, p);
  const bool along =
      c.op == OpKind::kAllGather || c.op == OpKind::kReduceScatter || c.op == OpKind::kAllToAll;
  if ((!along && p.axis != 0) || (c.op != OpKind::kAllToAll && p.concat_axis != 0) ||
      (c.op != OpKind::kAllReduce && p.kind != ReduceKind::kSum) ||
      (c.op != OpKind::kPermute && !p.pairs.empty()))
    wrong_params(c);
  if (along) check_axis(c, p.axis, c.operand(0));
  return p;
}

int64_t divided(const InferContext& c, int64_t axis, int64_t parts) {
  const int64_t extent = c.operand(0).shape[static_cast<int>(axis)];
  if (extent % parts != 0)
    c.error("axis {} of {} is not divisible into {} parts; the next divisible size is {}", axis,
            to_string(c.operand(0)), parts, (extent / parts + 1) * parts);
  return extent / parts;
}

int64_t multiplied(const InferContext& c, int64_t extent, int64_t parts) {
  if (__builtin_mul_overflow(extent, parts, &extent)) c.error("result is larger than 2^62 bytes");
  return extent;
}

std::vector<ArrayType> infer_axis_index(const InferContext& c) {
  expect_group(c, 0);
  return {strong_result_type(c, DType::kI32, {})};
}

std::vector<ArrayType> infer_all_gather(const InferContext& c) {
  const auto& p = expect_group(c, 1);
  Shape shape = c.operand(0).shape;
  int64_t& extent = shape[static_cast<int>(p.axis)];
  extent = multiplied(c, extent, p.group_size());
  return {result_type(c, c.operand(0).dtype, std::move(shape))};
}

std::vector<ArrayType> infer_reduce_scatter(const InferContext& c) {
  const auto& p = expect_group(c, 1);
  check_kinds(c, 0, Kinds::kNumeric);
  Shape shape = c.operand(0).shape;
  shape[static_cast<int>(p.axis)] = divided(c, p.axis, p.group_size());
  return {strong_result_type(c, c.operand(0).dtype, std::move(shape))};
}

std::vector<ArrayType> infer_all_reduce(const InferContext& c) {
  const auto& p = expect_group(c, 1);
  if (p.kind == ReduceKind::kSum) check_kinds(c, 0, Kinds::kNumeric);
  if (p.kind == ReduceKind::kAnd || p.kind == ReduceKind::kOr) check_kinds(c, 0, Kinds::kBits);
  return {strong_result_type(c, c.operand(0).dtype, c.operand(0).shape)};
}

std::vector<ArrayType> infer_all_to_all(const InferContext& c) {
  const auto& p = expect_group(c, 1);
  check_axis(c, p.concat_axis, c.operand(0));
  Shape shape = c.operand(0).shape;
  shape[static_cast<int>(p.axis)] = divided(c, p.axis, p.group_size());
  int64_t& extent = shape[static_cast<int>(p.concat_axis)];
  extent = multiplied(c, extent, p.group_size());
  return {result_type(c, c.operand(0).dtype, std::move(shape))};
}

std::vector<ArrayType> infer_permute(const InferContext& c) {
  const auto& p = expect_group(c, 1);
  if (p.pairs.size() % 2 != 0) c.error("expected pairs, got {} numbers", p.pairs.size());
  std::set<int64_t> sources, destinations;
  for (size_t i = 0; i < p.pairs.size(); ++i) {
    const int64_t at = p.pairs[i];
    if (at < 0 || at >= p.group_size())
      c.error("index {} is out of range for a group of {}", at, p.group_size());
    if (!(i % 2 == 0 ? sources : destinations).insert(at).second)
      c.error("index {} is a {} twice", at, i % 2 == 0 ? "source" : "destination");
  }
  return {result_type(c, c.operand(0).dtype, c.operand(0).shape)};
}

Val collective(OpKind op, const Val& x, CollectiveParams p) {
  return x.builder().add1(op, std::move(p), {x});
}

Cotangents vjp_all_gather(const VjpContext& c) {
  return cotangents(
      c, [&] { return collective(OpKind::kReduceScatter, c.ct(), c.node.as<CollectiveParams>()); });
}

Cotangents vjp_reduce_scatter(const VjpContext& c) {
  return cotangents(
      c, [&] { return collective(OpKind::kAllGather, c.ct(), c.node.as<CollectiveParams>()); });
}

// Each position's result depends on all operands, so that their cotangents are summed. Of an
// extreme, all elements equal to it share alike.
Cotangents vjp_all_reduce(const VjpContext& c) {
  CollectiveParams sum = c.node.as<CollectiveParams>();
  const ReduceKind kind = sum.kind;
  if (kind == ReduceKind::kAnd || kind == ReduceKind::kOr) return no_cotangents(c);
  sum.kind = ReduceKind::kSum;
  return cotangents(c, [&] {
    const Val ct = collective(OpKind::kAllReduce, c.ct(), sum);
    if (kind == ReduceKind::kSum) return ct;
    const Val is_extreme = convert(eq(c.operands[0], c.results[0]), ct.dtype());
    return ct / collective(OpKind::kAllReduce, is_extreme, sum) * is_extreme;
  });
}

Cotangents vjp_all_to_all(const VjpContext& c) {
  CollectiveParams p = c.node.as<CollectiveParams>();
  std::swap(p.axis, p.concat_axis);
  return cotangents(c, [&] { return collective(OpKind::kAllToAll, c.ct(), p); });
}

Cotangents vjp_permute(const VjpContext& c) {
  CollectiveParams p = c.node.as<CollectiveParams>();
  for (size_t i = 0; i + 1 < p.pairs.size(); i += 2) std::swap(p.pairs[i], p.pairs[i + 1]);
  return cotangents(c, [&] { return collective(OpKind::kPermute, c.ct(), p); });
}

// The batch is one more axis of what is sent.
Batched batch_collective(const BatchContext& c) {
  CollectiveParams p = c.node.as<CollectiveParams>();
  const int64_t batch = c.axes[0];
  if (c.node.op == OpKind::kAllGather || c.node.op == OpKind::kReduceScatter ||
      c.node.op == OpKind::kAllToAll)
    p.axis = shifted_for_batch(p.axis, batch);
  if (c.node.op == OpKind::kAllToAll) p.concat_axis = shifted_for_batch(p.concat_axis, batch);
  return rebuilt(c, p, c.operands, batch);
}

// In the body of a shard_map the partitioner may cut what the collective leaves as it is, with axes
// that are not the body's.
ShardingFactors shard_collective(const InferContext& c, std::span<const ArrayType> results) {
  ShardingFactors f = shard_elementwise(c, results);
  const auto& p = c.as<CollectiveParams>();
  const bool along = c.op != OpKind::kAllReduce && c.op != OpKind::kPermute;
  for (auto* lists : {&f.operands, &f.results})
    for (auto& list : *lists) {
      if (along) list[static_cast<size_t>(p.axis)] = ShardingFactors::kUnshardable;
      if (c.op == OpKind::kAllToAll)
        list[static_cast<size_t>(p.concat_axis)] = ShardingFactors::kUnshardable;
    }
  return f;
}

// Additions of a reduction; the bytes are those of one position's memory, not of the network.
Cost cost_collective(const InferContext& c, std::span<const ArrayType> results) {
  const bool adds = c.op == OpKind::kReduceScatter || c.op == OpKind::kAllReduce;
  return {adds ? static_cast<double>(c.operand(0).elems()) : 0, traffic(c, results)};
}

constexpr OpDef collective_def(OpKind op, InferFunction infer, VjpFunction vjp) {
  return {.op = op,
          .infer = infer,
          .vjp = vjp,
          .batch = batch_collective,
          .shard = shard_collective,
          .local = local_same,
          .cost = cost_collective};
}

// ---- Reshard and the borders of shard_map ----

const ReshardParams& expect_sharding(const InferContext& c, const ArrayType& whole) {
  const auto& p = params_of<ReshardParams>(c);
  if (const auto fault = mesh_fault(p.mesh)) c.error("{}", *fault);
  if (!p.sharding.partial.empty() || p.sharding.kind != ReduceKind::kSum) wrong_params(c);
  if (c.op == OpKind::kReshard && !p.automatic.empty()) wrong_params(c);
  for (int axis : p.automatic) {
    if (axis < 0 || axis >= p.mesh.rank())
      c.error("mesh axis {} does not exist in {}", axis, to_string(p.mesh));
    if (p.sharding.cuts_with(axis))
      c.error("mesh axis '{}' is automatic and cuts the array",
              p.mesh.names[static_cast<size_t>(axis)]);
  }
  if (const auto fault = sharding_fault(whole, p.sharding, p.mesh)) c.error("{}", *fault);
  return p;
}

void expect_operand(const InferContext& c) {
  check_no_graphs(c);
  params_of<ReshardParams>(c);
  check_count(c, 1);
  check_size(c, c.operand(0), "operand 0");
}

std::vector<ArrayType> infer_reshard(const InferContext& c) {
  expect_operand(c);
  expect_sharding(c, c.operand(0));
  return {c.operand(0)};
}

std::vector<ArrayType> infer_full_to_shard(const InferContext& c) {
  expect_operand(c);
  const auto& p = expect_sharding(c, c.operand(0));
  return {local_type(c.operand(0), p.sharding, p.mesh)};
}

std::vector<ArrayType> infer_shard_to_full(const InferContext& c) {
  expect_operand(c);
  const auto& p = params_of<ReshardParams>(c);
  if (const auto fault = mesh_fault(p.mesh)) c.error("{}", *fault);
  ArrayType whole = c.operand(0);
  if (p.sharding.rank() != whole.shape.rank())
    c.error("the sharding has {} axes, {} has {}", p.sharding.rank(), to_string(whole),
            whole.shape.rank());
  for (int i = 0; i < whole.shape.rank(); ++i)
    for (int axis : p.sharding.axes[static_cast<size_t>(i)]) {
      if (axis < 0 || axis >= p.mesh.rank())
        c.error("mesh axis {} does not exist in {}", axis, to_string(p.mesh));
      whole.shape[i] = multiplied(c, whole.shape[i], p.mesh.extents[static_cast<size_t>(axis)]);
    }
  check_size(c, whole, "result");
  expect_sharding(c, whole);
  return {whole};
}

// The cotangent lies as the value does.
Cotangents vjp_reshard(const VjpContext& c) {
  return cotangents(
      c, [&] { return c.ct().builder().add1(OpKind::kReshard, c.node.params, {c.ct()}); });
}

// Mesh axes that do not cut the whole array: positions along them hold copies of one part. Along
// automatic axes there is one part.
MeshAxes copied_over(const ReshardParams& p) {
  MeshAxes axes;
  for (int axis = 0; axis < p.mesh.rank(); ++axis)
    if (!p.sharding.cuts_with(axis) &&
        std::find(p.automatic.begin(), p.automatic.end(), axis) == p.automatic.end() &&
        p.mesh.extents[static_cast<size_t>(axis)] > 1)
      axes.push_back(axis);
  return axes;
}

// Applies `work` to x on the device, and moves the result back to x's memory.
template <typename Work>
Val on_device(const Val& x, const Work& work) {
  return device_put(work(device_put(x, MemoryKind::kDevice)), x.type().kind);
}

// Copies of a part may be used differently: their cotangents are summed.
Cotangents vjp_full_to_shard(const VjpContext& c) {
  return cotangents(c, [&] {
    const auto& p = c.node.as<ReshardParams>();
    Val ct = c.ct();
    const MeshAxes copies = copied_over(p);
    if (!copies.empty())
      ct = on_device(ct, [&](const Val& x) {
        return collective(OpKind::kAllReduce, x, {.mesh = p.mesh, .axes = copies});
      });
    return ct.builder().add1(OpKind::kShardToFull, p, {ct});
  });
}

// The result is one of the equal copies: each has an equal share of the cotangent.
Cotangents vjp_shard_to_full(const VjpContext& c) {
  return cotangents(c, [&] {
    const auto& p = c.node.as<ReshardParams>();
    const Val ct = c.ct().builder().add1(OpKind::kFullToShard, p, {c.ct()});
    const MeshAxes copies = copied_over(p);
    if (copies.empty()) return ct;
    return on_device(
        ct, [&](const Val& x) { return x / static_cast<double>(p.mesh.extent_of(copies)); });
  });
}

// The batch is an axis that lies whole.
Batched batch_reshard(const BatchContext& c) {
  ReshardParams p = c.node.as<ReshardParams>();
  p.sharding.axes.insert(p.sharding.axes.begin() + c.axes[0], MeshAxes());
  return rebuilt(c, p, c.operands, c.axes[0]);
}

constexpr OpDef border(OpKind op, InferFunction infer, VjpFunction vjp) {
  return {.op = op,
          .infer = infer,
          .vjp = vjp,
          .batch = batch_reshard,
          .shard = shard_whole,
          .local = local_by_partitioner,
          .cost = cost_move};
}

}  // namespace

constinit const OpDef kAxisIndex = {.op = OpKind::kAxisIndex,
                                    .infer = infer_axis_index,
                                    .vjp = no_cotangents,
                                    .batch = batch_leaf,
                                    .shard = shard_whole,
                                    .local = local_same,
                                    .cost = cost_free};
constinit const OpDef kAllGather =
    collective_def(OpKind::kAllGather, infer_all_gather, vjp_all_gather);
constinit const OpDef kReduceScatter =
    collective_def(OpKind::kReduceScatter, infer_reduce_scatter, vjp_reduce_scatter);
constinit const OpDef kAllReduce =
    collective_def(OpKind::kAllReduce, infer_all_reduce, vjp_all_reduce);
constinit const OpDef kAllToAll =
    collective_def(OpKind::kAllToAll, infer_all_to_all, vjp_all_to_all);
constinit const OpDef kPermute = collective_def(OpKind::kPermute, infer_permute, vjp_permute);
constinit const OpDef kReshard = {.op = OpKind::kReshard,
                                  .infer = infer_reshard,
                                  .vjp = vjp_reshard,
                                  .batch = batch_reshard,
                                  .shard = shard_elementwise,
                                  .local = local_by_partitioner,
                                  .cost = cost_free};
constinit const OpDef kFullToShard =
    border(OpKind::kFullToShard, infer_full_to_shard, vjp_full_to_shard);
constinit const OpDef kShardToFull =
    border(OpKind::kShardToFull, infer_shard_to_full, vjp_shard_to_full);

}  // namespace stow::ops
