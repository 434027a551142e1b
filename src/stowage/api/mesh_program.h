// Mesh programs: execution of jit and single operations on arrays over several devices.
// Not a partitioner (passes/partition.h), and no transport (runtime/comm).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "stowage/api/array.h"
#include "stowage/api/sharding.h"
#include "stowage/runtime/comm/mesh_position.h"
#include "stowage/session/compile.h"

namespace stow {

struct Storage;  // api/trace.h

/// The shardings that a program over a mesh needs besides its graph.
struct MeshLayout {
  sharding::Mesh mesh;
  /// By input of the graph. Null: each process has the whole argument, and it is replicated.
  std::vector<std::shared_ptr<const Sharding>> inputs;
  /// By output of the graph. Null: propagation chooses the sharding.
  std::vector<std::shared_ptr<const Sharding>> outputs;
};

/// The layout of a call; none if every array lies on one device. `what`: the function that errors
/// name. `arguments`: may be empty if `in` is MeshLayout::inputs of an earlier call. `names`: names
/// of the arguments for errors; if empty, errors give their numbers. `in`, `out`: in_shardings and
/// out_shardings, by input and output; inputs and outputs beyond the end of a list have none.
/// `constraint`: a sharding that the program itself asks for; null: none.
/// Errors: TraceError if two shardings have different devices; if an argument's sharding is not
/// equivalent to its in_sharding; for an argument without a sharding whose in_sharding cuts it over
/// several processes.
std::optional<MeshLayout> mesh_layout(const std::string& what, std::span<const Array> arguments,
                                      std::span<const std::string> names,
                                      std::span<const std::shared_ptr<const Sharding>> in,
                                      std::span<const std::shared_ptr<const Sharding>> out,
                                      const Sharding* constraint = nullptr);

/// Throws TraceError: operation `what` takes no array over a mesh.
[[noreturn]] void refuse_over_mesh(const std::string& what, const sharding::Mesh& mesh);

/// The compiler's options for a layout. `graph`: the program over whole arrays. Besides the
/// layout's outputs it may have the tokens of effects as outputs.
/// Errors: TraceError if a sharding does not fit the type of its array.
std::shared_ptr<const MeshOptions> mesh_options(const std::string& what, const MeshLayout& layout,
                                                const ir::Graph& graph);

/// Records in every active trace that the program asks for a sharding over this mesh.
/// Errors: TraceError if a trace has recorded another mesh, and in the body of a shard_map.
void record_mesh(const NamedSharding& sharding);

/// The target of the mesh's devices in this process. If the mesh has no device here, the default
/// device's target.
/// Errors: TraceError if these devices differ in kind or threads, or if the host cannot address
/// their memory.
runtime::TargetPtr target_of(const sharding::Mesh& mesh);

/// Puts the arguments of a program over its mesh. An argument that is not in shards is put as
/// Inputs::shardings says, by default on every device. If the mesh spans processes, one collective
/// checks that they all have equal values of these arguments. Caches the copy of an argument that
/// the previous call had too, and of a captured array from the first call on, while the array
/// lives. Arguments that are new in each call are not cached.
class MeshArguments {
 public:
  /// The arguments of a call, by input. Inputs beyond the end of a list have the list's default.
  struct Inputs {
    std::span<const Array> arrays;
    std::span<const std::shared_ptr<const Sharding>> shardings;  ///< Null: replicated.
    std::span<const std::string> names = {};  ///< For errors.
    std::vector<bool> donated = {};           ///< True: the program overwrites the copy.
    size_t first_captured = SIZE_MAX;         ///< Number of the first captured array.
  };
  /// The arguments over the mesh, by input. Errors: as device_put().
  std::vector<Array> placed(const sharding::Mesh& mesh, const Inputs& inputs);

 private:
  struct Kept {
    std::weak_ptr<Storage> source;
    comm::Fingerprint fingerprint{};
    bool has_fingerprint = false;
    Array copy;  // empty: not cached yet
  };
  std::vector<Kept> kept_;  // by input
};

class ThreadRanks;  // the communicators of a mesh within a process

/// A program of a mesh made ready for the devices of this process. One thread at a time runs it.
class MeshRunner {
 public:
  MeshRunner(sharding::Mesh mesh, ExecutablePtr program);

  const sharding::Mesh& mesh() const { return mesh_; }
  /// Runs the program at all positions of this process, each on its device's own thread, together
  /// with the positions of other processes. `arguments`: one for each input, each over the mesh
  /// (MeshArguments::placed). `types`, `shardings`: those of the results; a null sharding stands
  /// for the one that the compiler chose. Before the first run, processes compare their programs.
  /// Errors: the first error of any position, as Executable::run() throws it; donated arguments are
  /// then unusable. TraceError, in all processes, if their programs differ.
  std::vector<Array> run(std::span<const Array> arguments, std::span<const ArrayType> types,
                         std::span<const std::shared_ptr<const Sharding>> shardings);

 private:
  struct Position {
    comm::MeshPosition at;
    DevicePtr device;
    ExecutablePtr program;
  };
  void connect();

  sharding::Mesh mesh_;
  ExecutablePtr program_;
  void check_same_programs();

  std::vector<Position> local_;
  bool is_fully_local_, is_checked_ = false;
  std::shared_ptr<ThreadRanks> ranks_;  // ranks within this process; shared by the mesh's programs
};

/// A cache of compiled programs for operations outside of jit, by graph and shardings.
class MeshPrograms {
 public:
  /// Runs `graph` on `arguments`, one array for each input, at least one of them over the mesh of
  /// `layout`. Returns its outputs. Errors: as mesh_options() and MeshRunner::run().
  std::vector<Array> run(const std::string& what, const MeshLayout& layout, const ir::Graph& graph,
                         std::span<const Array> arguments);

 private:
  struct Entry {
    ir::Graph graph;
    std::string key;
    std::shared_ptr<MeshRunner> runner;
  };
  std::unordered_multimap<size_t, Entry> programs_;
};

/// A cache key for the sharding of an array over a mesh: equal keys mean equal shardings while the
/// devices live. Empty for an array on one device.
std::string mesh_key(const Array& array);

}  // namespace stow
