// Overlapper: one trial of overlapping a schedule's moves with its computation (transfers.h).
// Not the choice of how far ahead each move may be.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/schedule_walk.h"
#include "stowage/passes/access.h"
#include "stowage/passes/numbered_moves.h"
#include "stowage/passes/rings.h"
#include "stowage/passes/transfer_items.h"
#include "stowage/passes/transfers.h"

namespace stow {

// The most slots of a ring for a move that may be `ahead` moves ahead. With three slots, an array
// that is updated in place can arrive one iteration early and leave one iteration late; each
// further slot lets it arrive one more iteration early.
inline int slots_for(int ahead) {
  constexpr int kOneIteration = 34, kEachMore = 28;
  if (ahead <= kFewAhead) return 2;
  return 3 + (std::max(ahead, kOneIteration) - kOneIteration + kEachMore - 1) / kEachMore;
}

// By buffer, the number of slots of the ring that it must become.
using RingSlots = std::map<size_t, int>;

// One trial. Its functions are defined in transfers.cpp (lists), transfer_conflicts.cpp,
// transfer_hoists.cpp (single moves) and transfer_runs.cpp.
class Overlapper {
 public:
  Overlapper(const NumberedMoves& numbered, const std::vector<int>& ahead,
             const OvertakingBytes& may_overtake, Schedule&& memory)
      : numbered_(numbered), schedule_(std::move(memory)), ahead_(ahead), most_may_(may_overtake) {
    schedule_ = numbered.schedule;
  }

  Overlapped run();

 private:
  int ahead_of(const Kernel& move) const { return ahead_[static_cast<size_t>(move.transfer)]; }
  // True if a kernel is a move that this trial splits into start and done.
  bool is_cut(const Kernel& kernel) const {
    return is_move(kernel, schedule_.buffers) && ahead_of(kernel) > 0;
  }
  bool is_cut(const Kernel& kernel, const NumberedMoves::Described& described) const;
  Buffer& buffer(BufferId id) { return schedule_.buffers[id.index()]; }
  const Buffer& buffer(BufferId id) const { return schedule_.buffers[id.index()]; }

  // Makes moves of one stream share one scratch buffer, since they run one after another. `shared`
  // holds the buffer by stream. Leaves kernels that are no moves unchanged.
  void share_scratch(Instruction& move, std::map<StreamKind, BufferId>& shared);

  // ---- lists ----

  // Overlaps the moves of a list. For the body of `loop`, `before` and `after` receive the
  // instructions that must run before and after the loop.
  void process(Instructions& list, const Loop* loop, Instructions& before, Instructions& after);
  void process_alone(Instructions& list) {
    Instructions before, after;
    process(list, nullptr, before, after);
  }

  static void add(Items& items, Instruction instruction, const NumberedMoves::Described& described);
  static void describe(Item& item, const NumberedMoves::Described& described);
  void add(Items& items, Instruction instruction);

  // Sets an item's accesses; for an instruction in the loop `in`, those of one iteration.
  void describe(Item& item, const Loop* in = nullptr, int64_t iteration = 0);
  static void collect_loops(Instruction& instruction, std::set<LoopId>& loops);

  // ---- conflicts ----

  // True if two accesses, `shift` iterations apart, may touch the same bytes.
  bool aliases(const Access& a, const Access& b, int shift) const {
    if (a.buffer != b.buffer && share_a_slot(a.buffer, b.buffer)) return true;
    if (shift != 0 && has_slot_per_iteration(a.buffer)) return false;
    return may_alias(a, b, shift, loop_ ? loop_->id : LoopId());
  }
  // True if two buffers share a slot that is written, since one is the first slot of the other
  // (Buffer::first_slot).
  bool share_a_slot(BufferId a, BufferId b) const;
  // True if each iteration of the loop around the list has a place of its own in the buffer.
  bool has_slot_per_iteration(BufferId id) const {
    return loop_ && stow::has_slot_per_iteration(buffer(id), loop_->id);
  }
  // Sets ringable_: temporary buffers of this list only, which each iteration writes before it
  // reads.
  void find_ringable(Items& items);
  // True if this output is the first access of its buffer; `here` counts the accesses so far.
  static bool first_touch(const std::vector<int>& here, const Kernel& kernel, const View& view);

