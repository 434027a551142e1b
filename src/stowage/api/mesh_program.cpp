#include "stowage/api/mesh_program.h"

#include <algorithm>

#include "stowage/api/element_reader.h"
#include "stowage/api/shards.h"
#include "stowage/api/trace.h"

namespace stow {
namespace {

// The sharding over a mesh that an argument has; also of an abstract one.
const NamedSharding* mesh_of(const Array& x) {
  if (x.empty()) return nullptr;
  if (x.is_concrete()) return is_sharded(x) ? &mesh_sharding_of(x) : nullptr;
  const auto& sharding = x.impl()->sharding;
  return sharding ? sharding_over_mesh(*sharding) : nullptr;
}

}  // namespace

std::optional<MeshLayout> mesh_layout(const std::string& what, std::span<const Array> arguments,
                                      std::span<const std::string> names,
                                      std::span<const std::shared_ptr<const Sharding>> in,
                                      std::span<const std::shared_ptr<const Sharding>> out) {
  const auto is_over_mesh = [](const std::shared_ptr<const Sharding>& s) {
    return s && sharding_over_mesh(*s);
  };
  if (std::none_of(arguments.begin(), arguments.end(), [](const Array& x) { return mesh_of(x); }) &&
      std::none_of(in.begin(), in.end(), is_over_mesh) &&
      std::none_of(out.begin(), out.end(), is_over_mesh))
    return std::nullopt;
  const NamedSharding* first = nullptr;
  std::string whose;
  const auto join = [&](const NamedSharding* one, const std::string& owner) {
    if (!one) return;
    if (!first) {
      first = one;
      whose = owner;
    } else if (!(first->mesh() == one->mesh())) {
      fail_here("[{}] expected one mesh, {} is on {} and {} on {}{}", what, whose,
                to_string(first->mesh()), owner, to_string(one->mesh()),
                first->mesh().mesh_shape() == one->mesh().mesh_shape() ? " of other devices" : "");
    }
  };
  const auto said = [](std::span<const std::shared_ptr<const Sharding>> list, size_t i) {
    return i < list.size() ? list[i] : nullptr;
  };
  std::vector<std::shared_ptr<const Sharding>> inputs;
  for (size_t i = 0; i < std::max(arguments.size(), in.size()); ++i) {
    const std::string name = fmt::format(
        "argument {}", i < names.size() ? names[i] : fmt::format("{}", i));
    const NamedSharding* lies = i < arguments.size() ? mesh_of(arguments[i]) : nullptr;
    const std::shared_ptr<const Sharding> asked = said(in, i);
    const NamedSharding* over = asked ? sharding_over_mesh(*asked) : nullptr;
    if (lies && asked && !asked->is_equivalent_to(Sharding(*lies), arguments[i].rank()))
      fail_here("[{}] in_shardings say {} for {}, which lies as {}: {}; move it with device_put first",
                what, to_string(*asked), name, to_string(Sharding(*lies)), describe(arguments[i]));
    if (over && !lies && i < arguments.size() && !is_fully_addressable(*asked) && !is_fully_replicated(*asked))
      fail_here("[{}] expected an array over the mesh for {}, since in_shardings cut it over several "
                "processes ({}), got {}; make it with make_array_from_process_local_data or device_put",
                what, name, to_string(*asked), describe(arguments[i]));
    join(lies, name);
    join(over, "in_shardings of " + name);
    inputs.push_back(lies ? std::make_shared<const Sharding>(*lies) : over ? asked : nullptr);
  }
  for (size_t i = 0; i < out.size(); ++i)
    if (out[i]) join(sharding_over_mesh(*out[i]), fmt::format("out_shardings of result {}", i));
  return MeshLayout{first->mesh(), std::move(inputs), {out.begin(), out.end()}};
}

void refuse_over_mesh(const std::string& what, const sharding::Mesh& mesh) {
  fail_here("[{}] programs over a mesh of {} devices, {}, are not there yet: expected arrays on one "
            "device; put them there with device_put(x, SingleDeviceSharding(device))",
            what, mesh.size(), to_string(mesh));
}

void run_over_mesh(const std::string& what, const MeshLayout& layout) {
  refuse_over_mesh(what, layout.mesh);
}

std::string mesh_key(const Array& array) {
  const NamedSharding* sharding = mesh_of(array);
  if (!sharding) return "";
  std::string key = to_string(Sharding(*sharding));
  for (const DevicePtr& device : sharding->mesh().devices())
    key += fmt::format(" {}", device->number());
  return key;
}

}  // namespace stow
