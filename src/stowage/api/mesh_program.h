// Mesh programs: what jit and operations do where arrays lie over several devices.
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

/// The shardings that a program over a mesh needs beside its graph.
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
                                      std::span<const std::shared_ptr<const Sharding>> out,
                                      const Sharding* constraint = nullptr);

/// Throws that an operation on an array over this mesh cannot be done.
[[noreturn]] void refuse_over_mesh(const std::string& what, const sharding::Mesh& mesh);

/// The compiler's options for a layout. `graph`: over whole arrays; it may have more outputs than the
/// layout, the tokens of effects.
/// Errors: TraceError where a sharding does not fit its type.
std::shared_ptr<const MeshOptions> mesh_options(const std::string& what, const MeshLayout& layout,
                                                const ir::Graph& graph);

/// Records in every trace that is active that a sharding over this mesh was asked for.
/// Errors: TraceError where another mesh was.
void note_mesh(const NamedSharding& sharding);

/// The target of the mesh's devices in this process; the default device's where it has none.
/// Errors: TraceError where they differ in kind or threads.
runtime::TargetPtr target_of(const sharding::Mesh& mesh);

/// The arguments of a program over a mesh. One that lies whole goes where `lies` says, by input, or else to
/// every device; between processes all that lie whole are compared in one collective.
/// An array that comes again is read and copied no more: its copy is kept from the second call on, that of a
/// captured one from the first, while the array lives. Arguments that are new in each call are not kept.
class MeshArguments {
 public:
  /// The arguments of a call, by input. Shorter lists say nothing about the rest.
  struct Inputs {
    std::span<const Array> arrays;
    std::span<const std::shared_ptr<const Sharding>> lies;
    std::span<const std::string> names = {};  ///< For errors.
    std::vector<bool> donated = {};           ///< Copies that the program overwrites.
    size_t first_captured = SIZE_MAX;
  };
  /// Errors: as device_put().
  std::vector<Array> placed(const sharding::Mesh& mesh, const Inputs& inputs);

 private:
  struct Kept {
    std::weak_ptr<Storage> source;
    comm::Fingerprint fingerprint{};
    bool has_fingerprint = false;
    Array copy;  // empty: not kept yet
  };
  std::vector<Kept> kept_;  // by input
};

class ThreadRanks;  // the communicators of a mesh within a process

/// A program of a mesh made ready for the devices of this process. One thread at a time runs it.
class MeshRunner {
 public:
  MeshRunner(sharding::Mesh mesh, ExecutablePtr program);

  const sharding::Mesh& mesh() const { return mesh_; }
  /// Runs it at all positions of this process, each on its device's own thread, together with those of
  /// other processes. `arguments`: one an input, each over the mesh (placed_over_mesh). `types` and `shardings` (null: as the compiler left it) are of the
  /// results.
  /// Before the first run over several processes, these compare their programs.
  /// Errors: the first error of any position, as Executable::run() throws; donated arguments are then
  /// unusable. TraceError, in all processes, where their programs differ.
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
  void check_alike();

  std::vector<Position> local_;
  bool is_fully_local_, is_checked_ = false;
  std::shared_ptr<ThreadRanks> ranks_;  // ranks within this process; shared by the mesh's programs
};

/// Programs of operations outside of jit, by graph and shardings.
class MeshPrograms {
 public:
  /// Runs a graph whose inputs are these arrays, some of them over a mesh.
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

/// A text that distinguishes shardings over meshes in a cache: equal texts mean equal shardings while the
/// devices live. Empty for an array on one device.
std::string mesh_key(const Array& array);

}  // namespace stow
