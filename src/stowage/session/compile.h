// The compile driver: graph -> passes -> schedule -> plan -> program.
// Not tracing and not a cache; api/ keeps one per jitted function.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "stowage/ir/graph.h"
#include "stowage/ir/partition_report.h"
#include "stowage/plan/analysis.h"
#include "stowage/runtime/device.h"

namespace stow {

namespace ir {
struct Schedule;  // ir/schedule.h
}
class RunObserver;  // runtime/run_observer.h
namespace comm {
struct MeshPosition;  // runtime/comm/mesh_position.h
}

/// Default of CompileOptions::tile_bytes.
inline constexpr int64_t kTileBytes = 1 << 20;

/// The sharding of a program's arrays over a mesh: see passes/partition.h.
struct MeshOptions {
  MeshShape mesh;
  std::vector<AxisSharding> in;                  ///< By input of the graph.
  std::vector<std::optional<AxisSharding>> out;  ///< By output; none: chosen by propagation.
  PartitionOptions partition;                    ///< Strictness, and the notes to make.
};

struct CompileOptions {
  /// By input: true if the program may overwrite it. Empty: none may be overwritten.
  std::vector<bool> donated;
  /// If set, replaces the policy of every checkpointed region, without a new trace.
  ir::PolicyPtr override_policy;
  bool fuse = true;       ///< False: one kernel for each op.
  /// Elements that a product's result needs for a row program that reads it to become its epilogue.
  /// A smaller result stays in the cache anyway.
  int64_t least_epilogue = 1 << 14;
  bool reuse = true;      ///< False: every buffer has bytes of its own, and no op works in place.
  /// Largest number of moves between memories that may run ahead in each direction. 0: compute
  /// waits for every move.
  int transfers_ahead = 377;
  /// True: if compute would wait for moves that may run ahead, values that would leave last and
  /// come back first stay on the device, as far as `capacities[0]` allows (passes/keep_resident.h).
  bool keep_resident = true;
  /// Largest total of each memory kind that moves ahead may lead to. This is no bound on the
  /// program: one that needs more without moves ahead compiles and then fails to run. Unlimited:
  /// moves ahead do not raise the peak on the device.
  Device::Capacities capacities = {Device::unlimited_bytes(), Device::unlimited_bytes(),
                                   Device::unlimited_bytes()};
  /// Bytes of a tile of elementwise work over larger arrays on the host or disk (passes/tiles.h). A
  /// plan search uses tiles of at most a 64th of its target, a power of two at or below the
  /// device's capacity (session/plan_search.h), and larger ones if they hide more moves. 0: no
  /// tiles.
  int64_t tile_bytes = kTileBytes;
  /// True: an update that waits only for its gradient runs layer by layer in the scan that makes
  /// the gradient (passes/slice_work.h), if that hides moves within the capacities or needs no more
  /// memory.
  bool update_in_backward = true;
  /// If set, the graph is over whole arrays and the program is that of one position of the mesh.
  std::shared_ptr<const MeshOptions> mesh;
  /// Folder for dumps: each program writes its graphs, timeline and first inputs to a folder of its
  /// own in it (session/dump.h). Empty: the environment's STOW_DUMP.
  std::string dump_dir;
  std::string dump_name;  ///< Name of the program's folder, after a number.
};

/// A compiled program. Immutable; may be run many times, by one thread at a time.
class Executable {
 public:
  virtual ~Executable() = default;
  virtual const MemoryAnalysis& memory_analysis() const = 0;  ///< Exact; needs no run.
  /// The instructions that the program runs, in order; for simulate() and traces.
  virtual const ir::Schedule& schedule() const = 0;
  /// By output: the index of the donated input whose memory it takes, or -1.
  virtual const std::vector<int>& output_aliases() const = 0;
  virtual const std::vector<ArrayType>& input_types() const = 0;  ///< In order.
  virtual const std::vector<ArrayType>& output_types() const = 0;  ///< In order.
  /// Shardings of the outputs. Empty unless the program is over a mesh, as are the next two lists.
  virtual const std::vector<AxisSharding>& output_shardings() const = 0;
  /// Notes on values that are not sharded or pass through a larger form, largest first.
  virtual const std::vector<ShardingNote>& sharding_notes() const = 0;
  /// Collectives that one position runs, by op.
  virtual const std::vector<CollectiveCount>& collectives() const = 0;
  /// Runs the program once on `device`. `arguments`: one contiguous row-major buffer for each
  /// input. Returns one buffer for each output: the donated argument's if aliased, else a new one.
  /// `observer`: null, or told of every kernel. `mesh`: the position at which a program with
  /// collectives runs; all other positions must run it at the same time.
  /// Errors: CapacityError before anything runs; DiskError if a transfer fails, after which the
  /// contents of donated arguments are undefined; CommunicationError if another position is lost.
  virtual std::vector<DeviceBufferPtr> run(Device& device,
                                           std::span<const DeviceBufferPtr> arguments,
                                           RunObserver* observer = nullptr,
                                           const comm::MeshPosition* mesh = nullptr) const = 0;
  /// Returns another instance of the program, for a second device that runs it at the same time.
  virtual std::shared_ptr<const Executable> bound_again() const = 0;
};
using ExecutablePtr = std::shared_ptr<const Executable>;  ///< Immutable.

/// Compiles a graph for devices of `target`. Allocates no tensor.
/// Errors: TraceError for a policy that cannot take effect.
ExecutablePtr compile(const ir::Graph& graph, const CompileOptions& options,
                      const runtime::TargetPtr& target);
/// Compiles for CPU devices with `threads` threads.
/// Errors: also TraceError if STOW_ISA names no known instruction set.
ExecutablePtr compile(const ir::Graph& graph, const CompileOptions& options, int threads);

}  // namespace stow
