#include <algorithm>

#include "stowage/runtime/reference/element.h"
#include "stowage/runtime/reference/families.h"

namespace stow::ref {
namespace {

// Start of a window of `sizes`, clamped so that it lies within, given scalars of which the first is
// in[first].
Dims clamped_starts(Views in, size_t first, const Dims& extents, const Dims& sizes) {
  Dims starts;
  for (size_t i = 0; i < extents.size(); ++i)
    starts.push_back(std::clamp<int64_t>(load_index(in[first + i], {}), 0, extents[i] - sizes[i]));
  return starts;
}

Dims add(const Dims& a, const Dims& b) {
  Dims sum(a);
  for (size_t i = 0; i < a.size(); ++i) sum[i] += b[i];
  return sum;
}

}  // namespace

void copy_all(Views in, Views out) {
  for (size_t k = 0; k < out.size(); ++k)
    for_each_index(out[k].dims, [&](const Dims& i) { copy_element(in[k], i, out[k], i); });
}

void broadcast(const BroadcastParams& params, Views in, Views out) {
  for_each_index(out[0].dims, [&](const Dims& i) {
    Dims from;
    for (size_t k = 0; k < params.axes.size(); ++k)
      from.push_back(in[0].dims[k] == 1 ? 0 : i[static_cast<size_t>(params.axes[k])]);
    copy_element(in[0], from, out[0], i);
  });
}

void reshape(Views in, Views out) {
  std::vector<Dims> from;
  for_each_index(in[0].dims, [&](const Dims& i) { from.push_back(i); });
  size_t element = 0;
  for_each_index(out[0].dims,
                 [&](const Dims& i) { copy_element(in[0], from[element++], out[0], i); });
}

void transpose(const AxesParams& params, Views in, Views out) {
  for_each_index(out[0].dims, [&](const Dims& i) {
    Dims from(i.size());
    for (size_t k = 0; k < i.size(); ++k) from[static_cast<size_t>(params.axes[k])] = i[k];
    copy_element(in[0], from, out[0], i);
  });
}

void slice(const SliceParams& params, Views in, Views out) {
  for_each_index(out[0].dims, [&](const Dims& i) {
    Dims from(i.size());
    for (size_t k = 0; k < i.size(); ++k) from[k] = params.start[k] + i[k] * params.stride[k];
    copy_element(in[0], from, out[0], i);
  });
}

void reverse(const AxesParams& params, Views in, Views out) {
  for_each_index(out[0].dims, [&](const Dims& i) {
    Dims from(i);
    for (int64_t axis : params.axes) {
      const auto a = static_cast<size_t>(axis);
      from[a] = in[0].dims[a] - 1 - i[a];
    }
    copy_element(in[0], from, out[0], i);
  });
}

void pad(const PadParams& params, Views in, Views out) {
  for_each_index(out[0].dims, [&](const Dims& i) { copy_element(in[1], {}, out[0], i); });
  for_each_index(in[0].dims, [&](const Dims& i) {
    Dims to(i.size());
    for (size_t k = 0; k < i.size(); ++k) {
      to[k] = params.low[k] + i[k] * (params.interior[k] + 1);
      if (to[k] < 0 || to[k] >= out[0].dims[k]) return;
    }
    copy_element(in[0], i, out[0], to);
  });
}

void concatenate(const AxisParams& params, Views in, Views out) {
  int64_t begin = 0;
  for (const TensorView& part : in) {
    for_each_index(part.dims, [&](const Dims& i) {
      Dims to(i);
      to[static_cast<size_t>(params.axis)] += begin;
      copy_element(part, i, out[0], to);
    });
    begin += part.dims[static_cast<size_t>(params.axis)];
  }
}

void dynamic_slice(Views in, Views out) {
  const Dims starts = clamped_starts(in, 1, in[0].dims, out[0].dims);
  for_each_index(out[0].dims,
                 [&](const Dims& i) { copy_element(in[0], add(starts, i), out[0], i); });
}

void dynamic_update_slice(Views in, Views out) {
  const Dims starts = clamped_starts(in, 2, in[0].dims, in[1].dims);
  copy_all(in.first(1), out);
  for_each_index(in[1].dims,
                 [&](const Dims& i) { copy_element(in[1], i, out[0], add(starts, i)); });
}

}  // namespace stow::ref
