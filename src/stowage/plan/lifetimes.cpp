#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "stowage/ir/schedule_walk.h"
#include "stowage/plan/memory_plan.h"

namespace stow {
namespace {

// A loop whose iterations would make the timeline longer than this is walked at its ends only.
constexpr int64_t kMaxInstants = 400'000;

// A buffer of more pieces has one life: to tell them apart would cost more than it saves.
constexpr int64_t kMaxPieces = kMaxInstants;

// Iterations of an open loop that are walked. Values that lie alike in every iteration then lie
// alike from the first to the second, as from any to the next.
constexpr int64_t kOpenIterations = 2;

// Loops of longer periods are not condensed (condense.h).
constexpr int64_t kMaxPeriod = 60;

int64_t count_instants(const std::vector<Instruction>& body);
int64_t count_instants(const Instruction& i) {
  if (i.kernel()) return 1;
  if (const Loop* loop = i.loop()) {
    if (loop->trip_count != Loop::kOpen) return loop->trip_count * count_instants(loop->body);
    return kOpenIterations * count_instants(loop->body) +
           (kOpenIterations + 1) * count_instants(loop->condition);
  }
  int64_t n = 0;
  for (const auto& alternative : i.branch()->alternatives) n += count_instants(alternative);
  return n;
}
int64_t count_instants(const std::vector<Instruction>& body) {
  int64_t n = 0;
  for (const Instruction& i : body) n += count_instants(i);
  return n;
}

// Only what lies in the arena is laid out.
bool is_placed(const Buffer& buffer) {
  return buffer.role != BufferRole::kInput && !buffer.outside_arena;
}

class Walker {
 public:
  explicit Walker(const Schedule& schedule) : schedule_(schedule) {
    first_life_.reserve(schedule.buffers.size() + 1);
    for (const Buffer& buffer : schedule.buffers)
      first_life_.push_back(first_life_.back() + n_lives(buffer));
    lives_.resize(first_life_.back());
    iteration_.resize(schedule.n_loops);
    sampled_.resize(schedule.n_loops);
    has_slot_per_iteration_.resize(schedule.n_loops);
    for (size_t b = 0; b < schedule.buffers.size(); ++b) {
      const Buffer& buffer = schedule.buffers[b];
      result_.first.push_back(result_.owner.size());
      result_.owner.insert(result_.owner.end(),
                           static_cast<size_t>(buffer.n_places()), BufferId(b));
      for (const LoopDim& e : buffer.loop_dims) has_slot_per_iteration_[e.loop.index()] = true;
    }
    result_.problem.buffers.resize(result_.owner.size());
    period_.resize(schedule.n_loops, 1);
    if (schedule.n_loops > 0)
      for_each_view(schedule.instructions, [&](const View& view, bool) {
        for (const LoopTerm& term : view.terms)
          if (int64_t& period = period_[term.loop.index()]; term.modulo > 0)
            period = std::min(std::lcm(period, std::min(term.modulo, kMaxPeriod)), kMaxPeriod);
      });
  }

  Lifetimes run() {
    walk(schedule_.instructions, 1);
    const int64_t end = static_cast<int64_t>(result_.at.size()) + 1;
    for (size_t b = 0; b < schedule_.buffers.size(); ++b) {
      const Buffer& buffer = schedule_.buffers[b];
      for (size_t s = 0; s < n_lives(b); ++s) {
        Life& life = life_of(b, s);
        // A returned buffer lives to the end; one that was never written has no life.
        if (life.open && buffer.role == BufferRole::kOutput) life.end = end;
        close(b, s);
      }
    }
    return std::move(result_);
  }

 private:
  struct Life {
    bool open = false;
    int64_t begin = 0, end = 0;
    int64_t place = 0;  // of slot 0: that of the iterations of Buffer::loop_dims
    int held = 0, moving = 0;  // by branches being walked, by moves under way: the life goes on

    void start(int64_t now, int64_t at_place) {
      open = true;
      begin = end = now;
      place = at_place;
    }
  };

  size_t n_lives(size_t buffer) const { return first_life_[buffer + 1] - first_life_[buffer]; }
  Life& life_of(size_t buffer, size_t piece) { return lives_[first_life_[buffer] + piece]; }

