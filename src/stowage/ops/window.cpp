// Windowed reductions, XLA's general form, and the places of windowed extremes.
#include <limits>

#include "stowage/base/inside.h"
#include "stowage/ops/window_axis.h"

namespace stow::ops {
namespace {

WindowAxis axis_of(const WindowParams& p, size_t i) {
  return {p.sizes[i], p.strides[i],       p.low[i],
          p.high[i],  p.base_dilation[i], p.window_dilation[i]};
}

Shape result_shape(const InferContext& c, const WindowParams& p) {
  const ArrayType& x = c.operand(0);
  check_per_axis(c, p.sizes, x, "sizes");
  check_per_axis(c, p.strides, x, "strides");
  check_per_axis(c, p.low, x, "low");
  check_per_axis(c, p.high, x, "high");
  check_per_axis(c, p.base_dilation, x, "base_dilation");
  check_per_axis(c, p.window_dilation, x, "window_dilation");
  Dims dims;
  for (size_t i = 0; i < p.sizes.size(); ++i)
    dims.push_back(n_windows(c, x.shape[static_cast<int>(i)], axis_of(p, i), i));
  return Shape(std::move(dims));
}

std::vector<ArrayType> infer_window(const InferContext& c) {
  const auto& p = expect<WindowParams>(c, 1);
  check_kinds(c, 0, Kinds::kNumeric);
  return {result_type(c, c.operand(0).dtype, result_shape(c, p))};
}

std::vector<ArrayType> infer_window_arg(const InferContext& c) {
  const auto& p = expect<WindowParams>(c, 1);
  check_kinds(c, 0, Kinds::kNumeric);
  const bool narrow = c.operand(0).elems() <= std::numeric_limits<int32_t>::max();
  return {strong_result_type(c, narrow ? DType::kI32 : DType::kI64, result_shape(c, p))};
}

// An element counts in every window that it lies in: windows over the cotangents.
Cotangents vjp_window_sum(const VjpContext& c) {
  const auto& p = c.node.as<WindowParams>();
  return cotangents(c, [&] {
    const Val &x = c.operands[0], &ct = c.ct();
    if (x.type().elems() == 0 || ct.type().elems() == 0) return zeros_like(x);
    WindowParams t;
    for (size_t i = 0; i < p.sizes.size(); ++i) {
      const int axis = static_cast<int>(i);
      const WindowAxis w = transposed(axis_of(p, i), x.shape()[axis], ct.shape()[axis]);
      t.sizes.push_back(w.size);
      t.strides.push_back(w.stride);
      t.low.push_back(w.low);
      t.high.push_back(w.high);
      t.base_dilation.push_back(w.base_dilation);
      t.window_dilation.push_back(w.window_dilation);
    }
    return ct.builder().add1(OpKind::kWindowSum, t, {ct});
  });
}

// All goes to the first extreme of each window, as XLA's select-and-scatter.
template <OpKind Arg>
Cotangents vjp_window_extreme(const VjpContext& c) {
  return cotangents(c, [&] {
    const Val &x = c.operands[0], &ct = c.ct();
    const int64_t n = ct.type().elems();
    const Val places = x.builder().add1(Arg, c.node.as<WindowParams>(), {x});
    const Val none = full(x.builder(), {ct.dtype(), {x.type().elems()}}, 0);
    const GatherParams element{{}, {0}, {0}, {1}};
    if (x.type().elems() == 0) return zeros_like(x);
    return reshape(scatter_add(none, reshape(places, {n, 1}), reshape(ct, {n}), element),
                   x.shape());
  });
}

ShardingFactors shard_window(const InferContext& c, std::span<const ArrayType> results) {
  const auto& p = c.as<WindowParams>();
  ShardingFactors f = shard_elementwise(c, results);
  for (size_t i = 0; i < p.sizes.size(); ++i)
    if (!axis_of(p, i).is_trivial())
      f.operands[0][i] = f.results[0][i] = ShardingFactors::kUnshardable;
  return f;
}

Cost cost_window(const InferContext& c, std::span<const ArrayType> results) {
  double flops = static_cast<double>(results[0].elems());
  for (int64_t size : c.as<WindowParams>().sizes) flops *= static_cast<double>(size);
  return {flops, traffic(c, results)};
}

// A window of one example along the batch.
Batched batch_window(const BatchContext& c) {
  WindowParams p = c.node.as<WindowParams>();
  for (Dims* list : {&p.sizes, &p.strides, &p.base_dilation, &p.window_dilation})
    list->insert(list->begin(), 1);
  for (Dims* list : {&p.low, &p.high}) list->insert(list->begin(), 0);
  return rebuilt(c, p, all_batched_at(c, 0), 0);
}

constexpr OpDef windowed(OpKind op, VjpFunction vjp) {
  return {.op = op,
          .infer = infer_window,
          .vjp = vjp,
          .batch = batch_window,
          .shard = shard_window,
          .local = local_same,
          .cost = cost_window};
}
// Places count the whole operand, so no axis can be cut.
constexpr OpDef window_arg(OpKind op) {
  return {.op = op,
          .infer = infer_window_arg,
          .vjp = no_cotangents,
          .batch = batch_by_loop,
          .shard = shard_whole,
          .local = local_same,
          .cost = cost_window};
}

}  // namespace

constinit const OpDef kWindowSum = windowed(OpKind::kWindowSum, vjp_window_sum);
constinit const OpDef kWindowMax =
    windowed(OpKind::kWindowMax, vjp_window_extreme<OpKind::kWindowArgMax>);
constinit const OpDef kWindowMin =
    windowed(OpKind::kWindowMin, vjp_window_extreme<OpKind::kWindowArgMin>);
constinit const OpDef kWindowArgMax = window_arg(OpKind::kWindowArgMax);
constinit const OpDef kWindowArgMin = window_arg(OpKind::kWindowArgMin);

}  // namespace stow::ops