  // True if the move `item` must not change places with `other`. A conflict with another
  // iteration's use of the staging buffer only adds a ring to `needed`.
  bool must_keep_order(const Item& item, const Item& other, RingSlots& needed) const;
  // True if the stream keeps the order of two instructions in any place of the list: both are parts
  // of split moves of one stream, and not both are starts.
  static bool runs_in_order(const Item& item, const Item& other);
  // True if two instructions touch the same bytes and one of them writes. Uses of a ringable buffer
  // with may_ring() by two iterations do not count if a ring of up to `most` slots separates them;
  // the ring is then added to `needed`.
  template <typename MayRing>
  bool conflicts(const Item& item, const Item& other, int most, MayRing&& may_ring,
                 RingSlots& needed) const {
    const int shift = item.shift - other.shift, apart = std::abs(shift);
    RingSlots rings;
    for (const Access& a : other.accesses) {
      const bool meeting = std::any_of(
          item.accesses.begin(), item.accesses.end(),
          [&](const Access& own) { return (own.write || a.write) && aliases(own, a, shift); });
      if (!meeting) continue;
      // Uses that are as many iterations apart as the ring has slots are in the same slot.
      if (apart == 0 || apart >= most || !may_ring(a.buffer) ||
          !ringable_[a.buffer.index()])
        return true;
      int& slots = rings[a.buffer.index()];
      slots = std::max(slots, apart + 1);
    }
    merge(rings, needed);
    return false;
  }

  int most_slots(const Item& item) const { return slots_for(ahead_of(*item.instruction.kernel())); }
  static void merge(const RingSlots& rings, RingSlots& into) {
    for (const auto& [b, slots] : rings) into[b] = std::max(into[b], slots);
  }
  void merge(const RingSlots& rings) { merge(rings, rings_); }

  bool has_moves(const Item& item, Lane lane) const { return item.moves[lane]; }

  // Puts collectives of values that the list computes, such as activations, into the lane kReduced:
  // they cannot start early, and must not hold back collectives that can, such as those of weights.
  void choose_lanes(Items& items) const;
  // True if the operand of collective i is made by the list with more than light kernels and
  // copies.
  bool is_computed_here(const Items& items, size_t i) const;

  // ---- moving instructions ----

  // Moves some items before a loop to behind it, if the loop does not need them: copies that bring
  // back values that left just before the loop, and kernels that wait for these copies. Copies for
  // the loop then need not wait for them.
  void postpone(Items& items);
  // True if `item` starts an inward copy that may run far ahead, and `before` is a move or a
  // collective.
  bool starts_late(const Item& item, const Item& before) const;
  // True if postponed items keep no more device memory live than they bring there themselves.
  bool costs_little(const Items& items, size_t begin, const std::vector<bool>& waits) const;

  // Moves dones of inward moves down to the first reader, and starts of outward moves up to the
  // writer.
  void tighten_moves(Items& items);

  // True if the start of an inward move must not pass above `other`, or the done of an outward move
  // below it. Moves of a lane keep their order, and the number in flight is limited.
  bool is_blocked(Item& item, const Item& other, RingSlots& rings) const {
    return is_blocked_by(item, other, [&] { return must_keep_order(item, other, rings); });
  }
  template <typename KeepsOrder>
  bool is_blocked_by(Item& item, const Item& other, const KeepsOrder& keeps_order) const {
    ++work_;
    const bool in = is_inward(item.lane);
    const MovePhase same = in ? MovePhase::kStart : MovePhase::kDone,
                    opposite = in ? MovePhase::kDone : MovePhase::kStart;
    if (other.move(item.lane, same) || has_moves(other, item.lane)) return true;
    const bool counts = other.move(item.lane, opposite);
    if (counts && item.n_in_flight + 1 >= ahead_of(*item.instruction.kernel())) return true;
    if (keeps_order()) return true;
    item.n_in_flight += counts;
    return false;
  }

  // True for the start of an inward move (`in`), or the done of an outward one, with this shift.
  static bool is_movable(const Item& item, bool in, int shift);

  // The place that a start reaches up the list from `at`, or a done down the list.
  size_t reach(Item& item, const Items& items, size_t at, RingSlots& rings) const;

  // The body of a loop with the accesses of one iteration.
  Items& inside(Loop& loop, int64_t iteration);

  // A place in one of the first or last iterations of a loop.
  struct Entry {
    int64_t iteration = -1;
    size_t at = 0;
    bool overtakes = false;
    bool is_early = false;  // true if a start gains at least one iteration
  };
  // The place that a start reaches in the last iterations of a loop that it cannot pass, or a done
  // in the first iterations; none if it cannot enter.
  std::optional<Entry> entry(Item& item, Item& around, bool overtaking);
  // Moves an item into the loop `around`, guarded for one iteration.
  void enter(Item& item, Item& around, const Entry& entry);

