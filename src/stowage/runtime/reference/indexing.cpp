#include <algorithm>

#include "stowage/runtime/reference/element.h"
#include "stowage/runtime/reference/families.h"

namespace stow::ref {
namespace {

bool contains(const Dims& list, size_t value) {
  return std::find(list.begin(), list.end(), static_cast<int64_t>(value)) != list.end();
}

// XLA's operation semantics of Gather: where the element at `index` of the result (of the updates,
// for a scatter) comes from, as the start of its slice and the position in the slice.
struct Place {
  Dims start, inside;  // One an operand axis.
};
Place place_of(const GatherParams& params, const TensorView& operand, const TensorView& indices,
               const Dims& index) {
  Dims batch, offset;
  for (size_t k = 0; k < index.size(); ++k)
    (contains(params.offset_axes, k) ? offset : batch).push_back(index[k]);
  Place place{Dims(operand.dims.size(), 0), Dims(operand.dims.size(), 0)};
  batch.push_back(0);
  for (size_t k = 0; k < params.start_index_map.size(); ++k) {
    batch.back() = static_cast<int64_t>(k);
    place.start[static_cast<size_t>(params.start_index_map[k])] = load_index(indices, batch);
  }
  for (size_t k = 0; k < params.batch_axes.size(); ++k)
    place.start[static_cast<size_t>(params.batch_axes[k])] =
        batch[static_cast<size_t>(params.index_batch_axes[k])];
  size_t next = 0;
  for (size_t axis = 0; axis < operand.dims.size(); ++axis)
    if (!contains(params.collapsed_axes, axis)) place.inside[axis] = offset[next++];
  return place;
}

}  // namespace

void gather(const GatherParams& params, Views in, Views out) {
  for_each_index(out[0].dims, [&](const Dims& i) {
    const Place place = place_of(params, in[0], in[1], i);
    Dims from(place.inside);
    bool within = true;
    for (size_t k = 0; k < from.size(); ++k) {
      const int64_t start =
          std::clamp<int64_t>(place.start[k], 0, in[0].dims[k] - params.slice_sizes[k]);
      within = within && start == place.start[k];
      from[k] += start;
    }
    if (within || in.size() == 2)
      copy_element(in[0], from, out[0], i);
    else
      copy_element(in[2], {}, out[0], i);
  });
}

void scatter(const GatherParams& params, Views in, Views out, Float2 on_float, Int2 on_int) {
  const TensorView &operand = in[0], &updates = in[2], &y = out[0];
  const bool floats = is_float(y.dtype);
  // Results are kept in double or int64, in row-major order of the result, and rounded once.
  std::vector<double> float_sums;
  std::vector<int64_t> int_sums;
  for_each_index(operand.dims, [&](const Dims& i) {
    if (floats)
      float_sums.push_back(load_float(operand, i));
    else
      int_sums.push_back(load_int(operand, i));
  });
  // Window by window: index vectors outside, places within a window inside.
  std::vector<size_t> order;
  for (const bool offsets : {false, true})
    for (size_t k = 0; k < updates.dims.size(); ++k)
      if (contains(params.offset_axes, k) == offsets) order.push_back(k);
  Dims turned;
  for (size_t axis : order) turned.push_back(updates.dims[axis]);
  for_each_index(turned, [&](const Dims& t) {
    Dims i(t.size());
    for (size_t k = 0; k < order.size(); ++k) i[order[k]] = t[k];
    const Place place = place_of(params, operand, in[1], i);
    size_t element = 0;
    for (size_t k = 0; k < operand.dims.size(); ++k) {
      const int64_t start = place.start[k];
      if (start < 0 || start > operand.dims[k] - params.slice_sizes[k]) return;
      element = element * static_cast<size_t>(operand.dims[k]) +
                static_cast<size_t>(start + place.inside[k]);
    }
    if (floats)
      float_sums[element] = on_float(float_sums[element], load_float(updates, i));
    else
      int_sums[element] = on_int(int_sums[element], load_int(updates, i), int_type(y.dtype));
  });
  size_t element = 0;
  for_each_index(y.dims, [&](const Dims& i) {
    if (floats)
      store_float(y, i, float_sums[element]);
    else
      store_int(y, i, int_sums[element]);
    ++element;
  });
}

}  // namespace stow::ref