  void walk(const std::vector<Instruction>& body, int64_t repeats, int64_t iteration = 0) {
    for (const Instruction& instruction : body) {
      if (!instruction.guard.holds(iteration)) continue;
      if (const Kernel* kernel = instruction.kernel()) {
        visit(*kernel);
        continue;
      }
      if (const Branch* branch = instruction.branch()) {
        walk_branch(*branch, repeats);
        continue;
      }
      const Loop& loop = *instruction.loop();
      if (loop.trip_count == Loop::kOpen) {
        walk_open(loop, repeats);
        continue;
      }
      const int64_t n = loop.trip_count, inside = count_instants(loop.body);
      const bool sample =
          n > 4 && repeats * n * inside > kMaxInstants && !has_slot_per_iteration_[loop.id.index()];
      sampled_[loop.id.index()] = sample;
      result_.same_in_every_run &= !sample;
      if (sample) say_sampled(n);
      const int around = run_;
      if (!sample && n > 1) {
        run_ = static_cast<int>(result_.runs.size());
        result_.runs.push_back({{}, period_[loop.id.index()], around});
      }
      const auto mark = [&, run = run_] {
        if (run != around)
          result_.runs[static_cast<size_t>(run)].starts.push_back(
              static_cast<int64_t>(result_.at.size()));
      };
      for (int64_t i = 0; i < n; ++i) {
        if (sample && i == 2) i = n - 2;
        iteration_[loop.id.index()] = i;
        mark();
        walk(loop.body, sample ? repeats * 4 : repeats * n, i);
      }
      mark();
      run_ = around;
    }
  }

  void say_sampled(int64_t trip_count) {
    const std::string limit = fmt::format(
        "lifetimes: the timeline of a loop of {} iterations is longer than {} instants, so its stacks "
        "live as a whole",
        trip_count, kMaxInstants);
    if (std::find(result_.limits.begin(), result_.limits.end(), limit) == result_.limits.end())
      result_.limits.push_back(limit);
  }

  // The alternatives are walked one after another, though one of them runs: what is private to one
  // is dead during the others. What they leave behind lives from before the first to after the
  // last, and so does what several of them touch: no write in one of them ends the life that
  // another may leave untouched, or still read.
  void walk_branch(const Branch& branch, int64_t repeats) {
    result_.same_in_every_run = false;
    touch(branch.index, last_instant(), false);
    int64_t n = 0;
    for (const auto& alternative : branch.alternatives) n += count_instants(alternative);
    const int64_t start = n > 0 ? static_cast<int64_t>(result_.at.size()) : last_instant();
    for (const View& view : branch.results) touch(view, start, view.begins_lifetime);
    const std::set<size_t>& held = held_by(branch);
    for (size_t b : held)
      for (size_t s = 0; s < n_lives(b); ++s) ++life_of(b, s).held;
    for (const auto& alternative : branch.alternatives) walk(alternative, repeats);
    for (size_t b : held)
      for (size_t s = 0; s < n_lives(b); ++s) --life_of(b, s).held;
    for (const View& view : branch.results) touch(view, last_instant(), false);
  }

  // The buffers that a branch leaves behind, and those that several of its alternatives touch;
  // first slots that are other buffers with them.
  const std::set<size_t>& held_by(const Branch& branch) {
    const auto [it, is_new] = held_by_.try_emplace(&branch);
    if (!is_new) return it->second;
    std::set<size_t> seen;
    const auto add = [&](const View& view, std::set<size_t>& buffers) {
      buffers.insert(view.buffer.index());
      const BufferId first = schedule_.buffers[view.buffer.index()].first_slot;
      if (first.valid()) buffers.insert(first.index());
    };
    for (const View& view : branch.results) add(view, it->second);
    for (const auto& alternative : branch.alternatives) {
      std::set<size_t> here;
      for_each_view(alternative, [&](const View& view, bool) { add(view, here); });
      for (size_t b : here)
        if (!seen.insert(b).second) it->second.insert(b);
    }
    return it->second;
  }

  int64_t last_instant() const {
    return std::max<int64_t>(static_cast<int64_t>(result_.at.size()) - 1, 0);
  }

  // The host reads the predicate before anything else runs, and the loop may end there.
  void walk_open(const Loop& loop, int64_t repeats) {
    result_.same_in_every_run = false;
    for (int64_t i = 0; i <= kOpenIterations; ++i) {
      iteration_[loop.id.index()] = i;
      walk(loop.condition, repeats * (kOpenIterations + 1));
      const int64_t end = last_instant();
      touch(loop.predicate, end, false);
      for (const View& carry : loop.carries) touch(carry, end, false);
      if (i < kOpenIterations) walk(loop.body, repeats * kOpenIterations);
    }
  }