  // Lets a start pass starts of its stream that are not ready yet, so that the stream is not idle.
  // Returns the place that it reaches from `at`; `at` if it passes none.
  size_t overtake(Item& item, Items& items, size_t at, RingSlots& rings);
  // True if `other` is a move of the same stream and phase, and the two touch no common bytes that
  // one of them writes.
  bool may_overtake(const Item& item, const Item& other) const;

  // The place that a start reaches up the list.
  struct Place {
    size_t at = 0;
    std::optional<Entry> entry;  // a place in the loop just above `at`
    RingSlots rings;
    bool overtakes = false;
    bool is_early = false;  // true if the start gains a whole loop or at least one iteration
  };
  Place place_of(Items& items, size_t i, bool overtaking);

  // Moves start i as far up the list as possible. Returns false if it has left its place for an
  // iteration of another loop or an earlier one of its own.
  bool hoist(Items& items, size_t i);

  void hoist_starts(Items& items);
  // Moves item i from the top of a loop's list into an earlier iteration, so that it runs `shift`
  // iterations early. Returns false if it must stay.
  bool wrap(Items& items, size_t i, int shift);

  void sink_dones(Items& items);

  // ---- runs: a collective with the items that prepare its operand, or that read its result ----
  //
  // A run is the items [first, first + n) of a list that move together. The gather of a shard that
  // comes from the host, or is converted, cannot start before the copy or conversion ends, so they
  // start early together. The readers of a reduced gradient are delayed to the next iteration
  // together with its done.
  static constexpr size_t kMostRun = 16;        // the most items of a run
  static constexpr size_t kMostLookBack = 256;  // the most items between a run and a new member

  // True for an elementwise kernel that runs in every iteration.
  static bool is_light(const Item& item);
  bool is_copy(const Item& item, MovePhase phase, bool in) const;

  static bool is_start_of_sum(const Item& item);

  // True if an item of a run must not change places with `other`.
  bool run_must_keep_order(const Items& items, size_t first, size_t n, const Item& other, int most,
                           RingSlots& needed) const;
  // is_blocked() for a run whose collective is item `main`.
  bool run_is_blocked(Items& items, size_t first, size_t n, size_t main, const Item& other,
                      RingSlots& rings) const;
  bool all_shiftable(const Items& items, size_t first, size_t n) const;
  static void set_shift(Items& items, size_t first, size_t n, int shift) {
    for (size_t m = first; m < first + n; ++m) items[m].shift = shift;
  }

  // Moves light kernels and dones of copies that make the operand of the collective's start `i`
  // directly before it. Returns the length of the run that ends at `i`.
  size_t join_preparation(Items& items, size_t i);
  // True if an item writes what another item, or an item of a run, reads.
  bool feeds(const Item& item, const Item& other) const;
  bool feeds(const Item& item, const Items& items, size_t first, size_t n) const;

  // Moves a run up the list, or into the iteration before. Returns the place from which to
  // continue.
  size_t hoist_run(Items& items, size_t first, size_t n);

  // Moves runs in the iteration before further up, if they stopped at the start of another
  // collective that has moved up since.
  void hoist_runs_again(Items& items);

  // If the done of a copy has moved into the iteration before, lets its start move an iteration
  // ahead of it again.
  void restart_copies(Items& items);

  // Moves the done of a reduced gradient into the next iteration, with the light kernels that read
  // it and the starts of copies and sums of their results (for a norm). Returns false, with the
  // list unchanged, if that is impossible. `n` receives the length of the run.
  bool sink_run(Items& items, size_t i, size_t& n);

  // True if the item's windows in another iteration are known: each has at most one term of the
  // loop.
  bool shiftable(const Item& item) const;

  // ---- the list as it will run ----

  // Clears View::begins_lifetime of a view if the loop fills a slot part by part: the lifetime of
  // the slot begins with the first part, which is written ahead of the loop.
  void clear_partial_begins(View& view) const;

  // Writes the items to `list`, and shifted ones also to `before` and `after`, with guards.
  void write(Items& items, int64_t trips, Instructions& list, Instructions& before,
             Instructions& after);

  const NumberedMoves& numbered_;
  Schedule schedule_;
  const std::vector<int>& ahead_;
  const OvertakingBytes most_may_;
  OvertakingBytes overtook_, most_overtook_;  // in the current list; the most in any list
  mutable int64_t work_ = 0;    // Overlapped::work
  size_t n_seen_ = 0;           // number of kernels processed so far, in the order of the schedule
  const Loop* loop_ = nullptr;  // the loop around the current list, if moves may change iterations
  std::vector<bool> ringable_;  // by buffer, for the current list: find_ringable()
  RingSlots rings_;
  // By loop and iteration, its body as moves that may enter see it.
  std::map<LoopId, std::map<int64_t, Items>> inside_;
};

}  // namespace stow
