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

// Slots of a ring for a move that may be so far ahead. In one of three what is updated in place can
// come in an iteration ahead and leave one behind; with each more it comes in one more ahead.
inline int slots_for(int ahead) {
  constexpr int kOneIteration = 34, kEachMore = 28;
  if (ahead <= kFewAhead) return 2;
  return 3 + (std::max(ahead, kOneIteration) - kOneIteration + kEachMore - 1) / kEachMore;
}

// By buffer: the slots of the ring that it must become.
using RingSlots = std::map<size_t, int>;

// Its functions stand in transfers.cpp (lists), transfer_conflicts.cpp, transfer_hoists.cpp (single
// moves) and transfer_runs.cpp.
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
  // True if a kernel is a move that is to be cut in two.
  bool is_cut(const Kernel& kernel) const {
    return is_move(kernel, schedule_.buffers) && ahead_of(kernel) > 0;
  }
  bool is_cut(const Kernel& kernel, const NumberedMoves::Described& described) const;
  Buffer& buffer(BufferId id) { return schedule_.buffers[id.index()]; }
  const Buffer& buffer(BufferId id) const { return schedule_.buffers[id.index()]; }

  // Moves of one stream run one after another: one bounce buffer serves them all. `shared` has it by stream,
  // once a move of the stream was met. Other kernels stay as they are.
  void share_scratch(Instruction& move, std::map<StreamKind, BufferId>& shared);

  // ---- lists ----

  void process(Instructions& list, const Loop* loop, Instructions& before, Instructions& after);
  void process_alone(Instructions& list) {
    Instructions before, after;
    process(list, nullptr, before, after);
  }

  static void add(Items& items, Instruction instruction, const NumberedMoves::Described& described);
  static void describe(Item& item, const NumberedMoves::Described& described);
  void add(Items& items, Instruction instruction);

  // Sets an item's accesses; those of an instruction in the loop `in` are of one of its iterations.
  void describe(Item& item, const Loop* in = nullptr, int64_t iteration = 0);
  static void collect_loops(Instruction& instruction, std::set<LoopId>& loops);

  // ---- conflicts ----

  // True if two accesses, `shift` iterations apart, may touch the same bytes.
  bool meet(const Access& a, const Access& b, int shift) const {
    if (a.buffer != b.buffer && share_a_slot(a.buffer, b.buffer)) return true;
    if (shift != 0 && has_slot_per_iteration(a.buffer)) return false;
    return may_meet(a, b, shift, loop_ ? loop_->id : LoopId());
  }
  // True if two buffers have one slot in common that is written: the first slot of a ring is
  // another buffer.
  bool share_a_slot(BufferId a, BufferId b) const;
  // True if each iteration of the loop around has a place of its own for the buffer.
  bool has_slot_per_iteration(BufferId id) const {
    return loop_ && stow::has_slot_per_iteration(buffer(id), loop_->id);
  }
  // Staging buffers of this list alone, each iteration's written whole before they are read.
  void find_ringable(Items& items);
  // True if this output is the only access of its buffer so far.
  static bool first_touch(const std::vector<int>& here, const Kernel& kernel, const View& view);

  // True if the move `item` must stay behind (or before) another instruction. A conflict with
  // another iteration's use of the staging buffer only asks for a ring. Starts of one stream run in
  // order anyway, but a move that is not cut in two runs at once.
  bool bound(const Item& item, const Item& other, RingSlots& needed) const;
  // True if their stream keeps their order wherever they stand, which it does not of two starts.
  // Lists hold starts of one lane in order anyway; the collective stream has two lanes.
  static bool runs_in_order(const Item& item, const Item& other);
  // True if two instructions touch the same bytes and one of them writes. Bytes that a ring of up
  // to `most` slots keeps apart do not count: two iterations' uses of a ringable buffer that
  // may_ring().
  template <typename MayRing>
  bool meets(const Item& item, const Item& other, int most, MayRing&& may_ring,
             RingSlots& needed) const {
    const int shift = item.shift - other.shift, apart = std::abs(shift);
    RingSlots rings;
    for (const Access& a : other.accesses) {
      const bool meeting = std::any_of(
          item.accesses.begin(), item.accesses.end(),
          [&](const Access& own) { return (own.write || a.write) && meet(own, a, shift); });
      if (!meeting) continue;
      // A use as many iterations away as a ring has slots lies in the same slot.
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

  // Collectives of what the list computes cannot start early: those of activations, as against
  // weights. In the other lane they hold none of those back that can.
  void choose_lanes(Items& items) const;
  // True if more of the list than light kernels and copies makes what a collective sends.
  bool is_computed_here(const Items& items, size_t i) const;

  // ---- moving instructions ----

  // Puts moves behind a loop that bring values back just before it, the values having left just
  // before it too, and puts kernels that wait for these moves there as well. Nothing in the loop
  // may wait for them. Moves for the loop need not wait for them then.
  void postpone(Items& items);
  // True if `item` starts an inward copy that may run far ahead, and `before` is a move or a
  // collective.
  bool starts_late(const Item& item, const Item& before) const;
  // True if postponed items keep no more memory of the device than they bring there themselves.
  bool costs_little(const Items& items, size_t begin, const std::vector<bool>& waits) const;

  // Dones of what comes in go down to the first reader; starts of what goes out up to the writer.
  void settle(Items& items);

  // True if the start of an inward move must stay behind another instruction, or the done of an
  // outward move before it. Moves of a stream keep their order, and the number under way is
  // limited.
  bool stopped(Item& item, const Item& other, RingSlots& rings) const {
    return stopped_by(item, other, [&] { return bound(item, other, rings); });
  }
  template <typename IsBound>
  bool stopped_by(Item& item, const Item& other, const IsBound& is_bound) const {
    ++work_;
    const bool in = is_inward(item.lane);
    const MovePhase same = in ? MovePhase::kStart : MovePhase::kDone,
                    opposite = in ? MovePhase::kDone : MovePhase::kStart;
    if (other.move(item.lane, same) || has_moves(other, item.lane)) return true;
    const bool counts = other.move(item.lane, opposite);
    if (counts && item.passed + 1 >= ahead_of(*item.instruction.kernel())) return true;
    if (is_bound()) return true;
    item.passed += counts;
    return false;
  }

  // True for the start of an inward move, or the done of an outward one, that is shifted by this
  // many iterations.
  static bool is_movable(const Item& item, bool in, int shift);

  // The place that a start gets to up a list, or a done down it, from another place.
  size_t reach(Item& item, const Items& items, size_t at, RingSlots& rings) const;

  // The body of a loop as one of its iterations sees it.
  Items& inside(Loop& loop, int64_t iteration);

  // A place in one of the iterations at an end of a loop.
  struct Entry {
    int64_t iteration = -1;
    size_t at = 0;
    bool overtakes = false;
    bool is_early = false;  // by an iteration or more
  };
  // How far a start gets into the last iterations of a loop that it cannot pass, a done into the
  // first ones.
  std::optional<Entry> entry(Item& item, Item& around, bool overtaking);
  void enter(Item& item, Item& around, const Entry& entry);

  // Moves a start past starts of the same stream that wait for something else, which would keep the
  // stream idle meanwhile. Returns the place that it reaches from `at`; `at` if it passes none.
  size_t overtake(Item& item, Items& items, size_t at, RingSlots& rings);
  // True if `other` is a move of the same stream and phase, and the two touch no common bytes that
  // one of them writes.
  bool may_overtake(const Item& item, const Item& other) const;

  // The place that a start reaches up the list.
  struct Place {
    size_t at = 0;
    std::optional<Entry> entry;  // into the loop before `at`
    RingSlots rings;
    bool overtakes = false;
    bool is_early = false;  // by a loop, or one of its iterations
  };
  Place place_of(Items& items, size_t i, bool overtaking);

  // Moves start i as far up the list as it may go. False if it has left the list, for one of a
  // loop's iterations.
  bool hoist(Items& items, size_t i);

  void hoist_starts(Items& items);
  // Moves an item from the top of the list on into an earlier iteration, `shift` in all. False if
  // it must stay.
  bool wrap(Items& items, size_t i, int shift);

  void sink_dones(Items& items);

  // ---- runs: a collective with what prepares its operand, or with what reads its result ----
  //
  // Items [first, first + n) of a list that change places together. A collective of a shard that
  // comes from the host, or is converted, can start no earlier than that ends; what reads a reduced
  // gradient would wait for it in the same iteration.
  static constexpr size_t kMostRun = 16;        // items of a run
  static constexpr size_t kMostLookBack = 256;  // items between a run and what may join it

  // True for an elementwise kernel of every iteration.
  static bool is_light(const Item& item);
  bool is_copy(const Item& item, MovePhase phase, bool in) const;

  static bool is_start_of_sum(const Item& item);

  // True if an item of a run must keep its place towards another instruction.
  bool run_is_bound(const Items& items, size_t first, size_t n, const Item& other, int most,
                    RingSlots& needed) const;
  // stopped() for a run whose collective is item `main`.
  bool run_is_stopped(Items& items, size_t first, size_t n, size_t main, const Item& other,
                      RingSlots& rings) const;
  bool all_shiftable(const Items& items, size_t first, size_t n) const;
  static void set_shift(Items& items, size_t first, size_t n, int shift) {
    for (size_t m = first; m < first + n; ++m) items[m].shift = shift;
  }

  // Puts what prepares the operand of a collective's start right before it: light kernels, and
  // dones of copies. Returns the length of the run that ends at `i`.
  size_t join_preparation(Items& items, size_t i);
  // True if an item writes what another item, or an item of a run, reads.
  bool feeds(const Item& item, const Item& other) const;
  bool feeds(const Item& item, const Items& items, size_t first, size_t n) const;

  // A run goes up the list, or on into the iteration before. Returns where the list goes on.
  size_t hoist_run(Items& items, size_t first, size_t n);

  // Moves runs further up that stopped, in the iteration before, at the start of another collective
  // that has itself gone further up since.
  void hoist_runs_again(Items& items);

  // Copies whose dones went into the iteration before start an iteration ahead of those again.
  void restart_copies(Items& items);

  // A reduced gradient is awaited in the iteration after, with the light kernels that read it and
  // the starts of copies and sums of what they make, as of a norm. False if that cannot be; the
  // list is then as it was. `n` is the length of the run.
  bool sink_run(Items& items, size_t i, size_t& n);

  // True if the item's windows in the next iteration are known: each has at most one term of the
  // loop.
  bool shiftable(const Item& item) const;

  // ---- the list as it will run ----

  // A slot that the loop fills bit by bit begins with the first bit, which is written ahead of it.
  void begin_no_bits(View& view) const;

  void write(Items& items, int64_t trips, Instructions& list, Instructions& before,
             Instructions& after);

  const NumberedMoves& numbered_;
  Schedule schedule_;
  const std::vector<int>& ahead_;
  const OvertakingBytes most_may_;
  OvertakingBytes overtook_, most_overtook_;  // in this list, and in any
  mutable int64_t work_ = 0;
  size_t n_seen_ = 0;           // kernels of the schedule, in order
  const Loop* loop_ = nullptr;  // around the list being worked on, where it can be wrapped
  std::vector<bool> ringable_;  // by buffer
  RingSlots rings_;
  // Iterations of loops that moves may enter.
  std::map<LoopId, std::map<int64_t, Items>> inside_;
};

}  // namespace stow
