#include "stowage/nn/named/partitioning.h"

#include <fmt/ranges.h>

#include <utility>

#include "stowage/api/trace.h"
#include "stowage/nn/named/access.h"

namespace stow::named {
namespace {

thread_local const AxisMappingScope* current_scope = nullptr;

constexpr size_t kMostAxes = 16;

std::string of_leaf(const std::string& leaf) {
  return leaf.empty() ? "" : fmt::format(" of '{}'", leaf);
}

// A specification takes its entries as arguments, so their number must be known to the compiler.
template <size_t n = 0>
PartitionSpec spec_of(const std::vector<PartitionSpec::Axes>& entries) {
  if constexpr (n > kMostAxes) {
    trace_error_here("[shard] expected an array of at most {} axes, got {}", kMostAxes,
                     entries.size());
  } else {
    if (entries.size() != n) return spec_of<n + 1>(entries);
    return [&]<size_t... I>(std::index_sequence<I...>) {
      return PartitionSpec(entries[I]...);
    }
    (std::make_index_sequence<n>());
  }
}

int64_t parts_of(const Axis& axis, const ResourceMapping& mapping, const MeshShape& mesh,
                 const std::string& leaf) {
  const ResourceMapping::Axes* mesh_axes = mapping.find(axis.name);
  if (!mesh_axes) return 1;
  std::vector<int> places;
  for (const std::string& name : mesh_axes->names()) {
    places.push_back(mesh.axis(name));
    if (places.back() < 0)
      trace_error_here("[shard] expected an axis of {}, got '{}' in the mapping of axis {}{}",
                       to_string(mesh), name, to_string(axis), of_leaf(leaf));
  }
  return mesh.extent_of(places);
}

class Sharder : public PathNamedVisitor {
 public:
  Sharder(const ResourceMapping& mapping, const sharding::Mesh& mesh)
      : mapping_(mapping), mesh_(mesh) {}
  void leaf(Array&) override {}
  void named(NamedArray& x) override {
    if (x.array().empty()) return;
    check_axes_fit("shard", x);
    check_divisible(x.axes(), mapping_, shape_of(mesh_), path);
    const NamedSharding to(mesh_, pspec_for_axis(x.axes(), mapping_, path),
                           memory_kind_name(x.array().type().kind));
    NamedAccess::set_array(x, device_put(x.array(), to));
  }

 private:
  const ResourceMapping& mapping_;
  const sharding::Mesh& mesh_;
};

}  // namespace

struct CurrentScope {
  static const ResourceMapping* mapping() {
    return current_scope ? &current_scope->mapping_ : nullptr;
  }
  // The innermost mesh there is.
  static const sharding::Mesh* mesh() {
    for (const AxisMappingScope* s = current_scope; s; s = s->before_)
      if (s->mesh_) return &*s->mesh_;
    return nullptr;
  }
};

ResourceMapping::ResourceMapping(std::initializer_list<std::pair<const char*, Axes>> entries) {
  for (const auto& [axis, mesh_axes] : entries)
    if (!entries_.emplace(axis, mesh_axes).second)
      trace_error_here("[mapping] axis '{}' is there twice", axis);
}

const ResourceMapping::Axes* ResourceMapping::find(const std::string& axis) const {
  const auto found = entries_.find(axis);
  return found == entries_.end() ? nullptr : &found->second;
}

ResourceMapping ResourceMapping::with(const std::string& axis, Axes mesh_axes) const {
  ResourceMapping result = *this;
  result.entries_.insert_or_assign(axis, std::move(mesh_axes));
  return result;
}

ResourceMapping ResourceMapping::merged(const ResourceMapping& other) const {
  ResourceMapping result = *this;
  for (const auto& [axis, mesh_axes] : other.entries_)
    result.entries_.insert_or_assign(axis, mesh_axes);
  return result;
}

std::string to_string(const ResourceMapping& mapping) {
  std::string text = "{";
  for (const auto& [axis, mesh_axes] : mapping.entries())
    text += fmt::format("{}{}: ('{}')", text.size() > 1 ? ", " : "", axis,
                        fmt::join(mesh_axes.names(), "', '"));
  return text + "}";
}

PartitionSpec pspec_for_axis(const std::vector<Axis>& axes, const ResourceMapping& mapping,
                             const std::string& leaf, SourceLocation at) {
  const CallSiteScope site(at);
  std::vector<PartitionSpec::Axes> entries;
  std::map<std::string, std::string> cut_by;  // the axis that each mesh axis cuts
  for (const Axis& axis : axes) {
    const ResourceMapping::Axes* mesh_axes = mapping.find(axis.name);
    entries.push_back(mesh_axes ? *mesh_axes : PartitionSpec::Axes(nullptr));
    for (const std::string& name : entries.back().names()) {
      const auto [other, is_new] = cut_by.emplace(name, axis.name);
      if (!is_new)
        trace_error_here(
            "[shard] axes '{}' and '{}' of {}{} are both mapped to mesh axis '{}', which cuts one "
            "axis of an array at most",
            other->second, axis.name, to_string(axes), of_leaf(leaf), name);
    }
  }
  return spec_of(entries);
}

MeshShape shape_of(const sharding::Mesh& mesh) {
  return {mesh.axis_names(), mesh.shape()};
}

int64_t physical_axis_size(const Axis& axis, const ResourceMapping& mapping, const MeshShape& mesh,
                           SourceLocation at) {
  const CallSiteScope site(at);
  return parts_of(axis, mapping, mesh, "");
}

Axis round_axis_for_partitioning(const Axis& axis, const ResourceMapping& mapping,
                                 const MeshShape& mesh, SourceLocation at) {
  const int64_t parts = physical_axis_size(axis, mapping, mesh, at);
  return axis.resize((axis.size + parts - 1) / parts * parts);
}

void check_divisible(const std::vector<Axis>& axes, const ResourceMapping& mapping,
                     const MeshShape& mesh, const std::string& leaf, SourceLocation at) {
  const CallSiteScope site(at);
  for (const Axis& axis : axes) {
    const int64_t parts = parts_of(axis, mapping, mesh, leaf);
    if (axis.size % parts != 0)
      trace_error_here(
          "[shard] axis {}{} is not divisible into the {} parts of mesh axes {}; the next size "
          "that is: {}",
          to_string(axis), of_leaf(leaf), parts, fmt::join(mapping.find(axis.name)->names(), ", "),
          round_axis_for_partitioning(axis, mapping, mesh).size);
  }
}

AxisMappingScope::AxisMappingScope(ResourceMapping mapping, std::optional<sharding::Mesh> mesh)
    : mapping_(std::move(mapping)), mesh_(std::move(mesh)), before_(current_scope) {
  current_scope = this;
}

AxisMappingScope::~AxisMappingScope() {
  current_scope = before_;
}

void shard_leaves(const TreeRef& tree, const ResourceMapping* mapping, const sharding::Mesh* mesh,
                  bool optional, SourceLocation at) {
  const CallSiteScope site(at);
  if (!mapping) mapping = CurrentScope::mapping();
  if (!mapping && optional) return;
  if (!mesh) mesh = CurrentScope::mesh();
  if (!mesh && optional) return;
  if (!mesh)
    trace_error_here(
        "[shard] expected a mesh, got none; pass one, or give one to an AxisMappingScope");
  Sharder sharder(*mapping, *mesh);
  tree.visit(tree.tree, sharder);
}

}  // namespace stow::named
