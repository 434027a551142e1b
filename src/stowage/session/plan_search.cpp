#include "stowage/session/plan_search.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "stowage/ir/schedule_walk.h"
#include "stowage/ir/utilities.h"
#include "stowage/ops/verify.h"
#include "stowage/passes/gather_blocks.h"
#include "stowage/passes/keep_resident.h"
#include "stowage/passes/repeat_work.h"
#include "stowage/passes/sink_into_scans.h"
#include "stowage/passes/slice_work.h"
#include "stowage/passes/spill_stacks.h"
#include "stowage/passes/tiles.h"
#include "stowage/runtime/null/simulate.h"
#include "stowage/runtime/program.h"
#include "stowage/session/overlap.h"
#include "stowage/session/planning_scope.h"
#include "stowage/session/plan_score.h"

namespace stow {
namespace {

// Targets are powers of two down to this one.
constexpr int64_t kSmallestTarget = 1 << 16;
// A tile is small relative to the target, since an update needs a handful of tiles at a time.
// Arrays up to 1 / kWholesOfTarget of the target are moved whole.
constexpr int64_t kTilesOfTarget = 64, kWholesOfTarget = 4, kSmallestTile = 16 << 10;
// Larger tiles, tried if computation waits for moves: first up to this size, then of any size.
constexpr int64_t kLargeTile = 64 << 20;
// A target between two powers of two is a multiple of 1 / kPartsOfTarget of the lower one:
// capacities that differ by less mostly have the same targets, and so the same candidates.
constexpr int64_t kPartsOfTarget = 4;
// Arrays that are moved whole are tried in tiles as well if a plan leaves less than 1 /
// kFreePartOfDevice of the device free: moves that run ahead need room of their own.
constexpr int64_t kFreePartOfDevice = 8;
// Targets between the first and the smallest are tried if the smallest one's largest live sum is
// within this many times the capacity: tiles rarely save a fifth.
constexpr double kWorthTargets = 1.25;
// The first schedule of a search for moves ahead is at most this much slower than its last.
constexpr double kFirstChoice = 1.01;
// Share of the moved bytes. If computation waits for less than this share, updates outside of the
// backward scans are not tried.
constexpr double kNegligibleShare = 0.01;
// A plan that keeps more values on the device must be faster by this factor, since they take
// memory. Their bytes are chosen in steps of 1 / kKeptParts of the target.
constexpr double kMuchFaster = 0.95;
constexpr int64_t kKeptParts = 8;

// Returns the targets for a capacity, the largest first; without a limit, the capacity alone.
std::vector<int64_t> targets_within(int64_t capacity) {
  if (capacity >= Device::unlimited_bytes()) return {capacity};
  int64_t target = kSmallestTarget;
  while (target <= capacity / 2) target *= 2;
  std::vector<int64_t> targets;
  for (; target >= kSmallestTarget; target /= 2) targets.push_back(target);
  return targets;
}

// Returns a target between `largest`, the largest power of two within a capacity, and the capacity.
// The plans that fit do not depend on it, but larger tiles may hide more.
int64_t target_between(int64_t largest, int64_t capacity) {
  const int64_t part = largest / kPartsOfTarget;
  return largest + (capacity - largest) / part * part;
}

TileOptions tiles_for(int64_t target, int64_t tile_bytes) {
  return {.bytes = std::min(tile_bytes, std::max(target / kTilesOfTarget, kSmallestTile)),
          .whole_bytes = target < Device::unlimited_bytes() ? target / kWholesOfTarget : 0};
}

int64_t count_nodes(const Graph& graph) {
  auto n = static_cast<int64_t>(graph.n_nodes());
  for (const Node& node : graph.nodes())
    for (const GraphPtr& nested : node.graphs) n += count_nodes(*nested);
  return n;
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
      const StreamKind stream = stream_of(*k, buffers);
      if (k->phase == MovePhase::kDone || stream == StreamKind::kCompute ||
          stream == StreamKind::kCollective)
        continue;
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

// A plan and what the search compares of it.
struct Scored {
  FoundPlan found;
  PlanScore score;  // with a step time if moves may run ahead
  Moved moved;
};

class PlanSearch {
 public:
  PlanSearch(const Graph& graph, const CompileOptions& options, const Target& target,
             const PlanSearchLimits& limits)
      : options_(options),
        capacities_(options.capacities),
        threads_(target.threads()),
        device_(*target.description()),
        limits_(limits) {
    plain_.graph = graph;
    lowering_ = lowering_options(options, target);
  }

  FoundPlan run() {
    const std::vector<int64_t> targets = targets_within(capacities_[0]);
    try_target(plain_, targets[0]);
    if (!fits()) try_tiles(plain_.graph, {.bytes = options_.tile_bytes});
    if (!fits()) try_target(lean(targets[0]), targets[0]);
    size_t tried = 1;
    if (!fits() && targets.size() > 1) tried = search_smaller(targets);
    if (!fits()) lay_out_too_large();
    const int64_t between = target_between(targets[0], capacities_[0]);
    if (between > targets[0] && !is_well_hidden()) try_target(plain_, between);
    if (!is_well_hidden() && has_budget()) try_tiles(plain_.graph, {.bytes = options_.tile_bytes});
    for (; tried < targets.size() && !is_well_hidden() && has_budget(); ++tried) {
      try_target(plain_, targets[tried]);
      try_target(lean(targets[tried]), targets[tried]);
    }
    keep_what_hides(between);
    std::vector<std::string>& reported = best_->found.planned.plan.analysis.limits;
    reported.insert(reported.end(), reports_.begin(), reports_.end());
    return std::move(best_->found);
  }

 private:
  // A form of the program; `inside` has the updates in the scans that make the gradients, once
  // asked for.
  struct Form {
    Graph graph;
    std::optional<Graph> inside;
  };
  // A candidate that is left until nothing else fits. Each of its layouts falls short by at least
  // `least_shortfall`.
  struct TooLarge {
    Graph updates, tiled;
    int64_t least_shortfall;
  };

  bool fits() const { return best_ && best_->score.shortfall == 0; }
  // True if moves may run beside the computation.
  bool may_hide(const Scored& s) const {
    return capacities_[0] < Device::unlimited_bytes() && s.moved.all > 0 &&
           s.score.shortfall == 0;
  }
  // True if other moves can gain nothing.
  bool is_well_hidden() const {
    return !best_ || !may_hide(*best_) || hides_well(best_->found.planned.schedule, device_);
  }
  // False, with a report, if a limit of the search is reached. Called only if something is left to
  // try.
  bool has_budget() {
    const bool has = lowered_nodes_ < limits_.lowered_nodes &&
                     overlapped_instants_ < limits_.overlapped_instants;
    if (!has)
      report(fmt::format(
          "search: {} nodes and {} instants of plans were looked at; other tilings may {}",
          lowered_nodes_, overlapped_instants_, fits() ? "hide more" : "need less"));
    return has;
  }
  void report(std::string sentence) {
    const std::string_view subject = std::string_view(sentence).substr(0, sentence.find(':'));
    const bool is_new =
        std::none_of(reports_.begin(), reports_.end(), [&](const std::string& other) {
          return std::string_view(other).substr(0, other.find(':')) == subject;
        });
    if (is_new) reports_.push_back(std::move(sentence));
  }

  // Returns the form that moves and computes more to keep less. Stacks for another memory are sent
  // there at once, rows are gathered block by block, and moves and work over streamed arrays are
  // repeated.
  Form& lean(int64_t target) {
    const int64_t block = tiles_for(target, options_.tile_bytes).bytes;
    const auto [at, is_new] = lean_.try_emplace(block);
    if (is_new) {
      const Graph by_blocks = gather_by_blocks(spill_stacks(plain_.graph), block);
      std::vector<std::string> limits;
      at->second.graph =
          repeat_work(sink_into_scans(by_blocks, true), limits, limits_.repeated_rounds);
      for (std::string& limit : limits) report(std::move(limit));
      verify(at->second.graph);
    }
    return at->second;
  }
  const Graph& inside(Form& form) {
    if (!form.inside) {
      form.inside = options_.update_in_backward ? update_slices(form.graph) : form.graph;
      verify(*form.inside);
    }
    return *form.inside;
  }

  // ---- targets ----

  // Tries the targets below the first until one fits. The smallest is lowered first, since it shows
  // if the others are worth trying. Returns the number of targets that are done.
  size_t search_smaller(const std::vector<int64_t>& targets) {
    defers_ = true;
    least_bytes_ = std::numeric_limits<int64_t>::max();
    try_target(plain_, targets.back());
    try_target(lean(targets.back()), targets.back());
    defers_ = false;
    if (static_cast<double>(least_bytes_) > kWorthTargets * static_cast<double>(capacities_[0]))
      return targets.size();
    size_t t = 1;
    for (; t + 1 < targets.size() && !fits() && has_budget(); ++t) {
      try_target(plain_, targets[t]);
      if (!fits()) try_target(lean(targets[t]), targets[t]);
    }
    return t;
  }

  // Tries updates inside the scans that make the gradients. Tries updates outside too if
  // computation waits for some of those moves, and updates beside the layers if these need not wait
  // for the layers' gradients.
  void try_target(Form& form, int64_t target) {
    const Graph& updates = inside(form);
    const int n_found = n_found_;
    try_tilings(updates, target);
    const bool hides = n_found_ > n_found && may_hide(*best_);
    if (!hides || best_->moved.share_waited_for() >= kNegligibleShare)
      try_tilings(form.graph, target);
    if (n_found_ == n_found || !options_.update_in_backward || !may_hide(*best_)) return;
    TileOptions tiles = tiles_for(target, options_.tile_bytes);
    tiles.match_backward_scan = true;
    const Graph best_updates = best_->found.updates;
    try_tiles(best_updates, tiles);
  }

  void try_tilings(const Graph& updates, int64_t target) {
    const TileOptions tiles = tiles_for(target, options_.tile_bytes);
    try_tiles(updates, tiles);
    // Whole arrays may take too much, or leave too little room for moves to run ahead.
    const int64_t device = capacities_[0];
    if (!fits() || best_->score.device_bytes > device - device / kFreePartOfDevice)
      try_tiles(updates, {.bytes = tiles.bytes});
    // Computation may wait for moves, as an update does whose operands come before a norm is known.
    // Large tiles then hold more of the operands; too large ones are too few.
    int64_t tried = tiles.bytes;
    for (const int64_t most : {kLargeTile, Device::unlimited_bytes()}) {
      const int64_t large = std::min(target / kTilesOfTarget, most);
      if (large <= tried || !fits() || is_well_hidden()) continue;
      try_tiles(updates, {.bytes = large, .whole_bytes = tiles.whole_bytes});
      tried = large;
    }
  }

  // ---- one candidate ----

  void try_tiles(const Graph& updates, const TileOptions& tiles) {
    try_graph(updates, stream_tiles(updates, tiles));
  }

  void try_graph(const Graph& updates, Graph tiled) {
    if (!known_.insert(structural_hash(tiled)).second) return;
    lowered_nodes_ += count_nodes(tiled);
    OrderedGraph ordered(tiled, lowering_);
    least_bytes_ = std::min(least_bytes_, ordered.least_device_bytes());
    const int64_t least = ordered.least_shortfall(capacities_);
    if (defers_ || least > 0) {
      if (!fits()) too_large_.push_back({updates, std::move(tiled), least});
      return;
    }
    double most_s = std::numeric_limits<double>::infinity();
    if (fits() && may_hide(*best_)) {
      most_s = kShorterStep * best_->score.step_s;
      if (least_s(ordered) > most_s) return;
    }
    keep_if_better(scored({updates, std::move(tiled), plan(std::move(ordered), most_s)}));
  }

  // Returns a lower bound of the step's seconds, or the seconds themselves if no moves run ahead.
  double least_s(const OrderedGraph& ordered) const {
    if (options_.transfers_ahead > 0) return simulate(ordered.schedules()[0], device_).bound_s;
    double least = std::numeric_limits<double>::infinity();
    for (const Schedule& schedule : ordered.schedules())
      least = std::min(least, simulate(schedule, device_).step_s);
    return least;
  }

  // Plans a candidate. Its moves do not run ahead if a step would be much longer than `most_s`
  // even then.
  Planned plan(OrderedGraph ordered, double most_s = std::numeric_limits<double>::infinity()) {
    LowerOptions lowering = lowering_;
    const Graph lowered = ordered.graph();
    Planned planned = std::move(ordered).lay_out(capacities_, lowering);
    if (!options_.reuse) return planned;
    overlapped_instants_ += planned.plan.analysis.n_instants;
    std::function<Schedule()> per_iteration_schedule;
    if (!lowering.places_per_iteration && planned.schedule.n_loops > 0)
      per_iteration_schedule = [&] {
        LowerOptions each = lowering;
        each.places_per_iteration = true;
        return lower(lowered, each);
      };
    IsWorthIt is_worth_it;
    if (most_s < std::numeric_limits<double>::infinity())
      is_worth_it = [&, most_s](const Schedule& schedule) {
        return simulate(schedule, device_).step_s <= kFirstChoice * most_s;
      };
    return overlap(std::move(planned), options_.transfers_ahead, capacities_, device_,
                   per_iteration_schedule, threads_, limits_.overlap, is_worth_it);
  }

  Scored scored(FoundPlan found) const {
    Scored s{std::move(found), {}, {}};
    const Planned& planned = s.found.planned;
    s.score = score_of(planned.plan.analysis, capacities_);
    s.moved = moved_by(planned.schedule.instructions, planned.schedule.buffers);
    if (may_hide(s)) s.score.step_s = simulate(planned.schedule, device_).step_s;
    return s;
  }

  void keep_if_better(Scored s) {
    if (best_ && !is_better(s.score, best_->score)) return;
    best_ = std::move(s);
    ++n_found_;
  }

  // Lays out the deferred candidates, the nearest first: all that may fit, then until none can come
  // much nearer than the best.
  void lay_out_too_large() {
    std::stable_sort(
        too_large_.begin(), too_large_.end(),
        [](const TooLarge& a, const TooLarge& b) { return a.least_shortfall < b.least_shortfall; });
    for (const TooLarge& c : too_large_) {
      if (fits()) break;
      const auto near = static_cast<int64_t>(
          kGoodGap * static_cast<double>(best_ ? best_->score.device_bytes : 0));
      if (best_ && c.least_shortfall > 0 && c.least_shortfall + near >= best_->score.shortfall)
        break;
      keep_if_better(scored({c.updates, c.tiled, plan(OrderedGraph(c.tiled, lowering_))}));
    }
    too_large_.clear();
  }

  // If computation waits for moves and there is room, keeps values on the device that would leave
  // last and come back first. Tries the most parts of the target that fit, and fewer, which leave
  // more room to moves ahead.
  void keep_what_hides(int64_t target) {
    if (!options_.keep_resident || options_.transfers_ahead <= 0 || is_well_hidden()) return;
    const Graph updates = best_->found.updates, tiled = best_->found.tiled;
    std::optional<Scored> best;
    Graph last = tiled;
    // True if that many bytes can be kept. If nothing more is kept than in an earlier try, returns
    // that try's result.
    const auto fits = [&](int64_t bytes) {
      KeptResident kept = keep_resident(tiled, bytes);
      if (equal(kept.graph, best ? best->found.tiled : tiled)) return true;
      if (equal(kept.graph, last)) return false;
      last = kept.graph;
      OrderedGraph ordered(kept.graph, lowering_);
      if (ordered.least_shortfall(capacities_) > 0) return false;
      Planned planned = plan(std::move(ordered), kMuchFaster * best_->score.step_s);
      planned.plan.analysis.kept_resident_bytes = kept.bytes;
      Scored other = scored({updates, std::move(kept.graph), std::move(planned)});
      if (other.score.shortfall > 0) return false;
      if (!best || is_better(other.score, best->score)) best = std::move(other);
      return true;
    };
    int64_t most = 0;
    for (int64_t step = kKeptParts / 2; step > 0; step /= 2)
      if (fits((most + step) * (target / kKeptParts))) most += step;
    if (best && best->score.step_s < kMuchFaster * best_->score.step_s) best_ = std::move(best);
  }

  const PlanningScope planning_;
  const CompileOptions& options_;
  const Device::Capacities& capacities_;
  const int threads_;
  const DeviceDescription& device_;
  const PlanSearchLimits& limits_;
  std::vector<std::string> reports_;  // of bounds that took effect
  LowerOptions lowering_;
  Form plain_;
  std::map<int64_t, Form> lean_;  // by the bytes of a block
  std::set<size_t> known_;        // hashes of candidates
  std::vector<TooLarge> too_large_;
  std::optional<Scored> best_;
  int n_found_ = 0;  // times that best_ was replaced
  bool defers_ = false;
  int64_t least_bytes_ = 0;  // least device bytes of candidates since it was set
  int64_t lowered_nodes_ = 0, overlapped_instants_ = 0;
};

}  // namespace

LowerOptions lowering_options(const CompileOptions& options, const Target& target) {
  LowerOptions lowering;
  lowering.donated = options.donated;
  lowering.fuse = options.fuse && target.fuses();
  lowering.least_epilogue = options.least_epilogue;
  lowering.reuse = options.reuse;
  lowering.target = kernel_target(target);
  return lowering;
}

FoundPlan search_plan(const Graph& graph, const CompileOptions& options, const Target& target,
                      const PlanSearchLimits& limits) {
  return PlanSearch(graph, options, target, limits).run();
}

}  // namespace stow
