#include "stowage/api/shard_map.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "stowage/api/element_reader.h"
#include "stowage/api/manual_mesh.h"
#include "stowage/api/mesh_program.h"
#include "stowage/api/trace.h"
#include "stowage/core/axis_sharding.h"

namespace stow {
namespace {

std::string quoted(const std::vector<std::string>& paths) {
  return paths.empty() ? "none" : fmt::format("'{}'", fmt::join(paths, "', '"));
}

// `option` says something of every leaf and of nothing else.
void check_paths(const char* option, const char* whose, const SpecsByPath& specs,
                 const TreeRef& tree) {
  const std::vector<std::string> parts = part_paths_of(tree), leaves = paths_of(tree);
  for (const auto& [path, spec] : specs.all())
    if (std::find(parts.begin(), parts.end(), path) == parts.end())
      trace_error_here(
          "[shard_map] expected {} to name parts of the {}, got '{}'; the leaves are {}", option,
          whose, path, quoted(leaves));
  for (const std::string& leaf : leaves)
    if (!specs.find(leaf))
      trace_error_here(
          "[shard_map] expected {} to have a specification for every leaf of the {}, got none for "
          "'{}'; P() is one of a whole array",
          option, whose, leaf);
}

// The sharding of a whole array. `owner` names it in errors.
ReshardParams border(const ShardMapCall& call, const PartitionSpec& spec, const ArrayType& whole,
                     const std::string& owner) {
  const MeshShape& mesh = call.mesh.mesh_shape();
  Result<AxisSharding> axes = axis_sharding_of(spec, whole, mesh);
  if (!axes) trace_error_here("[shard_map] {}: {}", owner, axes.error());
  return {mesh, std::move(*axes), call.automatic};
}

// The type of the whole array whose parts have that type.
ArrayType whole_type(const MeshShape& mesh, const PartitionSpec& spec, ArrayType part,
                     const std::string& owner) {
  const auto& entries = spec.entries();
  if (entries.size() > static_cast<size_t>(part.shape.rank()))
    trace_error_here("[shard_map] {}: {} has {} entries, its part {} has {} axes", owner,
                     to_string(spec), entries.size(), to_string(part), part.shape.rank());
  for (size_t i = 0; i < entries.size(); ++i)
    for (const std::string& name : entries[i].names())
      part.shape[static_cast<int>(i)] *= mesh.extents[static_cast<size_t>(mesh.axis(name))];
  return part;
}

std::string name_of(const char* what, const std::string& path) {
  return path.empty() ? what : fmt::format("{} {}", what, path);
}

}  // namespace

SpecsByPath::SpecsByPath(std::initializer_list<PartitionSpec> by_number) {
  for (const PartitionSpec& spec : by_number)
    by_path_.emplace_back(fmt::format("{}", by_path_.size()), spec);
}

const PartitionSpec* SpecsByPath::find(std::string_view path) const {
  const PartitionSpec* found = nullptr;
  size_t length = 0;
  for (const auto& [part, spec] : by_path_) {
    const bool fits =
        part.empty() || path == part ||
        (path.size() > part.size() && path.starts_with(part) && path[part.size()] == '/');
    if (!fits || (found && part.size() <= length)) continue;
    found = &spec;
    length = part.size();
  }
  return found;
}

ShardMapCall::ShardMapCall(sharding::Mesh over, SpecsByPath in, SpecsByPath out,
                           ShardMapOptions options, SourceLocation from)
    : mesh(std::move(over)), in_specs(std::move(in)), out_specs(std::move(out)), at(from) {
  const CallSiteScope site(at);
  const MeshShape& shape = mesh.mesh_shape();
  const std::vector<std::string>& manual = options.axis_names;
  for (size_t i = 0; i < manual.size(); ++i) {
    if (shape.axis(manual[i]) < 0)
      trace_error_here("[shard_map] expected axis_names of the mesh, '{}', got '{}'",
                       fmt::join(shape.names, "' or '"), manual[i]);
    if (std::find(manual.begin(), manual.begin() + static_cast<std::ptrdiff_t>(i), manual[i]) !=
        manual.begin() + static_cast<std::ptrdiff_t>(i))
      trace_error_here("[shard_map] axis_names name '{}' twice", manual[i]);
  }
  const auto is_manual = [&](const std::string& name) {
    return manual.empty() || std::find(manual.begin(), manual.end(), name) != manual.end();
  };
  for (const SpecsByPath* specs : {&in_specs, &out_specs})
    for (const auto& [path, spec] : specs->all()) {
      NamedSharding(mesh, spec);  // checks the names
      for (const PartitionSpec::Axes& entry : spec.entries())
        for (const std::string& name : entry.names())
          if (!is_manual(name))
            trace_error_here(
                "[shard_map] expected {} to name axes of axis_names, '{}', got {}; '{}' is "
                "automatic",
                specs == &in_specs ? "in_specs" : "out_specs", fmt::join(manual, "', '"),
                to_string(spec), name);
    }
  for (int axis = 0; axis < shape.rank(); ++axis)
    if (!is_manual(shape.names[static_cast<size_t>(axis)])) automatic.push_back(axis);
}

ShardMapResult run_shard_map(const ShardMapCall& call, const TreeRef& arguments,
                             const LeafFunction& function) {
  const CallSiteScope site(call.at);
  const MeshShape& mesh = call.mesh.mesh_shape();
  if (const MeshShape* outer = manual_mesh())
    trace_error_here(
        "[shard_map] expected a call outside of the body of another shard_map, got one in the "
        "body of one over {}; call it there with collectives",
        to_string(*outer));
  check_paths("in_specs", "arguments", call.in_specs, arguments);
  // A mesh of one device has no parts: the body is the whole program.
  const NamedSharding replicated(call.mesh, {});
  const bool is_over_mesh = sharding_over_mesh(Sharding(replicated)) != nullptr;
  if (is_over_mesh) record_mesh(replicated);

  const std::vector<std::string> paths = paths_of(arguments);
  std::vector<Array> parts = leaves_of(arguments);
  std::vector<ArrayType> types;
  for (size_t i = 0; i < parts.size(); ++i) {
    const ReshardParams p =
        border(call, *call.in_specs.find(paths[i]), parts[i].type(), name_of("argument", paths[i]));
    if (is_over_mesh) parts[i] = record1(OpKind::kFullToShard, p, {parts[i]});
    types.push_back(parts[i].type());
  }
  ShardMapResult result;
  const auto check_result = [&] {
    check_paths("out_specs", "result", call.out_specs, result.result.ref);
  };
  if (!is_over_mesh) {
    const ManualMesh manual(mesh, call.automatic);
    result.result = function(parts);
    check_result();
    result.outputs = leaves_of(result.result.ref);
  } else {
    NestedTrace nested =
        trace_nested("shard_map", types, paths, parts.size(), [&](std::span<const Array> inputs) {
          const ManualMesh manual(mesh, call.automatic);
          result.result = function(inputs);
          return leaves_of(result.result.ref);
        });
    check_result();
    if (nested.has_effects)
      trace_error_here(
          "[shard_map] expected a body without effects, got debug_print in it; print its results");
    for (const Array& capture : nested.captures) {
      const ReshardParams whole{mesh, whole_sharding(capture.rank()), call.automatic};
      parts.push_back(record1(OpKind::kFullToShard, whole, {capture}));
    }
    result.outputs = inline_graph(nested.graph, parts);
  }
  const std::vector<std::string> result_paths = paths_of(result.result.ref);
  for (size_t i = 0; i < result.outputs.size(); ++i) {
    Array& output = result.outputs[i];
    const std::string owner = name_of("result", result_paths[i]);
    const PartitionSpec& spec = *call.out_specs.find(result_paths[i]);
    const ReshardParams p = border(call, spec, whole_type(mesh, spec, output.type(), owner), owner);
    if (!is_over_mesh) continue;
    output = record1(OpKind::kShardToFull, p, {output});
    // The partitioner chooses how automatic axes cut a result.
    if (!call.automatic.empty()) continue;
    output.impl()->sharding = std::make_shared<const Sharding>(
        NamedSharding(call.mesh, spec, memory_kind_name(output.type().kind)));
  }
  return result;
}

}  // namespace stow
