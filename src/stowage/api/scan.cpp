#include "stowage/api/scan.h"

#include "stowage/api/control_internal.h"
#include "stowage/base/inside.h"

namespace stow {
namespace {

// Gives a weak initial carry the body's type. Returns true if any changed.
bool widen_weak_carry(std::vector<Array>& carry, const Graph& body) {
  bool changed = false;
  for (size_t i = 0; i < carry.size(); ++i) {
    const ArrayType &type = carry[i].type(), &returned = body.type(body.outputs()[i]);
    if (!type.weak || type.dtype == returned.dtype || !(type.shape == returned.shape)) continue;
    const WeakDType joint = promote({type.dtype, true}, {returned.dtype, returned.weak});
    if (joint.dtype != returned.dtype) continue;
    carry[i] = record1(OpKind::kConvert, DTypeParams{joint.dtype}, {carry[i]});
    changed = true;
  }
  return changed;
}

// One axis for each of `n` leaves, as asked for: one for all or one a leaf.
int64_t axis_for(const char* option, const Dims& axes, size_t i, size_t n, const char* leaves) {
  if (axes.size() == 1) return axes[0];
  if (axes.size() != n)
    trace_error_here("[scan] {} lists {} axes, there are {} {}; give one for all, or one for each",
                     option, axes.size(), n, leaves);
  return axes[i];
}

Dims scanned_axes(const ScanRequest& request, std::span<const Array> xs,
                  const std::vector<std::string>& paths) {
  Dims axes;
  for (size_t i = 0; i < xs.size(); ++i) {
    const int64_t asked = axis_for("axes", request.options.axes, i, xs.size(), "scanned leaves");
    const int rank = xs[i].rank();
    if (rank == 0)
      trace_error_here("[scan] expected an axis to scan over, got {} for {}",
                       to_string(xs[i].type()), leaf_name("scanned", paths[i]));
    if (asked < -rank || asked >= rank)
      trace_error_here("[scan] axis {} is out of range for {}, {}", asked,
                       leaf_name("scanned", paths[i]), to_string(xs[i].type()));
    axes.push_back(asked < 0 ? asked + rank : asked);
  }
  return axes;
}

int64_t scan_length(const ScanRequest& request, std::span<const Array> xs, const Dims& axes,
                    const std::vector<std::string>& paths) {
  int64_t length = request.options.length;
  for (size_t i = 0; i < xs.size(); ++i) {
    const int64_t n = xs[i].shape()[static_cast<int>(axes[i])];
    if (length < 0) length = n;
    if (n == length) continue;
    if (i == 0)
      trace_error_here("[scan] {} has {} slices, length is {}", leaf_name("scanned", paths[i]), n,
                       length);
    trace_error_here("[scan] {} has {} slices, {} has {}", leaf_name("scanned", paths[0]), length,
                     leaf_name("scanned", paths[i]), n);
  }
  if (length < 0) trace_error_here("[scan] nothing is scanned; give a length");
  return length;
}

Dims stacked_axes(const ScanRequest& request, const Graph& body, size_t n_carries) {
  Dims axes;
  const size_t n = body.outputs().size() - n_carries;
  for (size_t i = 0; i < n; ++i) {
    const int64_t asked = axis_for("out_axes", request.options.out_axes, i, n, "stacked leaves");
    const ArrayType& slice = body.type(body.outputs()[n_carries + i]);
    const int rank = slice.shape.rank() + 1;
    if (asked < -rank || asked >= rank)
      trace_error_here("[scan] axis {} is out of range for stacked results {} of slices {}", asked,
                       i, to_string(slice));
    axes.push_back(asked < 0 ? asked + rank : asked);
  }
  return axes;
}

ArrayType slice_type(ArrayType type, int64_t axis) {
  Dims dims = type.shape.dims();
  dims.erase(dims.begin() + axis);
  type.shape = Shape(std::move(dims));
  return type;
}

}  // namespace

std::string leaf_name(std::string_view what, const std::string& path) {
  return path.empty() ? fmt::format("the {}", what) : fmt::format("{} '{}'", what, path);
}

NestedTrace trace_loop_body(const LoopBody& loop, std::vector<Array>& carry) {
  NestedTrace nested;
  for (int attempt = 0; attempt < 2; ++attempt) {
    std::vector<ArrayType> types;
    for (const Array& c : carry) types.push_back(c.type());
    types.insert(types.end(), loop.slices.begin(), loop.slices.end());
    nested = trace_nested(loop.what, types, loop.names, 0, loop.body);
    const size_t n_outputs = nested.graph.outputs().size() - (nested.has_effects ? 1 : 0);
    if (n_outputs < carry.size())
      trace_error_here("[{}] the body returns {} arrays, the carry has {}", loop.what, n_outputs,
                       carry.size());
    if (!widen_weak_carry(carry, nested.graph)) break;
  }
  for (size_t i = 0; i < carry.size(); ++i)
    if (const ArrayType& type = nested.graph.type(nested.graph.outputs()[i]);
        !(type == carry[i].type()))
      trace_error_here("[{}] the body returns {} as {}, and is given it as {}", loop.what,
                       leaf_name("carry", loop.carry_paths[i]), to_string(type),
                       to_string(carry[i].type()));
  if (nested.has_effects) carry.push_back(carry_effects(nested, carry.size()));
  return nested;
}

ScanResult run_scan(const ScanRequest& request) {
  const CallSiteScope site(request.at);
  ScanResult result;
  size_t n_carries = 0;
  const auto body = [&]() -> std::vector<Array> {
    std::vector<Array> carry = leaves_of(request.init);
    const std::vector<Array> xs = leaves_of(request.xs);
    const std::vector<std::string> x_paths = paths_of(request.xs);
    n_carries = carry.size();
    ScanParams params;
    params.in_axes = scanned_axes(request, xs, x_paths);
    params.length = scan_length(request, xs, params.in_axes, x_paths);
    params.reverse = request.options.reverse;
    params.unroll = request.options.unroll;
    if (params.unroll < 0)
      trace_error_here("[scan] expected an unroll of 0 or more, got {}", params.unroll);

    LoopBody loop{.what = "scan", .carry_paths = paths_of(request.init)};
    for (const std::string& p : loop.carry_paths)
      loop.names.push_back(p.empty() ? "carry" : "carry/" + p);
    for (const std::string& p : x_paths) loop.names.push_back(p.empty() ? "x" : "x/" + p);
    for (size_t i = 0; i < xs.size(); ++i)
      loop.slices.push_back(slice_type(xs[i].type(), params.in_axes[i]));
    loop.body = [&](std::span<const Array> inputs) {
      result.result = request.body(inputs);
      return leaves_of(result.result.ref);
    };
    NestedTrace nested = trace_loop_body(loop, carry);
    params.n_consts = static_cast<int>(nested.captures.size());
    params.n_carries = static_cast<int>(carry.size());
    params.out_axes = stacked_axes(request, nested.graph, carry.size());
    std::vector<Array> operands = nested.captures;
    operands.insert(operands.end(), carry.begin(), carry.end());
    operands.insert(operands.end(), xs.begin(), xs.end());
    std::vector<Array> results =
        record(OpKind::kScan, params, operands,
               {std::make_shared<const Graph>(std::move(nested.graph))});
    return nested.has_effects ? take_effects(std::move(results), n_carries) : results;
  };
  std::vector<Array> all = traced_or_run("scan", body);
  const auto split = all.begin() + static_cast<int64_t>(n_carries);
  result.carry.assign(all.begin(), split);
  result.ys.assign(split, all.end());
  return result;
}

}  // namespace stow
