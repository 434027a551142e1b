#include "tests/support/check_lives.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "stowage/autodiff/flatten.h"
#include "stowage/passes/dead_code.h"
#include "stowage/passes/lower.h"
#include "stowage/passes/residuals.h"
#include "stowage/passes/simplify.h"
#include "stowage/passes/sink_moves.h"
#include "stowage/passes/tiles.h"
#include "stowage/passes/transfers.h"
#include "stowage/passes/unroll.h"
#include "stowage/plan/memory_plan.h"
#include "stowage/runtime/cpu/bound_kernel.h"
#include "stowage/session/compile.h"

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
    auto after = written_;
    for (size_t a = 0; a < branch.alternatives.size(); ++a) {
      written_ = before;
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
    for (const View& view : branch.results) read(view, "a branch's result", last_instant());
  }

  void visit(const Kernel& kernel) {
    if (now_ >= n_instants()) {
      now_ = n_instants() + 1;
      return;
    }
    for (const View& view : kernel.inputs) read(view, op_name(kernel.op), now_);
    if (kernel.phase == MovePhase::kDone)
      for (const View& view : kernel.outputs) read(view, "the done of a move", now_);
    else
      for (const View& view : kernel.outputs) write(view);
    ++now_;
  }

  struct At {
    size_t entry;
    int64_t offset;
  };
  // Where a byte of a buffer lies now; none for what is not laid out.
  std::optional<At> locate(const Buffer& buffer, size_t b, int64_t offset) const {
    if (buffer.role == BufferRole::kInput || buffer.separate) return std::nullopt;
    const int64_t slot = buffer.slot_bytes > 0 ? offset / buffer.slot_bytes : 0;
    if (slot == 0 && buffer.first_slot.valid() && buffer.slot_bytes > 0) return std::nullopt;
    const int64_t place = buffer.place(iterations_, buffer.apart ? slot : 0);
    return At{lives_.first[b] + static_cast<size_t>(place),
              buffer.apart ? offset - slot * buffer.slot_bytes : offset};
  }

  // visit(place, the byte's own record) for each byte of a window.
  template <typename Visit>
  void for_each_byte(const View& view, Visit&& visit) {
    const size_t b = view.buffer.index();
    const Buffer& buffer = schedule_.buffers[b];
    int64_t base = view.offset_bytes;
    for (const LoopTerm& term : view.terms) {
      int64_t slot = term.start + term.step * iterations_[term.loop.index()];
      if (term.modulo > 0) slot %= term.modulo;
      base += slot * term.stride_bytes;
    }
    const int64_t element = dtype_bytes(view.dtype), n = view.elems();
    for (int64_t i = 0; i < n; ++i) {
      int64_t offset = base, rest = i;
      for (size_t d = view.dims.size(); d-- > 0;) {
        offset += rest % view.dims[d] * view.strides[d] * element;
        rest /= view.dims[d];
      }
      const std::optional<At> at = locate(buffer, b, offset);
      if (!at) return;
      std::vector<int64_t>& written = written_[at->entry];
      if (written.empty()) written.assign(static_cast<size_t>(buffer.bytes), kNever);
      // Elements are of one piece, so their first byte stands for all.
      visit(*at, written[static_cast<size_t>(at->offset)]);
    }
  }

  // Whether one range holds the byte from `from` to `to`.
  bool lives(const At& at, int64_t from, int64_t to) const {
    const auto& rects = lives_.problem.buffers[at.entry].rects;
    return std::any_of(rects.begin(), rects.end(), [&](const pack::Rect& r) {
      return r.offset <= at.offset && at.offset < r.offset + r.size && r.lower <= from &&
             to < r.upper;
    });
  }

  void read(const View& view, std::string_view what, int64_t now) {
    if (!fault_.empty()) return;
    for_each_byte(view, [&](const At& at, int64_t& written) {
      if (!fault_.empty() || written == kNever || lives(at, written, now)) return;
      fault_ = fmt::format(
          "{} at instant {} reads byte {} of buffer {} ({}), written at {}: no range holds both; "
          "iterations {}",
          what, now, at.offset, view.buffer.value, schedule_.buffers[view.buffer.index()].label,
          written, fmt::join(iterations_, ", "));
    });
  }
  void write(const View& view) {
    for_each_byte(view, [&](const At& at, int64_t& written) {
      written = now_;
      if (fault_.empty() && !lives(at, now_, now_))
        fault_ = fmt::format("byte {} of buffer {} is written at instant {} and does not live then",
                             at.offset, view.buffer.value, now_);
    });
  }

  const Schedule& schedule_;
  const Lifetimes lives_;
  std::vector<int64_t> iterations_;
  std::vector<std::vector<int64_t>> written_;  // of each place: when each byte was, [entries][bytes]
  int64_t now_ = 0;
  std::string fault_;
};

}  // namespace

std::string check_lives(const Schedule& schedule) { return Checker(schedule).run(); }

std::string check_lives_of_all(const Graph& graph, const std::vector<bool>& donated) {
  Graph g = flatten_all(graph);
  g = remove_dead_code(realize_residuals(simplify(g), nullptr));
  g = stream_tiles(remove_dead_code(unroll_scans(sink_moves(g))), kTileBytes);
  for (int order = 0; order < kNumOrderStrategies; ++order)
    for (const bool apart : {false, true}) {
      LowerOptions options{.donated = donated,
                           .order = static_cast<OrderStrategy>(order),
                           .iterations_apart = apart,
                           .target = {1, cpu::kernel_scratch_bytes}};
      const Schedule schedule = lower(g, options);
      const size_t n_moves = count_moves(schedule);
      constexpr int64_t kOvertaking = 10'000;
      for (const int ahead : {0, 1, 2, 13, 89}) {
        if (ahead > 0 && n_moves == 0) break;
        const std::vector<int> all(n_moves, ahead);
        const std::string fault = check_lives(
            ahead == 0 ? schedule : overlap_transfers(schedule, all, kOvertaking).schedule);
        if (!fault.empty())
          return fmt::format("order {}, iterations {}, {} ahead: {}", order,
                             apart ? "apart" : "together", ahead, fault);
      }
    }
  return "";
}

}  // namespace stow::testing
