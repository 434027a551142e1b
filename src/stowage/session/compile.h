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

/// How large the tiles of a streamed update are.
inline constexpr int64_t kTileBytes = 1 << 20;

/// How a program's arrays lie on a mesh: see passes/partition.h.
struct MeshOptions {
  MeshShape mesh;
  std::vector<AxisSharding> in;                   ///< By input of the graph.
  std::vector<std::optional<AxisSharding>> out;   ///< By output; none: as propagation leaves it.
  PartitionOptions partition;                     ///< Strictness, and what is noted.
};

struct CompileOptions {
  /// Inputs that may be overwritten; empty means none.
  std::vector<bool> donated;
  /// When set, replaces the policy of every checkpointed region (the marks, not another trace).
  ir::PolicyPtr override_policy;
  bool fuse = true;       ///< Off: one kernel an op.
  /// Elements of a product from which on row programs that read it run behind it piece by piece; fewer
  /// are near anyway.
  int64_t least_epilogue = 1 << 14;
  bool reuse = true;      ///< Off: every buffer has bytes of its own, nothing is in place.
  /// How many moves between memories may be under way, in each direction, beside the one whose
  /// value is in use: 0 runs every move by itself.
  int transfers_ahead = 377;
  /// Keeps on the device the values that would leave last and come back first, as far as
  /// `capacities[0]` allows, if moves that may run ahead would be waited for
  /// (passes/keep_resident.h).
  bool keep_resident = true;
  /// Bytes of each kind that moves ahead may raise its total to. This is no bound on the program:
  /// one that takes more without moves ahead is compiled so, and fails to run. Unlimited: no move
  /// ahead raises the peak on the device.
  Device::Capacities capacities = {Device::unlimited_bytes(), Device::unlimited_bytes(),
                                   Device::unlimited_bytes()};
  /// Elementwise work over larger arrays on the host or disk goes tile by tile, near this many bytes
  /// each (passes/tiles.h), but no more than a 64th of a target, a power of two at or below the device's
  /// capacity (session/plan_search.h); or that 64th, where it is more and so hides more moves. 0: whole.
  int64_t tile_bytes = kTileBytes;
  /// Updates that wait for nothing but their gradient happen in the scan that makes it, layer by layer
  /// (passes/slice_work.h), where that hides moves within the capacities or takes no more memory.
  bool update_in_backward = true;
  /// When set, the graph is over whole arrays and the program is that of one position of the mesh.
  std::shared_ptr<const MeshOptions> mesh;
  /// When set, the graph after each pass, the timeline and the inputs of the first run go to a
  /// folder of their own in it (session/dump.h). Not set: the environment's STOW_DUMP.
  std::string dump_dir;
  std::string dump_name;  ///< Name of that folder, behind a number.
};

/// A compiled program. Immutable; may be run many times, by one thread at a time.
class Executable {
 public:
  virtual ~Executable() = default;
  virtual const MemoryAnalysis& memory_analysis() const = 0;  ///< Exact, without running.
  /// The instructions that it runs, in order; for simulate() and traces.
  virtual const ir::Schedule& schedule() const = 0;
  /// For each output the input whose memory it takes, or -1.
  virtual const std::vector<int>& output_aliases() const = 0;
  virtual const std::vector<ArrayType>& input_types() const = 0;  ///< In order.
  virtual const std::vector<ArrayType>& output_types() const = 0;  ///< In order.
  /// The shardings of its results, the notes on values that stay whole or pass through a larger
  /// form, and the collectives of a position. All three are empty unless the program is one of a
  /// mesh.
  virtual const std::vector<AxisSharding>& output_shardings() const = 0;
  virtual const std::vector<ShardingNote>& sharding_notes() const = 0;       ///< Largest first.
  virtual const std::vector<CollectiveCount>& collectives() const = 0;       ///< By op.
  /// Runs on `device`. `arguments` are one buffer an input, contiguous row-major. The results are
  /// buffers of their own or, where aliased, the donated argument's. The observer, where there is
  /// one, hears of every kernel.
  /// A program with collectives runs at a position of its mesh, and at all others at the same time.
  /// Errors: CapacityError before anything runs; DiskError when a transfer fails, and then donated
  /// arguments hold nothing of use; CommunicationError when another position is lost.
  virtual std::vector<DeviceBufferPtr> run(Device& device,
                                           std::span<const DeviceBufferPtr> arguments,
                                           RunObserver* observer = nullptr,
                                           const comm::MeshPosition* mesh = nullptr) const = 0;
  /// The same program bound once more, for another device that runs it at the same time.
  virtual std::shared_ptr<const Executable> bound_again() const = 0;
};
using ExecutablePtr = std::shared_ptr<const Executable>;  ///< Immutable.

/// Compiles for devices of that target. Allocates no tensor.
/// Errors: TraceError for a policy that cannot take effect.
ExecutablePtr compile(const ir::Graph& graph, const CompileOptions& options,
                      const runtime::TargetPtr& target);
/// The same for CPU devices with so many threads.
/// Errors: and TraceError for a STOW_ISA that names nothing.
ExecutablePtr compile(const ir::Graph& graph, const CompileOptions& options, int threads);

}  // namespace stow
