// Mesh programs: where jit and operations see that arrays lie over several devices.
// Not a partitioner; it begins where run_over_mesh() is called.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "stowage/api/array.h"
#include "stowage/api/sharding.h"

namespace stow {

/// What a program over a mesh needs beside its graph.
struct MeshLayout {
  sharding::Mesh mesh;
  /// By input of the graph; null: the argument is there whole in each process, and is replicated.
  std::vector<std::shared_ptr<const Sharding>> inputs;
  /// By output; null: as propagation finds.
  std::vector<std::shared_ptr<const Sharding>> outputs;
};

/// The layout of a call; none where every array lies on one device.
/// `arguments`: may be left out where `in` is what an earlier call returned as inputs.
/// `names`: of the arguments, for errors; empty: their numbers. `in`, `out`: what in_shardings and
/// out_shardings say, by input and output; shorter lists say nothing about the rest.
/// Errors: TraceError where two shardings have different devices; where an argument lies otherwise
/// than its in_sharding says; for an argument without a sharding that an in_sharding would cut over
/// several processes.
std::optional<MeshLayout> mesh_layout(const std::string& what, std::span<const Array> arguments,
                                      std::span<const std::string> names,
                                      std::span<const std::shared_ptr<const Sharding>> in,
                                      std::span<const std::shared_ptr<const Sharding>> out);

/// Throws that there are no programs over this mesh.
[[noreturn]] void refuse_over_mesh(const std::string& what, const sharding::Mesh& mesh);

/// Runs a graph over the mesh of a layout. Until there is a partitioner it throws.
[[noreturn]] void run_over_mesh(const std::string& what, const MeshLayout& layout);

/// What distinguishes shardings over meshes in a cache: equal texts mean equal shardings while the
/// devices live. Empty for an array on one device.
std::string mesh_key(const Array& array);

}  // namespace stow
