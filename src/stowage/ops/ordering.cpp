// Sort and TopK.
#include <cmath>
#include <limits>

#include "stowage/ops/rule.h"

namespace stow::ops {
namespace {

std::vector<ArrayType> infer_sort(const InferContext& c) {
  const auto& p = expect_any_count<AxisParams>(c);
  if (c.operands.empty()) c.error("takes at least 1 operand, got 0");
  check_axis(c, p.axis, c.operand(0));
  check_same_shapes(c);
  std::vector<ArrayType> results;
  for (const ArrayType& x : c.operands) {
    results.push_back(strong_result_type(c, x.dtype, x.shape));
    results.back().weak = x.weak;
  }
  return results;
}

// Elements along `axis`, each index vector being one number.
GatherParams elements_along(int64_t axis, int rank) {
  const Dims all = all_axes(rank), others = other_axes({axis}, rank);
  return {{}, all, {axis}, Dims(static_cast<size_t>(rank), 1), others, others};
}

// Sort is stable, so sorting an iota by the same key gives the permutation that was applied. The
// cotangents are read by its inverse.
Cotangents vjp_sort(const VjpContext& c) {
  const auto& p = c.node.as<AxisParams>();
  Cotangents result(c.operands.size());
  std::vector<size_t> which;
  for (size_t i = 0; i < c.operands.size(); ++i)
    if (c.needed[i] && c.cotangents[i]) which.push_back(i);
  if (which.empty()) return result;

  const Val& key = c.operands[0];
  if (key.type().elems() == 0) {
    for (size_t i : which) result[i] = c.cotangents[i];
    return result;
  }
  const bool narrow = key.shape()[static_cast<int>(p.axis)] <= std::numeric_limits<int32_t>::max();
  const Val places = iota(key.builder(), {narrow ? DType::kI32 : DType::kI64, key.shape()}, p.axis);
  const Val keyed[] = {key, places};
  Dims vectors = key.shape().dims();
  vectors.push_back(1);
  const Val from = reshape(sort(keyed, p.axis, p.flag)[1], Shape(vectors));
  const GatherParams elements = elements_along(p.axis, key.rank());
  const Val inverse =
      key.builder().add1(OpKind::kScatter, elements, {zeros_like(places), from, places});
  const Val to = reshape(inverse, Shape(vectors));
  for (size_t i : which) result[i] = gather(*c.cotangents[i], to, elements);
  return result;
}

std::vector<ArrayType> infer_top_k(const InferContext& c) {
  const auto& p = expect<TopKParams>(c, 1);
  const ArrayType& x = c.operand(0);
  check_axis(c, p.axis, x);
  const int64_t extent = x.shape[static_cast<int>(p.axis)];
  if (p.k < 0 || p.k > extent)
    c.error("the {} largest are asked for of {} on axis {} of {}", p.k, extent, p.axis,
            to_string(x));
  if (extent > std::numeric_limits<int32_t>::max())
    c.error("i32 cannot count axis {} of {}", p.axis, to_string(x));
  Shape shape = x.shape;
  shape[static_cast<int>(p.axis)] = p.k;
  return {result_type(c, x.dtype, shape), strong_result_type(c, DType::kI32, shape)};
}

// Each cotangent goes back to the place that its value came from; all axes but one are rows.
Cotangents vjp_top_k(const VjpContext& c) {
  Cotangents result(1);
  if (!c.needed[0] || !c.cotangents[0]) return result;
  const auto& p = c.node.as<TopKParams>();
  const Val& x = c.operands[0];
  const int64_t n = x.shape()[static_cast<int>(p.axis)];
  if (p.k == 0 || x.type().elems() == 0) {
    result[0] = zeros_like(x);
    return result;
  }
  Dims order = other_axes({p.axis}, x.rank()), back(order.size() + 1), turned;
  order.push_back(p.axis);
  for (size_t i = 0; i < order.size(); ++i)
    back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  for (int64_t axis : order) turned.push_back(x.shape()[static_cast<int>(axis)]);
  const int64_t rows = x.type().elems() / n;
  const auto flat = [&](const Val& v) { return reshape(transpose(v, order), {rows, p.k}); };
  const Val places = reshape(flat(c.results[1]), {rows, p.k, 1});
  const Val none = full(x.builder(), {c.ct().dtype(), {rows, n}}, 0);
  const Val ct = scatter_add(none, places, flat(c.ct()), elements_along(1, 2));
  result[0] = transpose(reshape(ct, Shape(turned)), back);
  return result;
}

Batched batch_top_k(const BatchContext& c) {
  TopKParams p = c.node.as<TopKParams>();
  ++p.axis;
  return rebuilt(c, p, all_batched_at(c, 0), 0);
}

ShardingFactors shard_top_k(const InferContext& c, std::span<const ArrayType> results) {
  ShardingFactors f = shard_elementwise(c, results);
  const auto axis = static_cast<size_t>(c.as<TopKParams>().axis);
  for (auto* list : {&f.operands[0], &f.results[0], &f.results[1]})
    (*list)[axis] = ShardingFactors::kUnshardable;
  return f;
}

Cost cost_top_k(const InferContext& c, std::span<const ArrayType> results) {
  const auto n = static_cast<double>(c.operand(0).elems());
  const auto k = static_cast<double>(c.as<TopKParams>().k);
  return {n * (1 + std::log2(1 + k)), traffic(c, results)};
}

Cost cost_sort(const InferContext& c, std::span<const ArrayType> results) {
  const auto n = static_cast<double>(c.operand(0).elems());
  const auto extent =
      static_cast<double>(c.operand(0).shape[static_cast<int>(c.as<AxisParams>().axis)]);
  return {extent > 1 ? n * std::log2(extent) : 0, traffic(c, results)};
}

}  // namespace

constinit const OpDef kSort = {.op = OpKind::kSort,
                               .infer = infer_sort,
                               .vjp = vjp_sort,
                               .batch = batch_along_axis,
                               .shard = shard_but_axis,
                               .local = local_same,
                               .cost = cost_sort};
constinit const OpDef kTopK = {.op = OpKind::kTopK,
                               .infer = infer_top_k,
                               .vjp = vjp_top_k,
                               .batch = batch_top_k,
                               .shard = shard_top_k,
                               .local = local_same,
                               .cost = cost_top_k};

}  // namespace stow::ops
