// DynamicSlice and DynamicUpdateSlice. Starts are clamped so that the window lies within.
#include "stowage/ops/rule.h"

namespace stow::ops {
namespace {

constexpr int kWhole = ShardingFactors::kUnshardable;

// One integer scalar an axis of `x`, from operand `first` on, all of one dtype.
void check_starts(const InferContext& c, size_t first, const ArrayType& x) {
  if (c.operands.size() - first != static_cast<size_t>(x.shape.rank()))
    c.error("takes {} starts, one an axis of {}, got {}", x.shape.rank(), to_string(x),
            c.operands.size() - first);
  for (size_t i = first; i < c.operands.size(); ++i) {
    const ArrayType& start = c.operand(i);
    if (!is_integer(start.dtype) || start.shape.rank() != 0)
      c.error("start {} must be an integer scalar, got {}", i - first, to_string(start));
  }
  check_same_dtypes(c, first);
}

void check_window(const InferContext& c, const Shape& window, const ArrayType& x) {
  if (window.rank() != x.shape.rank())
    c.error("a window of rank {} does not fit {}", window.rank(), to_string(x));
  for (int i = 0; i < window.rank(); ++i)
    if (window[i] < 0 || window[i] > x.shape[i])
      c.error("size {} of axis {} does not fit {}", window[i], i, to_string(x));
}

std::vector<ArrayType> infer_dynamic_slice(const InferContext& c) {
  const auto& p = expect_any_count<ShapeParams>(c);
  if (c.operands.empty()) c.error("takes an operand and its starts, got 0 operands");
  const ArrayType& x = c.operand(0);
  check_starts(c, 1, x);
  check_window(c, p.shape, x);
  ArrayType type = strong_result_type(c, x.dtype, p.shape);
  type.weak = x.weak;
  return {std::move(type)};
}

Cotangents vjp_dynamic_slice(const VjpContext& c) {
  Cotangents result(c.operands.size());
  const std::span<const Val> starts = std::span(c.operands).subspan(1);
  if (c.needed[0]) result[0] = dynamic_update_slice(zeros_like(c.operands[0]), c.ct(), starts);
  return result;
}

bool starts_batched(const BatchContext& c, size_t first) {
  for (size_t i = first; i < c.operands.size(); ++i)
    if (c.batched(i)) return true;
  return false;
}

// The starts with a zero for the batch axis before the one at `axis`.
std::vector<Val> starts_with_zero(const BatchContext& c, size_t first, int64_t axis) {
  std::vector<Val> starts(c.operands.begin() + static_cast<ptrdiff_t>(first), c.operands.end());
  const DType dtype = starts.empty() ? DType::kI32 : starts[0].dtype();
  starts.insert(starts.begin() + axis, constant_int(c.builder, dtype, 0));
  return starts;
}

// Starts of their own for each example are a gather, which clamps alike.
Batched batch_dynamic_slice(const BatchContext& c) {
  const Dims& sizes = c.node.as<ShapeParams>().shape.dims();
  if (!starts_batched(c, 1)) {
    const int64_t axis = c.axes[0];
    return {
        {dynamic_slice(c.operands[0], starts_with_zero(c, 1, axis), inserted(sizes, axis, c.size))},
        {axis}};
  }
  std::vector<Val> columns;
  for (size_t i = 1; i < c.operands.size(); ++i)
    columns.push_back(reshape(batched_at(c, i, 0), {c.size, 1}));
  Val indices = concatenate(columns, 1);
  GatherParams p{.start_index_map = all_axes(static_cast<int>(sizes.size())), .slice_sizes = sizes};
  p.offset_axes = shifted_for_batch(p.start_index_map, 0);
  if (!c.batched(0)) return {{gather(c.operands[0], indices, p)}, {0}};
  p.collapsed_axes = p.batch_axes = p.index_batch_axes = {0};
  p.start_index_map = shifted_for_batch(p.start_index_map, 0);
  p.slice_sizes = inserted(sizes, 0, 1);
  return {{gather(batched_at(c, 0, 0), indices, p)}, {0}};
}

Batched batch_dynamic_update_slice(const BatchContext& c) {
  if (starts_batched(c, 2)) return batch_by_loop(c);
  const int64_t axis = c.first_axis();
  return {{dynamic_update_slice(batched_at(c, 0, axis), batched_at(c, 1, axis),
                                starts_with_zero(c, 2, axis))},
          {axis}};
}

// Axes that the window does not fill stay whole: the whole extent clamps a start there. A start
// along an axis that the window fills is 0, in the parts as in the whole.
ShardingFactors shard_dynamic_slice(const InferContext& c, std::span<const ArrayType> results) {
  ShardingFactors f = shard_elementwise(c, results);
  for (size_t i = 0; i < f.results[0].size(); ++i)
    if (c.operand(0).shape[static_cast<int>(i)] != results[0].shape[static_cast<int>(i)])
      f.operands[0][i] = f.results[0][i] = kWhole;
  return f;
}

// Reads and writes the window; the rest is not touched.
Cost cost_dynamic_slice(const InferContext&, std::span<const ArrayType> results) {
  return {0, 2.0 * static_cast<double>(results[0].bytes())};
}

std::vector<ArrayType> infer_dynamic_update_slice(const InferContext& c) {
  expect_any_count<NoParams>(c);
  if (c.operands.size() < 2)
    c.error("takes an operand, an update and starts, got {} operands", c.operands.size());
  const ArrayType &x = c.operand(0), &update = c.operand(1);
  if (update.dtype != x.dtype)
    c.error("operands differ in dtype: {} and {}", to_string(x), to_string(update));
  check_starts(c, 2, x);
  check_window(c, update.shape, x);
  ArrayType type = strong_result_type(c, x.dtype, x.shape);
  type.weak = x.weak && update.weak;
  return {std::move(type)};
}

Cotangents vjp_dynamic_update_slice(const VjpContext& c) {
  Cotangents result(c.operands.size());
  const std::span<const Val> starts = std::span(c.operands).subspan(2);
  const Val& update = c.operands[1];
  if (c.needed[0]) {
    const Val zeros = full(c.ct().builder(), {c.ct().dtype(), update.shape()}, 0);
    result[0] = dynamic_update_slice(c.ct(), zeros, starts);
  }
  if (c.needed[1]) result[1] = dynamic_slice(c.ct(), starts, update.shape().dims());
  return result;
}

ShardingFactors shard_dynamic_update_slice(const InferContext& c,
                                           std::span<const ArrayType> results) {
  ShardingFactors f = shard_elementwise(c, results);
  for (size_t i = 0; i < f.results[0].size(); ++i)
    if (c.operand(0).shape[static_cast<int>(i)] != c.operand(1).shape[static_cast<int>(i)])
      f.operands[0][i] = f.operands[1][i] = f.results[0][i] = kWhole;
  return f;
}

// In place: only the window moves.
Cost cost_dynamic_update_slice(const InferContext& c, std::span<const ArrayType>) {
  return {0, 2.0 * static_cast<double>(c.operand(1).bytes())};
}

}  // namespace

constinit const OpDef kDynamicSlice = {.op = OpKind::kDynamicSlice,
                                       .infer = infer_dynamic_slice,
                                       .vjp = vjp_dynamic_slice,
                                       .batch = batch_dynamic_slice,
                                       .shard = shard_dynamic_slice,
                                       .local = local_shaped,
                                       .cost = cost_dynamic_slice};
constinit const OpDef kDynamicUpdateSlice = {.op = OpKind::kDynamicUpdateSlice,
                                             .infer = infer_dynamic_update_slice,
                                             .vjp = vjp_dynamic_update_slice,
                                             .batch = batch_dynamic_update_slice,
                                             .shard = shard_dynamic_update_slice,
                                             .local = local_same,
                                             .cost = cost_dynamic_update_slice};

}  // namespace stow::ops
