#include "stowage/passes/view.h"

#include <algorithm>

namespace stow {
namespace {

// Returns strides of `to` over the elements of `from` with `strides`; none if there are none.
std::optional<Dims> reshape_strides(const Dims& from, const Dims& strides, const Dims& to) {
  for (int64_t d : from)
    if (d == 0) return contiguous_strides(Shape(to));
  Dims result(to.size());
  size_t f = 0, t = 0;
  while (t < to.size() || f < from.size()) {
    // Takes the shortest runs of both with equal products.
    size_t f_end = f, t_end = t;
    int64_t nf = 1, nt = 1;
    if (f_end < from.size()) nf = from[f_end++];
    if (t_end < to.size()) nt = to[t_end++];
    while (nf != nt) {
      if (nf < nt) {
        if (f_end == from.size()) return std::nullopt;
        nf *= from[f_end++];
      } else {
        if (t_end == to.size()) return std::nullopt;
        nt *= to[t_end++];
      }
    }
    // The run of `from` must have one stride over its nf elements.
    int64_t inner = 1, expected = 0;
    bool first = true;
    for (size_t i = f_end; i-- > f;) {
      if (from[i] == 1) continue;
      if (first) {
        inner = strides[i];
        first = false;
      } else if (strides[i] != expected) {
        return std::nullopt;
      }
      expected = strides[i] * from[i];
    }
    int64_t stride = inner;
    for (size_t i = t_end; i-- > t;) {
      result[i] = stride;
      stride *= to[i];
    }
    f = f_end;
    t = t_end;
  }
  return result;
}

}  // namespace

View contiguous_view(BufferId buffer, const ArrayType& type, int64_t offset_bytes) {
  return {buffer, type.dtype, type.shape.dims(), contiguous_strides(type.shape), offset_bytes, {}};
}

bool is_contiguous(const View& view) {
  int64_t stride = 1;
  for (size_t i = view.dims.size(); i-- > 0;) {
    if (view.dims[i] != 1 && view.strides[i] != stride) return view.elems() == 0;
    stride *= view.dims[i];
  }
  return true;
}

bool same_window(const View& a, const View& b) {
  const auto same_term = [](const LoopTerm& x, const LoopTerm& y) {
    return x.loop == y.loop && x.step == y.step && x.modulo == y.modulo &&
           (x.modulo == 0 || x.start == y.start) && x.stride_bytes == y.stride_bytes;
  };
  // If no slot wraps, a term's start equals an offset.
  const auto first = [](const View& v) {
    int64_t bytes = v.offset_bytes;
    for (const LoopTerm& t : v.terms)
      if (t.modulo == 0) bytes += t.start * t.stride_bytes;
    return bytes;
  };
  bool same_strides = a.dims == b.dims;
  for (size_t i = 0; same_strides && i < a.dims.size(); ++i)
    same_strides = a.dims[i] <= 1 || a.strides[i] == b.strides[i];
  return a.buffer == b.buffer && first(a) == first(b) &&
         dtype_bytes(a.dtype) == dtype_bytes(b.dtype) && same_strides &&
         std::equal(a.terms.begin(), a.terms.end(), b.terms.begin(), b.terms.end(), same_term);
}

std::optional<View> apply_view_op(const Graph& graph, const Node& node, const View& in) {
  const ArrayType& type = graph.type(node.first_result);
  const int64_t elem = dtype_bytes(type.dtype);
  View out = in;
  out.dtype = type.dtype;
  out.dims = type.shape.dims();
  switch (node.op) {
    case OpKind::kBroadcast: {
      const auto& p = node.as<BroadcastParams>();
      out.strides.assign(out.dims.size(), 0);
      for (size_t i = 0; i < p.axes.size(); ++i)
        if (in.dims[i] != 1) out.strides[static_cast<size_t>(p.axes[i])] = in.strides[i];
      return out;
    }
    case OpKind::kReshape: {
      std::optional<Dims> strides = reshape_strides(in.dims, in.strides, out.dims);
      if (!strides) return std::nullopt;
      out.strides = std::move(*strides);
      return out;
    }
    case OpKind::kTranspose: {
      const auto& axes = node.as<AxesParams>().axes;
      for (size_t i = 0; i < axes.size(); ++i)
        out.strides[i] = in.strides[static_cast<size_t>(axes[i])];
      return out;
    }
    case OpKind::kSlice: {
      const auto& p = node.as<SliceParams>();
      for (size_t i = 0; i < p.start.size(); ++i) {
        if (out.dims[i] > 0) out.offset_bytes += p.start[i] * in.strides[i] * elem;
        out.strides[i] = in.strides[i] * p.stride[i];
      }
      return out;
    }
    case OpKind::kReverse:
      for (int64_t axis : node.as<AxesParams>().axes) {
        const size_t a = static_cast<size_t>(axis);
        if (in.dims[a] > 0) out.offset_bytes += (in.dims[a] - 1) * in.strides[a] * elem;
        out.strides[a] = -in.strides[a];
      }
      return out;
    default:
      STOW_CHECK(op_class(node.op) == OpClass::kIdentity, "{} is no view", op_name(node.op));
      return out;
  }
}

std::optional<View> invert_view_op(const Graph& graph, const Node& node, const View& out) {
  const ArrayType& type = graph.type(node.operands[0]);
  if (out.elems() == 0 || type.elems() != out.elems()) return std::nullopt;
  View in = out;
  in.dtype = type.dtype;
  in.dims = type.shape.dims();
  in.strides.assign(in.dims.size(), 0);
  switch (node.op) {
    case OpKind::kBroadcast: {
      const auto& axes = node.as<BroadcastParams>().axes;
      for (size_t i = 0; i < axes.size(); ++i)
        in.strides[i] = out.strides[static_cast<size_t>(axes[i])];
      return in;
    }
    case OpKind::kReshape: {
      std::optional<Dims> strides = reshape_strides(out.dims, out.strides, in.dims);
      if (!strides) return std::nullopt;
      in.strides = std::move(*strides);
      return in;
    }
    case OpKind::kTranspose: {
      const auto& axes = node.as<AxesParams>().axes;
      for (size_t i = 0; i < axes.size(); ++i)
        in.strides[static_cast<size_t>(axes[i])] = out.strides[i];
      return in;
    }
    default: return std::nullopt;
  }
}

}  // namespace stow
