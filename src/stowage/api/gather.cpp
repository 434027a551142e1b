#include "stowage/api/gather.h"

#include <algorithm>

#include "stowage/api/indexing.h"
#include "stowage/api/math.h"
#include "stowage/api/math_internal.h"

namespace stow {
namespace {

bool contains(const Dims& list, int64_t x) {
  return std::find(list.begin(), list.end(), x) != list.end();
}

// Lists of dimension numbers, and what messages call them.
struct Numbers {
  std::string_view op, indices_name, dropped_name, map_name;
  const Dims &operand_dims, &indices_dims;  // that go along with one another
};

// Checks what the op itself would report in other words, or too late.
void check(const Numbers& b, const Array& operand, const Array& indices, const Dims& dropped,
           const Dims& map) {
  const int64_t n_map = std::ssize(map);
  if (indices.rank() == 0 || n_map != indices.dim(-1))
    trace_error_here("[{}] expected a last axis of {} indices, as {} has entries, got {}", b.op,
                     n_map, b.map_name, to_string(indices.type()));
  for (int64_t axis : map)
    if (axis < 0 || axis >= operand.rank())
      trace_error_here("[{}] expected {} to name axes of {}, got {}", b.op, b.map_name,
                       to_string(operand.type()), axis);
  if (b.operand_dims.size() != b.indices_dims.size())
    trace_error_here("[{}] expected as many operand_batching_dims as {}, got {} and {}", b.op,
                     b.indices_name, b.operand_dims.size(), b.indices_dims.size());
  for (size_t i = 0; i < b.operand_dims.size(); ++i) {
    const int64_t axis = b.operand_dims[i], along = b.indices_dims[i];
    if (axis < 0 || axis >= operand.rank())
      trace_error_here("[{}] expected operand_batching_dims to name axes of {}, got {}", b.op,
                       to_string(operand.type()), axis);
    if (along < 0 || along >= indices.rank() - 1)
      trace_error_here("[{}] expected {} to name axes of {} before its index vectors, got {}", b.op,
                       b.indices_name, to_string(indices.type()), along);
    if (std::count(b.indices_dims.begin(), b.indices_dims.end(), along) > 1)
      trace_error_here("[{}] {} name axis {} twice", b.op, b.indices_name, along);
    if (contains(dropped, axis) || contains(map, axis))
      trace_error_here("[{}] axis {} is in operand_batching_dims and in {}", b.op, axis,
                       contains(map, axis) ? b.map_name : b.dropped_name);
    const int64_t n = operand.shape()[static_cast<int>(axis)];
    const int64_t m = indices.shape()[static_cast<int>(along)];
    if (n != m)
      trace_error_here("[{}] batching axis {} of {} has extent {}, axis {} of {} {}", b.op, axis,
                       to_string(operand.type()), n, along, to_string(indices.type()), m);
  }
}

// Batching axes are collapsed ones.
void add_batch_axes(const Numbers& b, GatherParams& p) {
  Dims dropped(p.collapsed_axes.size() + b.operand_dims.size());
  std::merge(p.collapsed_axes.begin(), p.collapsed_axes.end(), b.operand_dims.begin(),
             b.operand_dims.end(), dropped.begin());
  p.collapsed_axes = std::move(dropped);
  p.batch_axes = b.operand_dims;
  p.index_batch_axes = b.indices_dims;
}

Array scatter_by(OpKind op, std::string_view name, const Operand& operand,
                 const Operand& scatter_indices, const Operand& updates,
                 const ScatterDimensionNumbers& n, GatherScatterMode mode) {
  const CallSiteScope site(operand.at);
  const Array x = to_array(operand);
  const Array given = to_indices(name, "scatter_indices", scatter_indices), u = to_array(updates);
  const bool orders = op == OpKind::kScatterMin || op == OpKind::kScatterMax;
  if (orders && x.dtype() == DType::kBool && u.dtype() == DType::kBool)
    return convert_to(scatter_by(op, name, convert_to(x, DType::kU8), given,
                                 convert_to(u, DType::kU8), n, mode),
                      DType::kBool);
  const Numbers numbers{name,
                        "scatter_indices_batching_dims",
                        "inserted_window_dims",
                        "scatter_dims_to_operand_dims",
                        n.operand_batching_dims,
                        n.scatter_indices_batching_dims};
  check(numbers, x, given, n.inserted_window_dims, n.scatter_dims_to_operand_dims);
  GatherParams p{n.update_window_dims, n.inserted_window_dims, n.scatter_dims_to_operand_dims, {}};
  size_t next = 0;
  for (int64_t axis = 0; axis < x.rank(); ++axis) {
    if (contains(n.inserted_window_dims, axis) || contains(n.operand_batching_dims, axis)) {
      p.slice_sizes.push_back(1);
      continue;
    }
    const int64_t along = next < n.update_window_dims.size() ? n.update_window_dims[next++] : -1;
    if (along < 0 || along >= u.rank())
      trace_error_here(
          "[{}] expected update_window_dims to name an axis of {} for axis {} of {}, got {}", name,
          to_string(u.type()), axis, to_string(x.type()),
          along < 0 ? std::string("none") : std::to_string(along));
    p.slice_sizes.push_back(u.shape()[static_cast<int>(along)]);
  }
  add_batch_axes(numbers, p);
  return run_as_one("scatter", [&] {
    const bool clips = mode == GatherScatterMode::kClip;
    const Array indices = clips ? clamp_starts(given, x, p) : given;
    return record1(op, p, {x, indices, u});
  });
}

}  // namespace

Array gather(const Operand& operand, const Operand& start_indices, const GatherDimensionNumbers& n,
             const Dims& slice_sizes, GatherScatterMode mode,
             std::optional<ScalarValue> fill_value) {
  const CallSiteScope site(operand.at);
  const Array x = to_array(operand), given = to_indices("gather", "start_indices", start_indices);
  const Numbers numbers{
      "gather",          "start_indices_batching_dims", "collapsed_slice_dims",
      "start_index_map", n.operand_batching_dims,       n.start_indices_batching_dims};
  check(numbers, x, given, n.collapsed_slice_dims, n.start_index_map);
  GatherParams p{n.offset_dims, n.collapsed_slice_dims, n.start_index_map, slice_sizes};
  add_batch_axes(numbers, p);
  return run_as_one("gather", [&] {
    const Array read = record1(OpKind::kGather, p, {x, given});
    if (mode != GatherScatterMode::kFillOrDrop) return read;
    return fill_out_of_bounds(read, given, x, p,
                              fill_value.value_or(out_of_range_value(x.dtype())));
  });
}

Array scatter(const Operand& x, const Operand& indices, const Operand& updates,
              const ScatterDimensionNumbers& n, GatherScatterMode mode) {
  return scatter_by(OpKind::kScatter, "scatter", x, indices, updates, n, mode);
}
Array scatter_add(const Operand& x, const Operand& indices, const Operand& updates,
                  const ScatterDimensionNumbers& n, GatherScatterMode mode) {
  return scatter_by(OpKind::kScatterAdd, "scatter_add", x, indices, updates, n, mode);
}
Array scatter_sub(const Operand& x, const Operand& indices, const Operand& updates,
                  const ScatterDimensionNumbers& n, GatherScatterMode mode) {
  const CallSiteScope site(x.at);
  return scatter_by(OpKind::kScatterAdd, "scatter_sub", x, indices, negative(updates), n, mode);
}
Array scatter_mul(const Operand& x, const Operand& indices, const Operand& updates,
                  const ScatterDimensionNumbers& n, GatherScatterMode mode) {
  return scatter_by(OpKind::kScatterMul, "scatter_mul", x, indices, updates, n, mode);
}
Array scatter_min(const Operand& x, const Operand& indices, const Operand& updates,
                  const ScatterDimensionNumbers& n, GatherScatterMode mode) {
  return scatter_by(OpKind::kScatterMin, "scatter_min", x, indices, updates, n, mode);
}
Array scatter_max(const Operand& x, const Operand& indices, const Operand& updates,
                  const ScatterDimensionNumbers& n, GatherScatterMode mode) {
  return scatter_by(OpKind::kScatterMax, "scatter_max", x, indices, updates, n, mode);
}

Array scatter_apply(const Operand& operand, const Operand& indices,
                    const std::function<Array(const Array&)>& function,
                    const ScatterDimensionNumbers& n, const Shape& update_shape,
                    GatherScatterMode mode) {
  const CallSiteScope site(operand.at);
  const Array x = to_array(operand);
  return run_as_one("scatter_apply", [&] {
    const Array none = zeros(x.shape(), DType::kI32), one = ones(update_shape, DType::kI32);
    return apply_repeatedly(
        x, scatter_by(OpKind::kScatterAdd, "scatter_apply", none, indices, one, n, mode), function);
  });
}

}  // namespace stow
