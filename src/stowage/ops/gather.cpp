// Gather, XLA's general form: it clamps each start so that its window lies within the operand. With
// a third operand, a scalar, windows that do not lie within are filled with that.
#include <algorithm>

#include "stowage/core/scalar.h"
#include "stowage/ops/gather_rule.h"

namespace stow::ops {
namespace {

constexpr int kWhole = ShardingFactors::kUnshardable;

}  // namespace

Shape window_shape(const InferContext& c, const GatherParams& p) {
  const ArrayType &x = c.operand(0), &indices = c.operand(1);
  const int rank = x.shape.rank();
  if (!is_integer(indices.dtype) || indices.shape.rank() == 0)
    c.error("indices must be integers with a last axis of index vectors, got {}",
            to_string(indices));
  const int n_batch = indices.shape.rank() - 1;
  check_per_axis(c, p.slice_sizes, x, "slice_sizes");
  if (p.n_tiles < 1) c.error("n_tiles must be positive, got {}", p.n_tiles);
  check_sorted_axes(c, p.collapsed_axes, rank, "collapsed axis");
  check_axes(c, p.start_index_map, rank, "start index axis");
  if (static_cast<int64_t>(p.start_index_map.size()) != indices.shape[n_batch])
    c.error("start_index_map has {} entries, the index vectors of {} have {}",
            p.start_index_map.size(), to_string(indices), indices.shape[n_batch]);
  for (int i = 0; i < rank; ++i) {
    const int64_t size = p.slice_sizes[static_cast<size_t>(i)];
    if (size < 0 || size > x.shape[i])
      c.error("slice size {} of axis {} does not fit {}", size, i, to_string(x));
    if (size != 1 && contains(p.collapsed_axes, i))
      c.error("collapsed axis {} has slice size {}, not 1", i, size);
  }
  if (p.batch_axes.size() != p.index_batch_axes.size())
    c.error("batch_axes has {} entries, index_batch_axes {}", p.batch_axes.size(),
            p.index_batch_axes.size());
  check_axes(c, p.batch_axes, rank, "batch axis");
  check_axes(c, p.index_batch_axes, n_batch, "index batch axis");
  for (size_t k = 0; k < p.batch_axes.size(); ++k) {
    const auto axis = static_cast<int>(p.batch_axes[k]);
    const auto along = static_cast<int>(p.index_batch_axes[k]);
    if (!contains(p.collapsed_axes, axis) || contains(p.start_index_map, axis))
      c.error("batch axis {} must be collapsed and have no start index", axis);
    if (x.shape[axis] != indices.shape[along])
      c.error("batch axis {} of {} goes along with axis {} of {}, which differs in extent", axis,
              to_string(x), along, to_string(indices));
  }
  const Dims kept = other_axes(p.collapsed_axes, rank);
  if (p.offset_axes.size() != kept.size())
    c.error("offset_axes has {} entries, {} axes of {} are not collapsed", p.offset_axes.size(),
            kept.size(), to_string(x));
  const int result_rank = n_batch + static_cast<int>(kept.size());
  check_sorted_axes(c, p.offset_axes, result_rank, "offset axis");
  Dims dims;
  int batch = 0;
  size_t offset = 0;
  for (int i = 0; i < result_rank; ++i)
    dims.push_back(contains(p.offset_axes, i) ? p.slice_sizes[static_cast<size_t>(kept[offset++])]
                                              : indices.shape[batch++]);
  return Shape(std::move(dims));
}

namespace {

// One number a component of the index vectors, as indices of the same type.
Val per_component(const Val& indices, const Dims& values) {
  const bool alike =
      std::all_of(values.begin(), values.end(), [&](int64_t v) { return v == values[0]; });
  GraphBuilder& b = indices.builder();
  if (values.empty() || alike)
    return broadcast_scalar(constant_int(b, indices.dtype(), values.empty() ? 0 : values[0]),
                            indices.shape());
  ConstantParams p{{indices.dtype(), {static_cast<int64_t>(values.size())}}, {}};
  for (int64_t value : values) {
    const auto bytes = encode_scalar_int(indices.dtype(), value);
    STOW_CHECK(bytes, "{} does not fit {}", value, dtype_name(indices.dtype()));
    p.data.insert(p.data.end(), bytes->begin(), bytes->end());
  }
  return broadcast(b.add1(OpKind::kConstant, std::move(p), {}), indices.shape(),
                   {indices.rank() - 1});
}

// The last start of each component at which the window lies within, as far as the dtype counts.
Val last_starts(const Val& indices, const Shape& x, const GatherParams& p) {
  Dims last;
  for (int64_t axis : p.start_index_map)
    last.push_back(std::min(x[static_cast<int>(axis)] - p.slice_sizes[static_cast<size_t>(axis)],
                            max_int_value(indices.dtype())));
  return per_component(indices, last);
}

// Starts as gather reads them.
Val clamp_starts(const Val& indices, const Shape& x, const GatherParams& p) {
  const Val capped = min(indices, last_starts(indices, x, p));
  return is_signed_int(indices.dtype()) ? max(capped, zeros_like(indices)) : capped;
}

}  // namespace

Val windows_within(const Val& indices, const Shape& x, const GatherParams& p) {
  Val within = le(indices, last_starts(indices, x, p));
  if (is_signed_int(indices.dtype()))
    within = logical_and(within, ge(indices, zeros_like(indices)));
  return reduce(OpKind::kReduceAnd, within, {indices.rank() - 1});
}

namespace {

std::vector<ArrayType> infer_gather(const InferContext& c) {
  const bool fills = c.operands.size() == 3;
  const auto& p = expect<GatherParams>(c, fills ? 3 : 2);
  ArrayType type = strong_result_type(c, c.operand(0).dtype, window_shape(c, p));
  if (fills && (c.operand(2).dtype != type.dtype || c.operand(2).shape.rank() != 0))
    c.error("what fills must be {}[], got {}", dtype_name(type.dtype), to_string(c.operand(2)));
  type.weak = c.operand(0).weak && !fills;
  return {std::move(type)};
}

Cotangents vjp_gather(const VjpContext& c) {
  const bool fills = c.operands.size() == 3;
  Cotangents result(c.operands.size());
  const auto& p = c.node.as<GatherParams>();
  const Val &x = c.operands[0], &indices = c.operands[1];
  if (c.needed[0]) {  // a scatter drops what was filled
    const Val starts = fills ? indices : clamp_starts(indices, x.shape(), p);
    result[0] = scatter_add(zeros_like(x), starts, c.ct(), p);
  }
  if (fills && c.needed[2]) {
    const Val &ct = c.ct(), within = windows_within(indices, x.shape(), p);
    const Val here = broadcast(within, ct.shape(), other_axes(p.offset_axes, ct.rank()));
    result[2] = reduce(OpKind::kReduceSum, select(here, zeros_like(ct), ct), all_axes(ct.rank()));
  }
  return result;
}

}  // namespace

WideGather widen_gather(const BatchContext& c, bool operand) {
  const auto& p = c.node.as<GatherParams>();
  const bool indexed = c.batched(1);
  WideGather wide{p, indexed ? batched_at(c, 1, 0) : c.operands[1]};
  GatherParams& w = wide.params;
  w.offset_axes = shifted_for_batch(p.offset_axes, 0);
  if (indexed) w.index_batch_axes = shifted_for_batch(p.index_batch_axes, 0);
  if (!operand) return wide;
  w.batch_axes = shifted_for_batch(p.batch_axes, 0);
  w.collapsed_axes = shifted_for_batch(p.collapsed_axes, 0);
  w.start_index_map = shifted_for_batch(p.start_index_map, 0);
  w.slice_sizes = inserted(p.slice_sizes, 0, indexed ? 1 : c.size);
  if (!indexed) {
    w.offset_axes = inserted(w.offset_axes, 0, 0);
    return wide;
  }
  w.collapsed_axes = inserted(w.collapsed_axes, 0, 0);
  w.batch_axes = inserted(w.batch_axes, 0, 0);
  w.index_batch_axes = inserted(w.index_batch_axes, 0, 0);
  return wide;
}

ShardingFactors shard_gather_like(const InferContext& c, const Shape& windows) {
  const auto& p = c.as<GatherParams>();
  const int rank = c.operand(0).shape.rank(), n_batch = c.operand(1).shape.rank() - 1;
  const Dims kept = other_axes(p.collapsed_axes, rank);
  ShardingFactors f;
  f.operands = {std::vector<int>(static_cast<size_t>(rank), kWhole), letters(n_batch, rank)};
  f.operands[1].push_back(kWhole);
  for (size_t k = 0; k < p.batch_axes.size(); ++k) {
    const auto axis = static_cast<size_t>(p.batch_axes[k]);
    f.operands[0][axis] = static_cast<int>(axis);
    f.operands[1][static_cast<size_t>(p.index_batch_axes[k])] = static_cast<int>(axis);
  }
  std::vector<int> result;
  size_t offset = 0;
  size_t batch = 0;
  for (int i = 0; i < windows.rank(); ++i) {
    if (!contains(p.offset_axes, i)) {
      result.push_back(f.operands[1][batch++]);
      continue;
    }
    const auto axis = static_cast<size_t>(kept[offset++]);
    const bool full = p.slice_sizes[axis] == c.operand(0).shape[static_cast<int>(axis)];
    if (full) f.operands[0][axis] = static_cast<int>(axis);
    result.push_back(full ? static_cast<int>(axis) : kWhole);
  }
  f.results = {std::move(result)};
  // Indices of other dtypes might not hold the difference of two starts.
  const DType index = c.operand(1).dtype;
  if (index == DType::kI32 || index == DType::kI64)
    for (int64_t axis : p.start_index_map) {
      const auto i = static_cast<size_t>(axis);
      if (p.slice_sizes[i] == 1 && c.operand(0).shape[static_cast<int>(axis)] > 1)
        f.operands[0][i] = static_cast<int>(axis);
    }
  return f;
}

GatherParams local_gather_params(const LocalContext& c) {
  GatherParams p = c.node.as<GatherParams>();
  for (size_t i = 0; i < p.slice_sizes.size(); ++i)
    if (p.slice_sizes[i] == c.operand_types[0].shape[static_cast<int>(i)])
      p.slice_sizes[i] /= c.mesh.extent_of(c.operand_axes(0)[i]);
  return p;
}

bool cuts_indexed_axis(const LocalContext& c) {
  const auto& p = c.node.as<GatherParams>();
  for (int64_t axis : p.start_index_map) {
    const auto i = static_cast<size_t>(axis);
    const bool full = p.slice_sizes[i] == c.operand_types[0].shape[static_cast<int>(axis)];
    if (!full && !c.operand_axes(0)[i].empty()) return true;
  }
  return false;
}

Val local_indices(const LocalContext& c, const Val& indices) {
  const auto& p = c.node.as<GatherParams>();
  std::vector<Val> starts;
  for (int64_t axis : p.start_index_map) {
    const auto i = static_cast<size_t>(axis);
    const int64_t extent = c.operand_types[0].shape[static_cast<int>(axis)];
    const bool full = p.slice_sizes[i] == extent;
    const Val start =
        local_start(c, full ? MeshAxes() : c.operand_axes(0)[i], extent, indices.dtype());
    starts.push_back(reshape(start, {1}));
  }
  return indices - broadcast(concatenate(starts, 0), indices.shape(), {indices.rank() - 1});
}

namespace {

// Rows of a table that is cut along its indexed axis: each position looks up those that it holds,
// has zeros for the others, and the parts are summed. The whole extent clamps starts.
ShardingFactors shard_gather(const InferContext& c, std::span<const ArrayType> results) {
  ShardingFactors f = shard_gather_like(c, results[0].shape);
  if (c.operands.size() == 3) {
    f.operands.emplace_back();
    for (int64_t axis : c.as<GatherParams>().start_index_map)
      if (c.as<GatherParams>().slice_sizes[static_cast<size_t>(axis)] !=
          c.operand(0).shape[static_cast<int>(axis)])
        f.operands[0][static_cast<size_t>(axis)] = kWhole;
  }
  if (results[0].dtype == DType::kBool)
    f.kinds.assign(f.operands[0].size(), ReduceKind::kOr);
  return f;
}

std::vector<Val> local_gather(const LocalContext& c) {
  const GatherParams p = local_gather_params(c);
  if (!cuts_indexed_axis(c)) return local_with(c, p);
  const Val clamped =
      clamp_starts(c.operands[1], c.operand_types[0].shape, c.node.as<GatherParams>());
  const Val starts = local_indices(c, clamped);
  const Val nothing = constant(c.builder, c.operands[0].dtype(), 0);
  return local_with(c, p, std::vector{c.operands[0], starts, nothing});
}

Cost cost_gather(const InferContext& c, std::span<const ArrayType> results) {
  return {
      0, 2.0 * static_cast<double>(results[0].bytes()) + static_cast<double>(c.operand(1).bytes())};
}

Batched batch_gather(const BatchContext& c) {
  const bool fills = c.operands.size() == 3;
  if (fills && c.batched(2)) return batch_by_loop(c);
  const WideGather wide = widen_gather(c, c.batched(0));
  const Val x = c.batched(0) ? batched_at(c, 0, 0) : c.operands[0];
  std::vector<Val> operands{x, wide.indices};
  if (fills) operands.push_back(c.operands[2]);
  return rebuilt(c, wide.params, operands, 0);
}

}  // namespace

constinit const OpDef kGather = {.op = OpKind::kGather,
                                 .infer = infer_gather,
                                 .vjp = vjp_gather,
                                 .batch = batch_gather,
                                 .shard = shard_gather,
                                 .local = local_gather,
                                 .cost = cost_gather};

}  // namespace stow::ops