  void visit(const Kernel& kernel) {
    const int64_t now = static_cast<int64_t>(result_.at.size());
    result_.at.push_back(&kernel);
    result_.run_at.push_back(run_);
    for (const View& view : kernel.inputs) touch(view, now, false);
    for (const View& view : kernel.outputs) touch(view, now, view.begins_lifetime);
    if (kernel.phase != MovePhase::kWhole) hold(kernel, kernel.phase == MovePhase::kStart ? 1 : -1);
    if (kernel.scratch.valid()) {
      Life& life = life_of(kernel.scratch.index(), 0);
      const bool shared = kernel.phase != MovePhase::kWhole;  // by all moves of a stream
      if (life.open && !shared) close(kernel.scratch.index(), 0);
      if (!life.open)
        life.start(now, schedule_.buffers[kernel.scratch.index()].place(iteration_, 0));
      life.end = now + 1;
    }
  }

  // From the start of a move to its done what it touches lives, whoever writes to another part of
  // these pieces. In a loop walked in part no write ends what may be any piece, and a start may
  // lack its done, or the done its start: what was held before may then live on for longer.
  void hold(const Kernel& move, int by) {
    for (const std::vector<View>* views : {&move.inputs, &move.outputs})
      for (const View& view : *views)
        for_each_piece(view, [&](size_t b, size_t piece, bool sampled) {
          int& moving = life_of(b, piece).moving;
          if (!sampled) moving = std::max(moving + by, 0);
        });
  }

  void touch(const View& view, int64_t now, bool begins) {
    // A piece that a loop fills bit by bit begins with the first bit.
    bit_bytes_ = std::numeric_limits<int64_t>::max();
    for (const LoopTerm& term : view.terms)
      if (iteration_[term.loop.index()] > 0)
        bit_bytes_ = std::min(bit_bytes_, std::abs(term.step * term.stride_bytes));
    for_each_piece(view, [&](size_t b, size_t piece, bool sampled) {
      touch_piece(b, piece, now, begins, sampled);
    });
  }

  /// visit(buffer, piece, sampled) for the pieces that a window touches in these iterations;
  /// `sampled` where it may touch any. A first slot that is another buffer is that buffer's piece.
  template <typename Visit>
  void for_each_piece(const View& view, Visit&& visit) {
    const BufferId first = schedule_.buffers[view.buffer.index()].first_slot;
    for_each_piece_of_its_own(view, [&](size_t b, size_t piece, bool sampled) {
      if (piece > 0 || !first.valid())
        visit(b, piece, sampled);
      else if (is_placed(schedule_.buffers[first.index()]))
        visit(first.index(), 0, sampled);
    });
  }
  template <typename Visit>
  void for_each_piece_of_its_own(const View& view, Visit&& visit) {
    const size_t b = view.buffer.index();
    const Buffer& buffer = schedule_.buffers[b];
    if (!is_placed(buffer) || view.elems() == 0) return;
    const size_t n_pieces = n_lives(b);
    if (n_pieces == 1) {
      visit(b, 0, is_one_life(buffer));
      return;
    }
    // Dimensions that step over whole slots are walked; the others span bytes of one.
    bool sampled = false;
    int64_t low = view.offset_bytes;
    for (const LoopTerm& term : view.terms) {
      sampled |= sampled_[term.loop.index()];
      low += term.bytes_at(iteration_[term.loop.index()]);
    }
    int64_t high = low + dtype_bytes(view.dtype);
    std::vector<std::pair<int64_t, int64_t>> outer;  // extent, stride in bytes
    for (size_t d = 0; d < view.dims.size(); ++d) {
      const int64_t stride = view.strides[d] * dtype_bytes(view.dtype);
      if (std::abs(stride) >= buffer.slot_bytes && view.dims[d] > 1)
        outer.emplace_back(view.dims[d], stride);
      else
        (stride < 0 ? low : high) += (view.dims[d] - 1) * stride;
    }
    if (sampled) {
      for (size_t piece = 0; piece < n_pieces; ++piece) visit(b, piece, true);
      return;
    }
    int64_t n = 1;
    for (const auto& [extent, stride] : outer) n *= extent;
    for (int64_t i = 0; i < n; ++i) {
      int64_t shift = 0, rest = i;
      for (const auto& [extent, stride] : outer) {
        shift += rest % extent * stride;
        rest /= extent;
      }
      const int64_t begin = low + shift, end = high + shift;
      STOW_CHECK(begin >= 0 && end <= buffer.bytes, "a window reaches out of its buffer");
      for (size_t piece = piece_at(buffer, begin); piece < n_pieces; ++piece) {
        if (piece_begin(buffer, piece) >= end) break;
        visit(b, piece, false);
      }
    }
  }

