// Convolution. Its layout is fixed, lhs [N,C,S...], rhs [O,C/groups,K...], since transposes are
// views; both gradients are convolutions again.
#include "stowage/base/inside.h"
#include "stowage/ops/window_axis.h"

namespace stow::ops {
namespace {

WindowAxis axis_of(const ConvParams& p, size_t i, int64_t kernel) {
  return {kernel, p.strides[i], p.low[i], p.high[i], p.lhs_dilation[i], p.rhs_dilation[i]};
}

void push(ConvParams& p, const WindowAxis& w) {
  p.strides.push_back(w.stride);
  p.low.push_back(w.low);
  p.high.push_back(w.high);
  p.lhs_dilation.push_back(w.base_dilation);
  p.rhs_dilation.push_back(w.window_dilation);
}

Val convolve(const Val& lhs, const Val& rhs, ConvParams p) {
  return lhs.builder().add1(OpKind::kConvolution, std::move(p), {lhs, rhs});
}

std::vector<ArrayType> infer_convolution(const InferContext& c) {
  const auto& p = expect<ConvParams>(c, 2);
  const ArrayType &lhs = c.operand(0), &rhs = c.operand(1);
  check_same_dtypes(c);
  check_kinds(c, 0, Kinds::kNumeric);
  const int rank = lhs.shape.rank();
  if (rank < 2 || rhs.shape.rank() != rank)
    c.error("lhs [N,C,S...] and rhs [O,C/groups,K...] are of one rank of at least 2, got {} and {}",
            to_string(lhs), to_string(rhs));
  const auto spatial = static_cast<size_t>(rank - 2);
  for (const auto& [list, name] :
       {std::pair{&p.strides, "strides"}, std::pair{&p.low, "low"}, std::pair{&p.high, "high"},
        std::pair{&p.lhs_dilation, "lhs_dilation"}, std::pair{&p.rhs_dilation, "rhs_dilation"}})
    if (list->size() != spatial)
      c.error("{} has {} entries for the {} spatial axes of {}", name, list->size(), spatial,
              to_string(lhs));
  const int64_t n = lhs.shape[0], channels = lhs.shape[1], features = rhs.shape[0];
  const int64_t g = p.feature_groups, b = p.batch_groups;
  if (g < 1 || b < 1 || (g > 1 && b > 1))
    c.error("{} feature groups and {} batch groups; both are at least 1 and one of them is 1", g,
            b);
  if (channels % g != 0 || channels / g != rhs.shape[1])
    c.error("{} channels of lhs {} in {} groups differ from {} of rhs {}", channels, to_string(lhs),
            g, rhs.shape[1], to_string(rhs));
  if (features % (g * b) != 0)
    c.error("{} features of rhs {} do not divide into {} groups", features, to_string(rhs), g * b);
  if (n % b != 0)
    c.error("batch size {} of lhs {} does not divide into {} groups", n, to_string(lhs), b);
  Dims dims = {n / b, features};
  for (size_t i = 0; i < spatial; ++i) {
    const int axis = static_cast<int>(i) + 2;
    dims.push_back(n_windows(c, lhs.shape[axis], axis_of(p, i, rhs.shape[axis]), i));
  }
  return {result_type(c, lhs.dtype, Shape(std::move(dims)))};
}

// x with its first two axes swapped.
Val turned(const Val& x) {
  Dims order = all_axes(x.rank());
  std::swap(order[0], order[1]);
  return transpose(x, order);
}

// [A * n, B, ...] -> [n, A, B, ...] for n groups on the leading axis.
Val grouped(const Val& x, int64_t groups) {
  Dims dims = x.shape().dims();
  dims[0] /= groups;
  dims.insert(dims.begin(), groups);
  return reshape(x, Shape(dims));
}

// Joins axis `axis` with the next.
Val joined(const Val& x, size_t axis) {
  Dims dims = x.shape().dims();
  dims[axis] *= dims[axis + 1];
  dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(axis) + 1);
  return reshape(x, Shape(dims));
}

Val swapped(const Val& x, size_t a, size_t b) {
  Dims order = all_axes(x.rank());
  std::swap(order[a], order[b]);
  return transpose(x, order);
}

// The cotangents with the kernel turned around; groups of features stay groups, groups of the batch
// become groups of features.
Val lhs_cotangent(const Val& ct, const Val& lhs, const Val& rhs, const ConvParams& p) {
  const int64_t groups = p.feature_groups * p.batch_groups;
  // [groups, O/groups, C', K...] -> [groups * C', O/groups, K...]
  Val kernel = joined(swapped(grouped(rhs, groups), 1, 2), 0);
  Dims spatial;
  ConvParams t;
  t.feature_groups = groups;
  for (int axis = 2; axis < lhs.rank(); ++axis) {
    spatial.push_back(axis);
    const WindowAxis w = axis_of(p, static_cast<size_t>(axis - 2), rhs.shape()[axis]);
    push(t, transposed(w, lhs.shape()[axis], ct.shape()[axis]));
  }
  const Val result = convolve(ct, reverse(kernel, spatial), t);
  if (p.batch_groups == 1) return result;
  // [N/b, b * C, S...] -> [b * N/b, C, S...]
  Dims dims = result.shape().dims();
  dims[1] /= p.batch_groups;
  dims.insert(dims.begin() + 1, p.batch_groups);
  return joined(swapped(reshape(result, Shape(dims)), 0, 1), 0);
}

// lhs with channels as its batch, convolved with the cotangents stretched by the strides.
Val rhs_cotangent(const Val& ct, const Val& lhs, const Val& rhs, const ConvParams& p) {
  ConvParams t;
  t.feature_groups = p.batch_groups;
  t.batch_groups = p.feature_groups;
  for (int axis = 2; axis < lhs.rank(); ++axis) {
    const auto i = static_cast<size_t>(axis - 2);
    const int64_t base = (lhs.shape()[axis] - 1) * p.lhs_dilation[i] + 1;
    const int64_t reach = (rhs.shape()[axis] - 1) * p.rhs_dilation[i];
    const int64_t window = (ct.shape()[axis] - 1) * p.strides[i] + 1;
    push(t, {0, p.rhs_dilation[i], p.low[i], reach + window - base - p.low[i], p.lhs_dilation[i],
             p.strides[i]});
  }
  return turned(convolve(turned(lhs), turned(ct), t));
}

Cotangents vjp_convolution(const VjpContext& c) {
  const auto& p = c.node.as<ConvParams>();
  const Val &lhs = c.operands[0], &rhs = c.operands[1], &ct = c.ct();
  const bool empty = lhs.type().elems() == 0 || rhs.type().elems() == 0 || ct.type().elems() == 0;
  return cotangents(
      c, [&] { return empty ? zeros_like(lhs) : lhs_cotangent(ct, lhs, rhs, p); },
      [&] { return empty ? zeros_like(rhs) : rhs_cotangent(ct, lhs, rhs, p); });
}

// Letters: batch 0, channels 1, features 2; with groups none but the batch can be cut.
ShardingFactors shard_convolution(const InferContext& c, std::span<const ArrayType>) {
  const auto& p = c.as<ConvParams>();
  const auto rank = static_cast<size_t>(c.operand(0).shape.rank());
  const bool plain = p.feature_groups == 1 && p.batch_groups == 1;
  const int whole = ShardingFactors::kUnshardable;
  std::vector<int> lhs(rank, whole), rhs = lhs, out = lhs;
  if (p.batch_groups == 1) lhs[0] = out[0] = 0;
  if (plain) {
    lhs[1] = rhs[1] = 1;
    rhs[0] = out[1] = 2;
  }
  return {{lhs, rhs}, {out}};
}

Cost cost_convolution(const InferContext& c, std::span<const ArrayType> results) {
  const Shape& rhs = c.operand(1).shape;
  double flops = 2.0 * static_cast<double>(results[0].elems());
  for (int i = 1; i < rhs.rank(); ++i) flops *= static_cast<double>(rhs[i]);
  return {flops, traffic(c, results)};
}

// Examples of the images alone are more images; kernels of each example's own take turns.
Batched batch_convolution(const BatchContext& c) {
  if (c.batched(1) || c.node.as<ConvParams>().batch_groups != 1) return batch_by_loop(c);
  const Val images = batched_at(c, 0, 0);
  Dims dims(images.shape().begin() + 1, images.shape().end());
  const int64_t n = dims[0];
  dims[0] *= c.size;
  const Val y = c.builder.add1(OpKind::kConvolution, c.node.params,
                               {reshape(images, Shape(dims)), c.operands[1]});
  Dims result = y.shape().dims();
  result[0] = n;
  result.insert(result.begin(), c.size);
  return {{reshape(y, Shape(std::move(result)))}, {0}};
}

}  // namespace

constinit const OpDef kConvolution = {.op = OpKind::kConvolution,
                                      .infer = infer_convolution,
                                      .vjp = vjp_convolution,
                                      .batch = batch_convolution,
                                      .shard = shard_convolution,
                                      .local = local_same,
                                      .cost = cost_convolution};

}  // namespace stow::ops
