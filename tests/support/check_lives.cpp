#include "tests/support/check_lives.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <random>

#include "stowage/autodiff/flatten.h"
#include "stowage/ir/schedule_walk.h"
#include "stowage/passes/dead_code.h"
#include "stowage/passes/lower.h"
#include "stowage/passes/move_parts.h"
#include "stowage/passes/residuals.h"
#include "stowage/passes/simplify.h"
#include "stowage/passes/sink_moves.h"
#include "stowage/passes/sink_into_scans.h"
#include "stowage/passes/tiles.h"
#include "stowage/passes/transfers.h"
#include "stowage/passes/unroll.h"
#include "stowage/plan/memory_plan.h"
#include "stowage/runtime/target.h"
#include "stowage/session/compile.h"
#include "tests/support/moves_in_flight.h"

namespace stow::testing {
namespace {

constexpr int64_t kNever = -1;

class Checker {
 public:
  explicit Checker(const Schedule& schedule)
      : schedule_(schedule), lives_(compute_lifetimes(schedule)) {
    iterations_.resize(schedule.n_loops, 0);
    written_.resize(lives_.owner.size());
  }

  std::string run() {
    walk(schedule_.instructions, 0);
    for (const View& view : schedule_.outputs) read(view, "a result", now_);
    // Of a loop that is walked in part the timeline has other instants.
    return now_ == n_instants() ? fault_ : "";
  }

 private:
  void walk(const std::vector<Instruction>& list, int64_t iteration) {
    for (const Instruction& i : list) {
      if (!i.guard.holds(iteration)) continue;
      if (const Kernel* kernel = i.kernel()) {
        visit(*kernel);
      } else if (const Branch* branch = i.branch()) {
        walk_branch(*branch);
      } else {
        const Loop& loop = *i.loop();
        const bool open = loop.trip_count == Loop::kOpen;
        // Of an open loop the timeline has two iterations.
        for (int64_t n = 0, end = open ? 2 : loop.trip_count; n < end; ++n) {
          iterations_[loop.id.index()] = n;
          if (open) check_condition(loop);
          walk(loop.body, n);
        }
        if (open) {
          iterations_[loop.id.index()] = 2;
          check_condition(loop);
        }
      }
    }
  }

  int64_t n_instants() const { return static_cast<int64_t>(lives_.at.size()); }
  int64_t last_instant() const { return std::max<int64_t>(now_ - 1, 0); }

  void check_condition(const Loop& loop) {
    walk(loop.condition, 0);
    read(loop.predicate, "a predicate", last_instant());
    for (const View& carry : loop.carries) read(carry, "what a loop leaves", last_instant());
  }

  // Each alternative begins with what there was before. What it leaves untouched may be older
  // afterwards than what another wrote.
  void walk_branch(const Branch& branch) {
    read(branch.index, "an index", last_instant());
    const auto before = written_;
    const MovesInFlight moves = moves_;
    auto after = written_;
    for (size_t a = 0; a < branch.alternatives.size(); ++a) {
      written_ = before;
      moves_ = moves;
      walk(branch.alternatives[a], 0);
      for (size_t entry = 0; entry < written_.size(); ++entry) {
        if (a == 0 || after[entry].empty()) after[entry] = written_[entry];
        for (size_t i = 0; i < written_[entry].size(); ++i) {
          const int64_t one = after[entry][i], other = written_[entry][i];
          after[entry][i] = one == kNever || other == kNever ? std::max(one, other)
                                                             : std::min(one, other);
        }
      }
    }
    written_ = std::move(after);
    moves_ = moves;
    for (const View& view : branch.results) read(view, "a branch's result", last_instant());
  }

  void visit(const Kernel& kernel) {
    if (now_ >= n_instants()) {
      now_ = n_instants() + 1;
      return;
    }
    const bool moves = kernel.phase != MovePhase::kWhole;
    stream_ = moves ? stream_of(kernel, schedule_.buffers) : StreamKind::kCompute;
    if (kernel.phase == MovePhase::kDone) moves_.done(stream_, kernel.transfer);
    for (const View& view : kernel.inputs) read(view, op_name(kernel.op), now_);
    for (const View& view : kernel.outputs)
      if (kernel.phase == MovePhase::kDone)
        read(view, "the done of a move", now_);
      else
        write(view, op_name(kernel.op));
    if (kernel.phase == MovePhase::kStart)
      moves_.start(stream_, kernel.transfer, bytes_of(kernel.inputs), bytes_of(kernel.outputs));
    stream_ = StreamKind::kCompute;
    ++now_;
  }

  struct At {
    size_t entry;
    int64_t offset;
    bool is_placed = true;
  };
  // Where a byte of a buffer lies now. What the plan does not lay out has an entry behind all
  // others.
  At locate(const Buffer& buffer, size_t b, int64_t offset) const {
    const auto beside = [&](size_t b, int64_t offset) {
      return At{lives_.owner.size() + b, offset, false};
    };
    if (buffer.role == BufferRole::kInput || buffer.outside_arena) return beside(b, offset);
    const int64_t slot = buffer.slot_bytes > 0 ? offset / buffer.slot_bytes : 0;
    if (slot == 0 && buffer.first_slot.valid() && buffer.slot_bytes > 0)
      return locate(schedule_.buffers[buffer.first_slot.index()], buffer.first_slot.index(),
                    offset);
    const int64_t place = buffer.place(iterations_, buffer.independent_slots ? slot : 0);
    return At{lives_.first[b] + static_cast<size_t>(place),
              buffer.independent_slots ? offset - slot * buffer.slot_bytes : offset};
  }