  static int64_t n_pieces(const Buffer& buffer) {
    return buffer.slots * static_cast<int64_t>(buffer.parts.size());
  }
  static bool is_one_life(const Buffer& buffer) {
    return n_pieces(buffer) > kMaxPieces && !buffer.independent_slots && !buffer.first_slot.valid();
  }
  static size_t n_lives(const Buffer& buffer) {
    return is_one_life(buffer) ? 1 : static_cast<size_t>(n_pieces(buffer));
  }

  // The piece (a part of a slot) that holds a byte.
  static size_t piece_at(const Buffer& buffer, int64_t byte) {
    const int64_t slot = byte / buffer.slot_bytes, inside = byte % buffer.slot_bytes;
    const auto part = std::upper_bound(buffer.parts.begin(), buffer.parts.end(), inside) - 1;
    return static_cast<size_t>(slot) * buffer.parts.size() +
           static_cast<size_t>(part - buffer.parts.begin());
  }
  static int64_t piece_begin(const Buffer& buffer, size_t piece) {
    return static_cast<int64_t>(piece / buffer.parts.size()) * buffer.slot_bytes +
           buffer.parts[piece % buffer.parts.size()];
  }
  static int64_t piece_end(const Buffer& buffer, size_t piece) {
    return std::min(buffer.bytes, (piece + 1) % buffer.parts.size() == 0
                                      ? static_cast<int64_t>(piece / buffer.parts.size() + 1) *
                                            buffer.slot_bytes
                                      : piece_begin(buffer, piece + 1));
  }

  void touch_piece(size_t b, size_t piece, int64_t now, bool begins, bool sampled) {
    Life& life = life_of(b, piece);
    const Buffer& buffer = schedule_.buffers[b];
    const int64_t place = buffer.place(iteration_, 0);
    begins &= piece_end(buffer, piece) - piece_begin(buffer, piece) <= bit_bytes_ &&
              life.held == 0 && life.moving == 0;
    // One kernel may fill a piece through several windows, or over what it reads there.
    const bool is_new = begins && !sampled && life.end <= now;
    if (life.open && (is_new || place != life.place)) close(b, piece);
    if (!life.open) life.start(now, place);
    life.end = now + 1;
  }

  void close(size_t b, size_t piece) {
    Life& life = life_of(b, piece);
    if (!life.open) return;
    life.open = false;
    const Buffer& buffer = schedule_.buffers[b];
    if (buffer.slot_bytes == 0) return;
    pack::Rect rect;
    rect.offset = piece_begin(buffer, piece);
    rect.size = (is_one_life(buffer) ? buffer.bytes : piece_end(buffer, piece)) - rect.offset;
    rect.lower = life.begin;
    rect.upper = life.end;
    size_t entry = result_.first[b] + static_cast<size_t>(life.place);
    if (buffer.independent_slots) {
      entry += piece / buffer.parts.size();
      rect.offset %= buffer.slot_bytes;
    }
    result_.problem.buffers[entry].rects.push_back(rect);
  }

  const Schedule& schedule_;
  std::vector<size_t> first_life_ = {0};  // of each buffer, and the end
  std::vector<Life> lives_;
  std::vector<int64_t> iteration_;
  std::vector<bool> sampled_;
  std::map<const Branch*, std::set<size_t>> held_by_;
  std::vector<int64_t> period_;  // of each loop
  int run_ = -1;                 // of a loop, that is being walked
  std::vector<bool> has_slot_per_iteration_;  // loops whose every iteration has places of its own
  int64_t bit_bytes_ = 0;  // the least step of a loop in a later iteration around this touch
  Lifetimes result_;
};

}  // namespace

Lifetimes compute_lifetimes(const Schedule& schedule) { return Walker(schedule).run(); }

}  // namespace stow
