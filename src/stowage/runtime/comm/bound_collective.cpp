#include "stowage/runtime/comm/bound_collective.h"

#include <cstring>
#include <utility>

#include "stowage/base/bytes.h"
#include "stowage/base/error.h"

namespace stow::comm {
namespace {

// The product of the extents [first, last).
int64_t extent_of(const Dims& dims, size_t first, size_t last) {
  int64_t n = 1;
  for (size_t d = first; d < last; ++d) n *= dims[d];
  return n;
}

bool is_dense(const View& view) {
  return view.strides == contiguous_strides(Shape(view.dims)) || view.elems() <= 1;
}

int64_t dense_bytes(const View& view) {
  return align_up(view.elems() * dtype_bytes(view.dtype), 64);
}

TensorView tensor(const View& view, std::byte* data) {
  return {data, view.dtype, view.dims, view.strides};
}

TensorView dense_tensor(const View& view, std::byte* data) {
  return {data, view.dtype, view.dims, contiguous_strides(Shape(view.dims))};
}

// What stands around an axis that is cut into n: [outer, n, inner].
struct Cut {
  int64_t outer, inner;
};
Cut cut_of(const Dims& whole, int64_t axis, int64_t n) {
  const auto a = static_cast<size_t>(axis);
  return {extent_of(whole, 0, a), extent_of(whole, a, whole.size()) / n};
}

}  // namespace

bool is_collective(const Kernel& kernel) {
  const auto* params = std::get_if<CollectiveParams>(&kernel.params);
  return params != nullptr && params->group_size() > 1;
}

int64_t collective_scratch_bytes(const Kernel& kernel) {
  int64_t bytes = 0;
  for (const auto* views : {&kernel.inputs, &kernel.outputs})
    for (const View& view : *views)
      if (!is_dense(view)) bytes += dense_bytes(view);
  return bytes;
}

BoundCollective::BoundCollective(const Kernel& kernel)
    : kernel_(kernel), label_(to_string(kernel.provenance)) {}

void BoundCollective::run(std::span<const std::byte* const> inputs,
                          std::span<std::byte* const> outputs, std::byte* scratch,
                          const MeshPosition* mesh, const Target& target) const {
  const auto& params = std::get<CollectiveParams>(kernel_.params);
  if (mesh == nullptr || static_cast<int64_t>(mesh->ranks.size()) != params.mesh.size())
    trace_error("[{}] expected to run on {}, got {}", op_name(kernel_.op), to_string(params.mesh),
                mesh ? fmt::format("a mesh of {} devices", mesh->ranks.size())
                     : std::string("one device"));
  if (!group_) group_ = mesh->group(params);
  const View& to = kernel_.outputs[0];
  if (kernel_.op == OpKind::kAxisIndex) {
    std::memcpy(outputs[0], &group_->index, sizeof group_->index);
    return;
  }
  const View& from = kernel_.inputs[0];
  const std::byte* in = inputs[0];
  std::byte* out = outputs[0];
  if (!is_dense(from)) {
    target.copy(tensor(from, const_cast<std::byte*>(in)), dense_tensor(from, scratch), 1);
    in = scratch;
    scratch += dense_bytes(from);
  }
  if (!is_dense(to)) out = scratch;
  exchange(in, out, *mesh->communicator);
  if (!is_dense(to)) target.copy(dense_tensor(to, out), tensor(to, outputs[0]), 1);
}

void BoundCollective::exchange(const std::byte* in, std::byte* out,
                               Communicator& communicator) const {
  const auto& p = std::get<CollectiveParams>(kernel_.params);
  const View &from = kernel_.inputs[0], &to = kernel_.outputs[0];
  const int64_t n = group_->size();
  if (kernel_.op == OpKind::kAllGather) {
    const Cut cut = cut_of(to.dims, p.axis, n);
    communicator.all_gather(*group_, label_, from.dtype, cut.outer, cut.inner, in, out);
  } else if (kernel_.op == OpKind::kReduceScatter) {
    const Cut cut = cut_of(from.dims, p.axis, n);
    communicator.reduce_scatter(*group_, label_, p.kind, from.dtype, cut.outer, cut.inner, in, out);
  } else if (kernel_.op == OpKind::kAllReduce) {
    communicator.all_reduce(*group_, label_, p.kind, from.dtype, from.elems(), in, out);
  } else if (kernel_.op == OpKind::kAllToAll) {
    const Cut cut = cut_of(from.dims, p.axis, n), joined = cut_of(to.dims, p.concat_axis, n);
    communicator.all_to_all(*group_, label_, from.dtype, cut.outer, cut.inner, joined.outer,
                            joined.inner, in, out);
  } else {
    STOW_CHECK(kernel_.op == OpKind::kPermute, "{} is no collective", op_name(kernel_.op));
    std::vector<std::pair<int32_t, int32_t>> pairs;
    for (size_t i = 0; i + 1 < p.pairs.size(); i += 2)
      pairs.emplace_back(static_cast<int32_t>(p.pairs[i]), static_cast<int32_t>(p.pairs[i + 1]));
    communicator.permute(*group_, label_, from.dtype, pairs, from.elems(), in, out);
  }
}

}  // namespace stow::comm
