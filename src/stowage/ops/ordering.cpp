// CumSum and Sort: what follows an order along one axis.
#include <cmath>
#include <limits>

#include "stowage/ops/rule.h"

namespace stow::ops {
namespace {

std::vector<ArrayType> infer_cumsum(const InferContext& c) {
  const auto& p = expect<AxisParams>(c, 1);
  check_kinds(c, 0, Kinds::kNumeric);
  check_axis(c, p.axis, c.operand(0));
  return {derived(c, c.operand(0).dtype, c.operand(0).shape)};
}

Cotangents vjp_cumsum(const VjpContext& c) {
  const auto& p = c.node.as<AxisParams>();
  return cotangents(c, [&] { return cumsum(c.ct(), p.axis, !p.flag); });
}

std::vector<ArrayType> infer_sort(const InferContext& c) {
  const auto& p = expect_any_count<AxisParams>(c);
  if (c.operands.empty()) c.error("takes at least 1 operand, got 0");
  check_axis(c, p.axis, c.operand(0));
  check_same_shapes(c);
  std::vector<ArrayType> results;
  for (const ArrayType& x : c.operands) {
    results.push_back(strong(c, x.dtype, x.shape));
    results.back().weak = x.weak;
  }
  return results;
}

// Sort is stable, so sorting an iota by the same key gives the permutation that was applied;
// sorting the cotangents by that permutation undoes it.
Cotangents vjp_sort(const VjpContext& c) {
  const auto& p = c.node.as<AxisParams>();
  Cotangents result(c.operands.size());
  std::vector<size_t> which;
  for (size_t i = 0; i < c.operands.size(); ++i)
    if (c.needed[i] && c.cotangents[i]) which.push_back(i);
  if (which.empty()) return result;

  const Val& key = c.operands[0];
  const bool narrow = key.shape()[static_cast<int>(p.axis)] <= std::numeric_limits<int32_t>::max();
  const Val places = iota(key.builder(), {narrow ? DType::kI32 : DType::kI64, key.shape()}, p.axis);
  const Val keyed[] = {key, places};
  std::vector<Val> by_place = {sort(keyed, p.axis, p.flag)[1]};
  for (size_t i : which) by_place.push_back(*c.cotangents[i]);
  const std::vector<Val> sorted = sort(by_place, p.axis, false);
  for (size_t i = 0; i < which.size(); ++i) result[which[i]] = sorted[i + 1];
  return result;
}

Cost cost_sort(const InferContext& c, std::span<const ArrayType> results) {
  const auto n = static_cast<double>(c.operand(0).elems());
  const auto extent =
      static_cast<double>(c.operand(0).shape[static_cast<int>(c.as<AxisParams>().axis)]);
  return {extent > 1 ? n * std::log2(extent) : 0, traffic(c, results)};
}

}  // namespace

constinit const OpDef kCumSum = {.op = OpKind::kCumSum,
                                 .infer = infer_cumsum,
                                 .vjp = vjp_cumsum,
                                 .batch = batch_along_axis,
                                 .shard = shard_but_axis,
                                 .cost = cost_elementwise};
constinit const OpDef kSort = {.op = OpKind::kSort,
                               .infer = infer_sort,
                               .vjp = vjp_sort,
                               .batch = batch_along_axis,
                               .shard = shard_but_axis,
                               .cost = cost_sort};

}  // namespace stow::ops
