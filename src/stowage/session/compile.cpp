#include "stowage/session/compile.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <optional>

#include "stowage/autodiff/flatten.h"
#include "stowage/ir/schedule_walk.h"
#include "stowage/ir/utilities.h"
#include "stowage/ops/verify.h"
#include "stowage/passes/dead_code.h"
#include "stowage/passes/gather_blocks.h"
#include "stowage/passes/keep_last.h"
#include "stowage/passes/lower.h"
#include "stowage/passes/move_parts.h"
#include "stowage/passes/repeat_work.h"
#include "stowage/passes/residuals.h"
#include "stowage/passes/simplify.h"
#include "stowage/passes/sink_moves.h"
#include "stowage/passes/sink_work.h"
#include "stowage/passes/slice_work.h"
#include "stowage/passes/spill_stacks.h"
#include "stowage/passes/tiles.h"
#include "stowage/passes/transfers.h"
#include "stowage/passes/unroll.h"
#include "stowage/runtime/cpu/kernels/instruction_set.h"
#include "stowage/runtime/program.h"
#include "stowage/session/dump.h"
#include "stowage/session/overlap.h"

namespace stow {
namespace {

// For each candidate order.
constexpr PackEffort kTrialEffort = {.work = 200'000};

class CompiledProgram final : public Executable {
 public:
  CompiledProgram(const Graph& graph, Schedule schedule, MemoryPlan plan, int threads, Dump dump)
      : program_(std::move(schedule), std::move(plan), threads), dump_(std::move(dump)) {
    for (ValueId v : graph.inputs()) inputs_.push_back(graph.type(v));
    for (ValueId v : graph.outputs()) outputs_.push_back(graph.type(v));
    for (const View& view : program_.schedule().outputs) {
      const Buffer& buffer = program_.schedule().buffers[view.buffer.index()];
      aliases_.push_back(buffer.role == BufferRole::kInput ? buffer.index : -1);
    }
  }
  const MemoryAnalysis& memory_analysis() const override { return program_.plan().analysis; }
  const Schedule& schedule() const override { return program_.schedule(); }
  const std::vector<int>& output_aliases() const override { return aliases_; }
  const std::vector<ArrayType>& input_types() const override { return inputs_; }
  const std::vector<ArrayType>& output_types() const override { return outputs_; }
  std::vector<DeviceBufferPtr> run(Device& device, std::span<const DeviceBufferPtr> arguments,
                                   RunObserver* observer) const override {
    if (dump_.on() && !has_dumped_.exchange(true)) dump_.inputs(inputs_, arguments);
    return program_.run(device, arguments, observer);
  }

 private:
  Program program_;
  std::vector<ArrayType> inputs_, outputs_;
  std::vector<int> aliases_;
  Dump dump_;
  mutable std::atomic<bool> has_dumped_ = false;  // its inputs
};

bool is_over(const MemoryAnalysis& m, const Device::Capacities& capacities) {
  for (size_t kind = 0; kind < capacities.size(); ++kind)
    if (m.kinds[kind].total_bytes > capacities[kind]) return true;
  return false;
}

// Whether a layout is better than another: it alone fits, or it takes less of the device. A little
// less there is no reason to hold a donated array elsewhere twice.
bool is_better(const MemoryAnalysis& a, const MemoryAnalysis& b, const Device::Capacities& capacities) {
  constexpr int64_t kLittle = 64 << 10;
  const bool fits = !is_over(a, capacities);
  if (fits == is_over(b, capacities)) return fits;
  const int64_t less = b.device().total_bytes - a.device().total_bytes;
  const int64_t less_elsewhere = b.host().total_bytes - a.host().total_bytes +
                                 b.disk().total_bytes - a.disk().total_bytes;
  return !fits || std::abs(less) > kLittle || less_elsewhere == 0 ? less > 0 : less_elsewhere > 0;
}

// The best of some orders and layouts; leaves which in `lowering`.
Planned lay_out(const Graph& g, LowerOptions& lowering, const Device::Capacities& capacities) {
  std::optional<Planned> best;
  std::array<int64_t, kNumOrderStrategies> bounds{};
  LowerOptions trial = lowering;
  const auto keep_if_better = [&](Schedule schedule, MemoryPlan plan) {
    if (best && !is_better(plan.analysis, best->plan.analysis, capacities)) return;
    best = Planned{std::move(schedule), std::move(plan)};
    lowering = trial;
  };
  const auto try_hard = [&](size_t order) {
    trial.order = static_cast<OrderStrategy>(order);
    Schedule schedule = lower(g, trial);
    MemoryPlan plan = make_plan(schedule, kFinalEffort);
    keep_if_better(std::move(schedule), std::move(plan));
  };
  for (int s = 0; s < (lowering.reuse ? kNumOrderStrategies : 1); ++s) {
    trial.order = static_cast<OrderStrategy>(s);
    Schedule schedule = lower(g, trial);
    MemoryPlan plan = trial.reuse ? make_plan(schedule, kTrialEffort) : make_plan_apart(schedule);
    bounds[static_cast<size_t>(s)] = plan.analysis.device().lower_bound_bytes;
    keep_if_better(std::move(schedule), std::move(plan));
  }
  if (!lowering.reuse) return std::move(*best);
  if (gap(best->plan) > 0) {
    MemoryPlan plan = make_plan(best->schedule, kFinalEffort);
    if (plan.arena_bytes[0] < best->plan.arena_bytes[0]) best->plan = std::move(plan);
  }
  // Another order may come lower with as much work, where its bound lets it.
  const auto first = static_cast<size_t>(lowering.order);
  for (size_t s = 0; s < bounds.size(); ++s) {
    const auto total = static_cast<double>(best->plan.analysis.device().total_bytes);
    if (s != first && static_cast<double>(bounds[s]) < (1 - kGoodGap) * total) try_hard(s);
  }
  // Temporaries of a loop stand at one place in all its iterations, and what lives longer must fit
  // around that. Where much is lost, every iteration is laid out by itself, in the best order or,
  // if need be, in another.
  const auto best_order = static_cast<size_t>(lowering.order);
  trial.iterations_apart = true;
  for (size_t s = 0; s < bounds.size(); ++s) {
    if (best->schedule.n_loops == 0 || gap(best->plan) <= kGoodGap) break;
    try_hard((best_order + s) % bounds.size());
  }
  return std::move(*best);
}

// Tiles small beside what the device has: an update needs a handful of them at a time. More may come
// whole, where there is a budget.
constexpr int64_t kTilesOfDevice = 64;
TileOptions tiles_for(const CompileOptions& options) {
  constexpr int64_t kWholeOfDevice = 4, kSmallest = 16 << 10;
  const int64_t device = options.capacities[0];
  return {.bytes = std::min(options.tile_bytes, std::max(device / kTilesOfDevice, kSmallest)),
          .whole_bytes = device < Device::unlimited_bytes() ? device / kWholeOfDevice : 0};
}

// Bytes that a list moves between memories, and those of moves that computation waits for at once.
struct Moved {
  double all = 0, waited_for = 0;
  double share_waited_for() const { return all == 0 ? 0 : waited_for / all; }
  void add(const Moved& other, int64_t times) {
    all += static_cast<double>(times) * other.all;
    waited_for += static_cast<double>(times) * other.waited_for;
  }
};
Moved moved_by(const std::vector<Instruction>& list, const std::vector<Buffer>& buffers) {
  Moved sum;
  for (const Instruction& i : list) {
    if (const Kernel* k = i.kernel()) {
      if (k->phase == MovePhase::kDone || stream_of(*k, buffers) == StreamKind::kCompute) continue;
      const View& to = k->outputs[0];
      const auto bytes = static_cast<double>(to.elems() * dtype_bytes(to.dtype));
      sum.add({bytes, k->phase == MovePhase::kWhole ? bytes : 0}, 1);
    } else if (const Loop* loop = i.loop()) {
      sum.add(moved_by(loop->body, buffers), std::max<int64_t>(loop->trip_count, 1));
    } else {
      for (const auto& alternative : i.branch()->alternatives)
        sum.add(moved_by(alternative, buffers), 1);
    }
  }
  return sum;
}

// A graph with its updates where they are to be, and what came of it.
struct Variant {
  Graph updates, tiled;
  Planned planned;

  int64_t bytes() const { return planned.plan.analysis.device().total_bytes; }
  Moved moved() const {
    return moved_by(planned.schedule.instructions, planned.schedule.buffers);
  }
  bool is_over(const CompileOptions& options) const {
    return stow::is_over(planned.plan.analysis, options.capacities);
  }
  // Whether moves may run beside the computation.
  bool may_hide(const CompileOptions& options) const {
    return options.capacities[0] < Device::unlimited_bytes() && moved().all > 0 && !is_over(options);
  }
};
Variant planned_with(const Graph& graph, Graph tiled, const CompileOptions& options, int threads) {
  verify(tiled);
  LowerOptions lowering;
  lowering.donated = options.donated;
  lowering.fuse = options.fuse;
  lowering.least_epilogue = options.least_epilogue;
  lowering.reuse = options.reuse;
  lowering.target = {threads, cpu::kernel_scratch_bytes};
  Planned planned = lay_out(tiled, lowering, options.capacities);
  if (options.reuse) {
    std::function<Schedule()> apart;
    if (!lowering.iterations_apart && planned.schedule.n_loops > 0)
      apart = [&] {
        LowerOptions each = lowering;
        each.iterations_apart = true;
        return lower(tiled, each);
      };
    planned =
        overlap(std::move(planned), options.transfers_ahead, options.capacities, apart, threads);
  }
  return {graph, std::move(tiled), std::move(planned)};
}

// What alone fits; what is nominally faster where moves may run ahead in both; else what takes less
// memory.
bool is_better(const Variant& a, const Variant& b, const CompileOptions& options) {
  constexpr double kFaster = 0.9999;
  if (a.is_over(options) != b.is_over(options)) return b.is_over(options);
  if (!a.may_hide(options) || !b.may_hide(options)) return a.bytes() < b.bytes();
  return time_beside(a.planned.schedule, b.planned.schedule) < kFaster;
}

Variant planned_as(const Graph& graph, const CompileOptions& options, int threads) {
  const TileOptions tiles = tiles_for(options);
  Variant best = planned_with(graph, stream_tiles(graph, tiles), options, threads);
  const auto try_with = [&](const TileOptions& others) {
    Graph tiled = stream_tiles(graph, others);
    if (equal(tiled, best.tiled)) return;
    Variant other = planned_with(graph, std::move(tiled), options, threads);
    if (is_better(other, best, options)) best = std::move(other);
  };
  // What came whole may be too much, or leave too little room for moves to run ahead.
  const int64_t device = options.capacities[0];
  if (best.bytes() > device - device / 8) try_with({.bytes = tiles.bytes});
  // A little too much may be for the tiles: whole arrays on the device may wait for them.
  if (tiles.bytes < options.tile_bytes && best.is_over(options) && best.bytes() / 3 < device / 2)
    try_with({.bytes = options.tile_bytes});
  // Where moves are waited for, as what an update needs is before a norm is known, more of it is there
  // in large tiles; too large ones are too few.
  constexpr int64_t kLargeTile = 64 << 20;
  int64_t tried = tiles.bytes;
  for (const int64_t most : {kLargeTile, Device::unlimited_bytes()}) {
    const int64_t large = std::min(device / kTilesOfDevice, most);
    if (large <= tried || !best.may_hide(options) || hides_well(best.planned.schedule)) continue;
    try_with({.bytes = large, .whole_bytes = tiles.whole_bytes});
    tried = large;
  }
  return best;
}

// Updates inside the scans that make the gradients, or apart. Where both fit and moves may run
// ahead, what is nominally faster, unless nearly nothing is waited for inside; else what takes less
// memory.
Variant with_updates_placed(const Graph& graph, const CompileOptions& options, int threads) {
  constexpr double kNegligibleShare = 0.01;
  const Graph updates = options.update_in_backward ? update_slices(graph) : graph;
  if (equal(updates, graph)) return planned_as(graph, options, threads);
  verify(updates);
  Variant inside = planned_as(updates, options, threads);
  if (inside.may_hide(options) && inside.moved().share_waited_for() < kNegligibleShare)
    return inside;
  Variant apart = planned_as(graph, options, threads);
  return is_better(apart, inside, options) ? std::move(apart) : std::move(inside);
}

// Updates that need not wait for the layers' gradients are done beside the layers, where that fits
// and is nominally faster.
Variant place_updates(const Graph& graph, const CompileOptions& options, int threads) {
  Variant best = with_updates_placed(graph, options, threads);
  if (!options.update_in_backward || !best.may_hide(options)) return best;
  TileOptions tiles = tiles_for(options);
  const Graph apart = stream_tiles(best.updates, tiles);
  tiles.beside = true;
  Graph tiled = stream_tiles(best.updates, tiles);
  if (equal(tiled, apart)) return best;
  Variant beside = planned_with(best.updates, std::move(tiled), options, threads);
  return is_better(beside, best, options) ? std::move(beside) : std::move(best);
}

// Where moves are waited for and there is room, what would leave last and come back first stays: up
// to the most eighths of the device that fit, or fewer, which leave more to moves that run ahead. Memory
// is given up for that only where much is won.
Variant keep_what_hides(const Graph& graph, const CompileOptions& options, int threads) {
  constexpr double kMuchFaster = 0.95;
  Variant moved = place_updates(graph, options, threads);
  if (!options.keep_last || options.transfers_ahead <= 0 || !moved.may_hide(options) ||
      hides_well(moved.planned.schedule))
    return moved;
  std::optional<Variant> best;
  Graph last = moved.tiled;
  // Whether so much fits; where nothing else is kept than was tried before it does.
  const auto fits = [&](int64_t bytes) {
    KeptLast kept = keep_last(moved.tiled, bytes);
    if (equal(kept.graph, best ? best->tiled : moved.tiled)) return true;
    if (equal(kept.graph, last)) return false;
    last = kept.graph;
    Variant other = planned_with(moved.updates, std::move(kept.graph), options, threads);
    other.planned.plan.analysis.kept_bytes = kept.bytes;
    if (other.is_over(options)) return false;
    if (!best || is_better(other, *best, options)) best = std::move(other);
    return true;
  };
  constexpr int64_t kParts = 8;
  int64_t most = 0;
  for (int64_t step = kParts / 2; step > 0; step /= 2)
    if (fits((most + step) * (options.capacities[0] / kParts))) most += step;
  return best && time_beside(best->planned.schedule, moved.planned.schedule) < kMuchFaster
             ? std::move(*best)
             : std::move(moved);
}

// What is too much is tried again with stacks that are on their way elsewhere sent there at once, rows
// gathered block by block, and moves and work over streamed arrays repeated: more is moved and done,
// less kept.
Variant plan_variants(const Graph& graph, const CompileOptions& options, int threads) {
  Variant best = keep_what_hides(graph, options, threads);
  if (!best.is_over(options)) return best;
  const Graph by_blocks = gather_by_blocks(spill_stacks(graph), tiles_for(options).bytes);
  const Graph repeated = repeat_work(sink_work(by_blocks, true));
  if (equal(repeated, graph)) return best;
  verify(repeated);
  Variant lean = keep_what_hides(repeated, options, threads);
  return lean.bytes() < best.bytes() ? std::move(lean) : std::move(best);
}

}  // namespace

ExecutablePtr compile(const Graph& graph, const CompileOptions& options, int threads) {
  cpu::obey_environment();
  Dump dump(options, graph);
  Graph g = flatten_all(graph);
  const auto pass = [&](const char* name, auto&& function) {
    g = function(g);
    dump.graph(name, g);
    verify(g);
  };
  pass("simplify", [](const Graph& in) { return move_parts(simplify(in)); });
  pass("residuals",
       [&](const Graph& in) { return realize_residuals(in, options.override_policy); });
  // After the pass, which names what there is more exactly where anything is left.
  if (!options.override_policy) check_names_occur(graph);
  pass("prune", [](const Graph& in) { return remove_dead_code(in); });
  pass("sink", [](const Graph& in) { return sink_work(sink_moves(in)); });
  pass("unroll", [](const Graph& in) { return remove_dead_code(unroll_scans(in)); });
  pass("sums", [](const Graph& in) { return sum_slices(in); });

  Variant chosen = plan_variants(g, options, threads);
  dump.graph("updates", chosen.updates);
  dump.graph("tiles", chosen.tiled);
  Planned& planned = chosen.planned;
  if (dump.on()) dump.timeline(timeline_csv(planned.schedule, planned.plan));
  return std::make_shared<CompiledProgram>(chosen.tiled, std::move(planned.schedule),
                                           std::move(planned.plan), threads, std::move(dump));
}

}  // namespace stow
