#include "stowage/passes/narrowed_slice.h"

#include <algorithm>

namespace stow {
namespace {

// Returns the node behind operand 0 if nothing else reads it and its region and pass are the same.
const Node* alone_before(const Graph& graph, const std::vector<int>& uses, const Node& node) {
  const ValueId x = node.operands[0];
  if (graph.is_input(x) || uses[x.index()] != 1) return nullptr;
  const Node& before = graph.def(x);
  const bool alike = before.region == node.region && before.backward == node.backward &&
                     !before.escapes_region;
  return alike ? &before : nullptr;
}

// The axes of more than one element.
std::vector<size_t> long_axes(const Shape& shape) {
  std::vector<size_t> axes;
  for (size_t i = 0; i < shape.dims().size(); ++i)
    if (shape.dims()[i] != 1) axes.push_back(i);
  return axes;
}

}  // namespace

std::optional<NarrowedSlice> narrowed_slice(
    const Graph& graph, const std::vector<int>& uses, const Node& slice,
    const std::function<std::optional<int64_t>(ValueId)>& known) {
  if (slice.op != OpKind::kSlice) return std::nullopt;
  const auto& p = slice.as<SliceParams>();
  if (std::any_of(p.stride.begin(), p.stride.end(), [](int64_t s) { return s != 1; }))
    return std::nullopt;
  const Node* wide = alone_before(graph, uses, slice);
  const Shape& sliced = graph.type(slice.operands[0]).shape;
  if (wide && wide->op == OpKind::kReshape) wide = alone_before(graph, uses, *wide);
  if (!wide || wide->op != OpKind::kDynamicSlice) return std::nullopt;

  const Shape& taken = graph.type(wide->result()).shape;
  const Shape& whole = graph.type(wide->operands[0]).shape;
  const std::vector<size_t> from = long_axes(taken), to = long_axes(sliced);
  if (taken.elems() == 0 || from.size() != to.size()) return std::nullopt;
  Dims dims = taken.dims();
  NarrowedSlice narrowed{wide, {}, std::vector<std::optional<int64_t>>(dims.size())};
  for (size_t k = 0; k < from.size(); ++k) {
    const size_t axis = from[k];
    if (dims[axis] != sliced.dims()[to[k]]) return std::nullopt;
    const int64_t left = p.limit[to[k]] - p.start[to[k]];
    if (left == dims[axis]) continue;
    const std::optional<int64_t> start = known(wide->operands[1 + axis]);
    if (!start || left == 0) return std::nullopt;
    narrowed.starts[axis] =
        std::clamp<int64_t>(*start, 0, whole.dims()[axis] - dims[axis]) + p.start[to[k]];
    dims[axis] = left;
  }
  for (size_t axis = 0; axis < sliced.dims().size(); ++axis)
    if (p.limit[axis] == p.start[axis]) return std::nullopt;  // of one element none is left
  narrowed.shape = Shape(std::move(dims));
  return narrowed;
}

}  // namespace stow
