#include "stowage/train/mesh.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "stowage/base/error.h"

namespace stow {
namespace {

constexpr int64_t kSmallVectorBytes = 64 * 1024;
constexpr std::string_view kCutByModel[] = {"heads", "kv_heads", "mlp", "vocab"};

// True if a layer's part has at most one axis.
bool is_vector(std::span<const WeightAxis> axes) {
  return std::count_if(axes.begin(), axes.end(),
                       [](const WeightAxis& a) { return a.name != "layers"; }) <= 1;
}

int64_t bytes_of_layer(const ArrayType& type, std::span<const WeightAxis> axes) {
  int64_t bytes = type.bytes();
  for (size_t i = 0; i < axes.size(); ++i)
    if (axes[i].name == "layers" && type.shape.dims()[i] > 0) bytes /= type.shape.dims()[i];
  return bytes;
}

AxisSharding sharding_of(const TrainConfig& config, const MeshShape& mesh, std::string_view path,
                         const ArrayType& type, std::span<const WeightAxis> given,
                         const std::string& form) {
  AxisSharding sharding = whole_sharding(type.shape.rank());
  std::vector<WeightAxis> axes(given.begin(), given.end());
  if (axes.empty()) axes.resize(sharding.axes.size());
  STOW_CHECK(axes.size() == sharding.axes.size(), "{} has {} axes, and names for {}", path,
             sharding.axes.size(), axes.size());
  const int model = mesh.axis("model"), data = mesh.axis("data");
  if (model >= 0)
    for (size_t i = 0; i < axes.size(); ++i) {
      if (std::find(std::begin(kCutByModel), std::end(kCutByModel), axes[i].name) ==
          std::end(kCutByModel))
        continue;
      if (axes[i].most_parts % config.mesh.model != 0) {
        // The vocabulary of a model from files is given, and nothing else depends on its sharding.
        if (axes[i].name == "vocab") break;
        trace_error("mesh.model = {} cannot cut {} {}: there are {} of '{}'", config.mesh.model,
                    path, to_string(type), axes[i].most_parts, axes[i].name);
      }
      sharding.axes[i].push_back(model);
      break;
    }
  const bool stays = form == "replicated" ||
                     (form == "auto" && is_vector(axes) &&
                      bytes_of_layer(type, axes) <= kSmallVectorBytes);
  if (data < 0 || stays) return sharding;
  // The embedding axis comes first, then the others from the largest; axes that `model` cuts come
  // last.
  std::vector<size_t> order(axes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto rank_of = [&](size_t i) {
    return std::tuple(!sharding.axes[i].empty(), axes[i].name != "embed", -type.shape.dims()[i]);
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return rank_of(a) < rank_of(b); });
  for (size_t i : order) {
    const int64_t parts = config.mesh.data * mesh.extent_of(sharding.axes[i]);
    if (axes[i].name == "layers" || type.shape.dims()[i] % parts != 0) continue;
    // `data` must not cut within heads if `model` cuts them too.
    if (!sharding.axes[i].empty() && axes[i].most_parts % parts != 0) continue;
    sharding.axes[i].push_back(data);
    break;
  }
  return sharding;
}

}  // namespace

MeshShape mesh_of(const TrainConfig& config) {
  MeshShape mesh;
  const std::pair<const char*, int64_t> axes[] = {{"replica", config.mesh.replica},
                                                  {"data", config.mesh.data},
                                                  {"model", config.mesh.model}};
  for (const auto& [name, extent] : axes) {
    if (extent == 1) continue;
    mesh.names.emplace_back(name);
    mesh.extents.push_back(extent);
  }
  return mesh;
}

MeshAxes batch_axes(const MeshShape& mesh) {
  MeshAxes axes;
  for (const char* name : {"replica", "data"})
    if (const int axis = mesh.axis(name); axis >= 0) axes.push_back(axis);
  return axes;
}

AxisSharding weight_sharding(const TrainConfig& config, const MeshShape& mesh,
                             std::string_view path, const ArrayType& type,
                             std::span<const WeightAxis> axes) {
  return sharding_of(config, mesh, path, type, axes, config.mesh.parameters);
}

AxisSharding state_sharding(const TrainConfig& config, const MeshShape& mesh, std::string_view path,
                            const ArrayType& type, const NamedArrays& parameters,
                            const TrainModel& model) {
  // The longest matching name counts: "layers/norm" also ends in "norm".
  size_t best = parameters.names.size();
  for (size_t i = 0; i < parameters.names.size(); ++i) {
    const std::string& name = parameters.names[i];
    if (!path.ends_with("/" + name)) continue;
    if (best == parameters.names.size() || name.size() > parameters.names[best].size()) best = i;
  }
  if (best == parameters.names.size()) return whole_sharding(type.shape.rank());
  const std::string& form =
      config.mesh.optimizer == "auto" ? config.mesh.parameters : config.mesh.optimizer;
  const ArrayType& weight = parameters.arrays[best].type();
  AxisSharding sharding = sharding_of(config, mesh, parameters.names[best], weight,
                                      model.axes_of(parameters.names[best]), form);
  const Dims& dims = type.shape.dims();
  if (dims == weight.shape.dims()) return sharding;
  // One number per row, as scales are, or per column, as factored moments are.
  for (size_t from_end : {1u, 2u}) {
    Dims rest = weight.shape.dims();
    if (rest.size() < 2) break;
    const auto axis = static_cast<std::ptrdiff_t>(rest.size() - from_end);
    rest.erase(rest.begin() + axis);
    if (rest != dims) continue;
    sharding.axes.erase(sharding.axes.begin() + axis);
    return sharding;
  }
  return whole_sharding(type.shape.rank());
}

AxisSharding batch_sharding(const MeshShape& mesh, const ArrayType& type, bool is_stacked) {
  AxisSharding sharding = whole_sharding(type.shape.rank());
  const MeshAxes axes = batch_axes(mesh);
  const size_t batch = is_stacked ? 1 : 0;
  // A vector is no batch, since it may be a key.
  if (!axes.empty() && sharding.axes.size() > batch + 1 &&
      type.shape.dims()[batch] % mesh.extent_of(axes) == 0)
    sharding.axes[batch] = axes;
  return sharding;
}

}  // namespace stow
