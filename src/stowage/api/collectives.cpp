#include "stowage/api/collectives.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "stowage/api/manual_mesh.h"
#include "stowage/api/math.h"
#include "stowage/api/math_internal.h"
#include "stowage/api/shaping.h"
#include "stowage/api/trace.h"

namespace stow {
namespace {

const MeshShape*& current_mesh() {
  thread_local const MeshShape* mesh = nullptr;
  return mesh;
}
std::vector<int>& current_automatic() {
  thread_local std::vector<int> axes;
  return axes;
}

Array reduced(const char* what, const Operand& x, const AxisNames& axes,
              const AxisIndexGroups& groups, ReduceKind kind) {
  const CallSiteScope site(x.at);
  CollectiveParams p = manual_group(what, axes, groups);
  Array array = to_array(x);
  if (array.dtype() == DType::kBool && kind == ReduceKind::kSum)
    array = convert_to(array, DType::kI32);
  if (p.axes.empty()) return array;
  p.kind = kind;
  return record1(OpKind::kAllReduce, p, {array});
}

// The axis that positions share out, whose extent is the group's size.
int64_t untiled_axis(const char* what, const Array& x, int64_t axis, int64_t size) {
  axis = normalize_axis(what, axis, x.rank(), x.type());
  if (const int64_t extent = x.shape()[static_cast<int>(axis)]; extent != size)
    trace_error_here(
        "[{}] expected axis {} of {} to have the extent of the group, {}, got {}; "
        "{{.tiled = true}} splits any extent that {} divides",
        what, axis, to_string(x.type()), size, extent, size);
  return axis;
}

}  // namespace

const MeshShape* manual_mesh() {
  return current_mesh();
}

ManualMesh::ManualMesh(const MeshShape& mesh, std::vector<int> automatic)
    : before_(current_mesh()),
      before_automatic_(std::exchange(current_automatic(), std::move(automatic))) {
  current_mesh() = &mesh;
}
ManualMesh::~ManualMesh() {
  current_mesh() = before_;
  current_automatic() = std::move(before_automatic_);
}

CollectiveParams manual_group(const char* what, const AxisNames& names) {
  const MeshShape* mesh = manual_mesh();
  if (!mesh)
    trace_error_here(
        "[{}] expected a call in the body of shard_map, got one outside of any, where there "
        "are no mesh axes, for '{}'",
        what, fmt::join(names.names(), "', '"));
  CollectiveParams p{.mesh = *mesh};
  std::set<int> seen;
  for (const std::string& name : names.names()) {
    const int axis = mesh->axis(name);
    if (axis < 0)
      trace_error_here("[{}] expected a mesh axis of the shard_map, '{}', got '{}'", what,
                       fmt::join(mesh->names, "' or '"), name);
    const std::vector<int>& automatic = current_automatic();
    if (std::find(automatic.begin(), automatic.end(), axis) != automatic.end())
      trace_error_here(
          "[{}] expected a mesh axis that axis_names of the shard_map has, got '{}', which is "
          "automatic: the body sees whole arrays along it",
          what, name);
    if (!seen.insert(axis).second)
      trace_error_here("[{}] mesh axis '{}' is named twice", what, name);
    if (mesh->extents[static_cast<size_t>(axis)] > 1) p.axes.push_back(axis);
  }
  return p;
}

CollectiveParams manual_group(const char* what, const AxisNames& names,
                              const AxisIndexGroups& groups) {
  CollectiveParams p = manual_group(what, names);
  if (groups.empty()) return p;
  const int64_t n = p.group_size();
  std::set<int64_t> indices;
  for (const std::vector<int64_t>& group : groups) {
    if (group.size() != groups[0].size())
      trace_error_here("[{}] expected axis_index_groups of one size, got groups of {} and {}", what,
                       groups[0].size(), group.size());
    p.groups.insert(p.groups.end(), group.begin(), group.end());
    indices.insert(group.begin(), group.end());
  }
  if (static_cast<int64_t>(p.groups.size()) != n || static_cast<int64_t>(indices.size()) != n ||
      *indices.begin() != 0 || *indices.rbegin() != n - 1)
    trace_error_here(
        "[{}] expected axis_index_groups that hold each index over '{}', 0 to {}, once, got {}",
        what, fmt::join(names.names(), "', '"), n - 1, groups);
  p.n_groups = static_cast<int64_t>(groups.size());
  if (p.n_groups == 1 && p.groups == Dims(indices.begin(), indices.end())) p.groups.clear();
  if (p.group_size() == 1) p.axes.clear();
  if (p.axes.empty()) {
    p.groups.clear();
    p.n_groups = 1;
  }
  return p;
}

Array psum(const Operand& x, const AxisNames& axes, const AxisIndexGroups& groups) {
  return reduced("psum", x, axes, groups, ReduceKind::kSum);
}
Array pmax(const Operand& x, const AxisNames& axes, const AxisIndexGroups& groups) {
  return reduced("pmax", x, axes, groups, ReduceKind::kMax);
}
Array pmin(const Operand& x, const AxisNames& axes, const AxisIndexGroups& groups) {
  return reduced("pmin", x, axes, groups, ReduceKind::kMin);
}
Array pmean(const Operand& x, const AxisNames& axes, const AxisIndexGroups& groups) {
  const CallSiteScope site(x.at);
  const Array sum = reduced("pmean", x, axes, groups, ReduceKind::kSum);
  return sum / static_cast<double>(manual_group("pmean", axes, groups).group_size());
}

Array all_gather(const Operand& x, const AxisNames& axes, const AllGatherOptions& options) {
  const CallSiteScope site(x.at);
  CollectiveParams p = manual_group("all_gather", axes, options.axis_index_groups);
  Array array = to_array(x);
  p.axis =
      normalize_axis("all_gather", options.axis, array.rank() + (options.tiled ? 0 : 1),
                     array.type());
  if (!options.tiled) array = expand_dims(array, {static_cast<int>(p.axis)});
  return p.axes.empty() ? array : record1(OpKind::kAllGather, p, {array});
}

Array psum_scatter(const Operand& x, const AxisNames& axes, const PsumScatterOptions& options) {
  const CallSiteScope site(x.at);
  CollectiveParams p = manual_group("psum_scatter", axes, options.axis_index_groups);
  Array array = to_array(x);
  p.axis = options.tiled
               ? normalize_axis("psum_scatter", options.scatter_dimension, array.rank(),
                                array.type())
               : untiled_axis("psum_scatter", array, options.scatter_dimension, p.group_size());
  if (!p.axes.empty()) array = record1(OpKind::kReduceScatter, p, {array});
  return options.tiled ? array : squeeze(array, {static_cast<int>(p.axis)});
}

Array all_to_all(const Operand& x, const AxisNames& axes, int64_t split_axis, int64_t concat_axis,
                 const AllToAllOptions& options) {
  const CallSiteScope site(x.at);
  CollectiveParams p = manual_group("all_to_all", axes, options.axis_index_groups);
  Array array = to_array(x);
  if (options.tiled) {
    p.axis = normalize_axis("all_to_all", split_axis, array.rank(), array.type());
    p.concat_axis = normalize_axis("all_to_all", concat_axis, array.rank(), array.type());
    return p.axes.empty() ? array : record1(OpKind::kAllToAll, p, {array});
  }
  const int64_t split = untiled_axis("all_to_all", array, split_axis, p.group_size());
  const int64_t concat = normalize_axis("all_to_all", concat_axis, array.rank(), array.type());
  // The new axis stands where it lies once the split axis is gone.
  p.axis = concat <= split ? split + 1 : split;
  p.concat_axis = concat <= split ? concat : concat + 1;
  array = expand_dims(array, {static_cast<int>(p.concat_axis)});
  if (!p.axes.empty()) array = record1(OpKind::kAllToAll, p, {array});
  return squeeze(array, {static_cast<int>(p.axis)});
}

Array ppermute(const Operand& x, const AxisNames& axes,
               const std::vector<std::pair<int64_t, int64_t>>& pairs) {
  const CallSiteScope site(x.at);
  CollectiveParams p = manual_group("ppermute", axes);
  for (const auto& [source, destination] : pairs) {
    p.pairs.push_back(source);
    p.pairs.push_back(destination);
  }
  return record1(OpKind::kPermute, p, {to_array(x)});
}

Array pshuffle(const Operand& x, const AxisNames& axes, const std::vector<int64_t>& from) {
  const CallSiteScope site(x.at);
  const int64_t n = manual_group("pshuffle", axes).group_size();
  if (static_cast<int64_t>(from.size()) != n ||
      std::set<int64_t>(from.begin(), from.end()).size() != from.size())
    trace_error_here("[pshuffle] expected a permutation of {} positions, got [{}]", n,
                     fmt::join(from, ", "));
  std::vector<std::pair<int64_t, int64_t>> pairs;
  for (size_t i = 0; i < from.size(); ++i) pairs.emplace_back(from[i], i);
  return ppermute(x, axes, pairs);
}

Array axis_index(const AxisNames& axes, SourceLocation at) {
  const CallSiteScope site(at);
  const CollectiveParams p = manual_group("axis_index", axes);
  if (p.axes.empty()) return scalar_constant(ScalarValue(0), DType::kI32);
  return record1(OpKind::kAxisIndex, p, {});
}

int64_t axis_size(const AxisNames& axes, SourceLocation at) {
  const CallSiteScope site(at);
  return manual_group("axis_size", axes).group_size();
}

}  // namespace stow