  // visit(place) for each element of a window, by its first byte: elements are of one piece.
  template <typename Visit>
  void for_each_element(const View& view, Visit&& visit) {
    const size_t b = view.buffer.index();
    int64_t base = view.offset_bytes;
    for (const LoopTerm& term : view.terms) base += term.bytes_at(iterations_[term.loop.index()]);
    const int64_t element = dtype_bytes(view.dtype), n = view.elems();
    for (int64_t i = 0; i < n; ++i) {
      int64_t offset = base, rest = i;
      for (size_t d = view.dims.size(); d-- > 0;) {
        offset += rest % view.dims[d] * view.strides[d] * element;
        rest /= view.dims[d];
      }
      visit(locate(schedule_.buffers[b], b, offset));
    }
  }
  std::vector<PlacedByte> bytes_of(const std::vector<View>& views) {
    std::vector<PlacedByte> bytes;
    for (const View& view : views)
      for_each_element(view, [&](const At& at) { bytes.emplace_back(at.entry, at.offset); });
    return bytes;
  }

  // Whether one range holds the byte from `from` to `to`.
  bool lives(const At& at, int64_t from, int64_t to) const {
    const auto& rects = lives_.problem.buffers[at.entry].rects;
    return std::any_of(rects.begin(), rects.end(), [&](const pack::Rect& r) {
      return r.offset <= at.offset && at.offset < r.offset + r.size && r.lower <= from &&
             to < r.upper;
    });
  }
  // When the byte was written.
  int64_t& written(const At& at, const View& view) {
    std::vector<int64_t>& bytes = written_[at.entry];
    if (bytes.empty())
      bytes.assign(static_cast<size_t>(schedule_.buffers[view.buffer.index()].bytes), kNever);
    return bytes[static_cast<size_t>(at.offset)];
  }

  std::string describe(const At& at, const View& view) const {
    return fmt::format("byte {} of buffer {} ({})", at.offset, view.buffer.value,
                       schedule_.buffers[view.buffer.index()].label);
  }
  void check_moves(const At& at, const View& view, std::string_view what, bool write) {
    if (!fault_.empty() || !moves_.clashes({at.entry, at.offset}, write, stream_)) return;
    fault_ = fmt::format("{} at instant {} {} {}, which a move under way touches; iterations {}",
                         what, now_, write ? "writes" : "reads", describe(at, view),
                         fmt::join(iterations_, ", "));
  }

  void read(const View& view, std::string_view what, int64_t now) {
    if (!fault_.empty()) return;
    for_each_element(view, [&](const At& at) {
      check_moves(at, view, what, false);
      if (!fault_.empty() || !at.is_placed) return;
      const int64_t since = written(at, view);
      if (since == kNever || lives(at, since, now)) return;
      fault_ = fmt::format(
          "{} at instant {} reads {}, written at {}: no range holds both; iterations {}", what, now,
          describe(at, view), since, fmt::join(iterations_, ", "));
    });
  }
  void write(const View& view, std::string_view what) {
    for_each_element(view, [&](const At& at) {
      check_moves(at, view, what, true);
      if (!at.is_placed) return;
      written(at, view) = now_;
      if (fault_.empty() && !lives(at, now_, now_))
        fault_ = fmt::format("{} is written at instant {} and does not live then",
                             describe(at, view), now_);
    });
  }

  const Schedule& schedule_;
  const Lifetimes lives_;
  std::vector<int64_t> iterations_;
  // For each place, the time at which each byte was written: [entries][bytes].
  std::vector<std::vector<int64_t>> written_;
  MovesInFlight moves_;
  StreamKind stream_ = StreamKind::kCompute;  // of the kernel being looked at
  int64_t now_ = 0;
  std::string fault_;
};

}  // namespace

std::string check_lives(const Schedule& schedule) { return Checker(schedule).run(); }

namespace {

// How far each move may be ahead: all alike, then each its own way, some not at all.
constexpr int kPatterns = 12;
constexpr int64_t kOvertaking = 10'000;
std::vector<int> moves_ahead(size_t n, int pattern) {
  constexpr std::array kAlike = {1, 2, 13, 377};
  constexpr std::array kMixed = {0, 0, 1, 2, 13, 89, 377};
  if (pattern < static_cast<int>(kAlike.size()))
    return std::vector<int>(n, kAlike[static_cast<size_t>(pattern)]);
  std::mt19937 random(static_cast<unsigned>(pattern));
  std::vector<int> ahead(n);
  for (int& a : ahead) a = kMixed[random() % kMixed.size()];
  return ahead;
}

}  // namespace

std::string check_lives_of_all(const Graph& graph, const std::vector<bool>& donated) {
  Graph g = flatten_all(graph);
  g = remove_dead_code(realize_residuals(move_parts(simplify(g)), nullptr));
  g = stream_tiles(remove_dead_code(unroll_scans(sink_into_scans(sink_moves(g)))),
                   {.bytes = kTileBytes});
  const TargetPtr target = host_target(1);
  for (int order = 0; order < kNumOrderStrategies; ++order)
    for (const bool apart : {false, true}) {
      LowerOptions options{.donated = donated,
                           .order = static_cast<OrderStrategy>(order),
                           .places_per_iteration = apart,
                           .target = kernel_target(*target)};
      const Schedule schedule = lower(g, options);
      const size_t n_moves = count_moves(schedule);
      std::string fault = check_lives(schedule);
      for (int pattern = 0; pattern < kPatterns && n_moves > 0 && fault.empty(); ++pattern)
        fault = check_lives(
            overlap_transfers(schedule, moves_ahead(n_moves, pattern), {kOvertaking, kOvertaking})
                .schedule);
      if (!fault.empty())
        return fmt::format("order {}, iterations {}: {}", order, apart ? "apart" : "together",
                           fault);
    }
  return "";
}

}  // namespace stow::testing
