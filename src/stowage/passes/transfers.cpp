#include "stowage/passes/transfers.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "stowage/base/error.h"
#include "stowage/ir/schedule_walk.h"
#include "stowage/passes/access.h"
#include "stowage/passes/rings.h"
#include "stowage/passes/transfer_items.h"

namespace stow {
namespace {

bool is_move(const Kernel& kernel, const std::vector<Buffer>& buffers) {
  return kernel.phase == MovePhase::kWhole && stream_of(kernel, buffers) != StreamKind::kCompute;
}

// Iterations of a loop that moves of what comes after it, or before, may enter.
constexpr int64_t kMostEntered = 12;

// Slots of a ring for a move that may be so far ahead. In one of three what is updated in place can
// come in an iteration ahead and leave one behind; with each more it comes in one more ahead.
int slots_for(int ahead) {
  constexpr int kOneIteration = 34, kEachMore = 28;
  if (ahead <= kFewAhead) return 2;
  return 3 + (std::max(ahead, kOneIteration) - kOneIteration + kEachMore - 1) / kEachMore;
}

// By buffer: the slots of the ring that it must become.
using RingSlots = std::map<size_t, int>;

// A loop or branch of an instruction's own, cut off from the schedule that it was copied from, and all in it.
template <typename VisitKernel>
void own_bodies(Instruction& instruction, const VisitKernel& visit_kernel) {
  const auto all = [&](Instructions& list) {
    for (Instruction& i : list) own_bodies(i, visit_kernel);
  };
  if (instruction.kernel()) {
    visit_kernel(instruction);
  } else if (instruction.loop()) {
    auto own = std::make_shared<Loop>(*instruction.loop());
    all(own->body);
    all(own->condition);
    instruction.body = std::move(own);
  } else {
    auto own = std::make_shared<Branch>(branch_of(instruction));
    for (Instructions& alternative : own->alternatives) all(alternative);
    instruction.body = std::move(own);
  }
}

}  // namespace

// A schedule whose moves are numbered, and what all trials of it share. Trials copy what they change, so the
// kernels here stay as they are and where they are.
struct NumberedMoves {
  struct Described {
    StreamKind stream = StreamKind::kCompute;
    Lane lane = 0;
    Accesses::Shared accesses;
  };

  explicit NumberedMoves(const Schedule& whole) : schedule(whole) {
    for (Instruction& instruction : schedule.instructions)
      own_bodies(instruction, [&](Instruction& i) { number(i); });
    for_each_kernel(std::as_const(schedule.instructions),
                    [&](const Kernel& k) { in_order.push_back(&describe(k)); });
    for (const std::vector<Instruction>* halves : {&starts, &dones})
      for (const Instruction& i : *halves) describe(*i.kernel());
    count_accesses();
  }

  // Whether a write begins the life of more than what it writes: nothing may be written there before.
  // What a loop fills bit by bit begins with the first bit, see begin_no_bits.
  static bool begins_all(const Schedule& schedule, const View& view) {
    const Buffer& b = schedule.buffers[view.buffer.index()];
    return view.begins && view.terms.empty() && b.slots == 1 && b.parts.size() == 1;
  }

  Schedule schedule;
  std::vector<Instruction> starts, dones;  // of the moves, by number
  std::unordered_map<const Kernel*, Described> described;
  std::vector<const Described*> in_order;  // of the kernels as for_each_kernel() meets them
  std::vector<int> n_accesses;             // of each buffer, before any move is split
  std::vector<bool> is_result;             // of each buffer

 private:
  void count_accesses() {
    n_accesses.assign(schedule.buffers.size(), 0);
    for_each_view(std::as_const(schedule.instructions),
                  [&](const View& view, bool) { ++n_accesses[view.buffer.index()]; });
    is_result.assign(schedule.buffers.size(), false);
    for (const View& view : schedule.outputs) {
      ++n_accesses[view.buffer.index()];
      is_result[view.buffer.index()] = true;
    }
  }
  void number(Instruction& instruction) {
    if (!is_move(*instruction.kernel(), schedule.buffers)) return;
    instruction.edit_kernel()->transfer = static_cast<int>(starts.size());
    Instruction start = instruction, done = instruction;
    start.edit_kernel()->phase = MovePhase::kStart;
    Kernel* const awaited = done.edit_kernel();
    awaited->phase = MovePhase::kDone;
    awaited->outputs[0].begins = false;
    starts.push_back(std::move(start));
    dones.push_back(std::move(done));
  }
  const Described& describe(const Kernel& kernel) {
    std::vector<Access> accesses;
    const auto add = [&](const View& view, bool write) {
      if (begins_all(schedule, view))
        accesses.push_back(
            {view.buffer, write, false, 0, schedule.buffers[view.buffer.index()].bytes, {}});
      else
        accesses.push_back(access_of(view, write));
    };
    for (const View& view : kernel.inputs) add(view, false);
    for (const View& view : kernel.outputs) add(view, true);
    const StreamKind stream = stream_of(kernel, schedule.buffers);
    return described[&kernel] = {stream, lane_of(kernel, stream),
                                 std::make_shared<const std::vector<Access>>(std::move(accesses))};
  }
};

namespace {

class Overlapper {
 public:
  Overlapper(const NumberedMoves& numbered, const std::vector<int>& ahead,
             const OvertakingBytes& may_overtake, Schedule&& memory)
      : numbered_(numbered),
        schedule_(std::move(memory)),
        ahead_(ahead),
        most_may_(may_overtake) {
    schedule_ = numbered.schedule;
  }

  Overlapped run() {
    STOW_CHECK(numbered_.starts.size() == ahead_.size(), "one number a move");
    for (Instruction& instruction : schedule_.instructions)
      own_bodies(instruction, [](Instruction&) {});
    share_scratch();
    Instructions before, after;
    process(schedule_.instructions, nullptr, before, after);
    return {std::move(schedule_), most_overtook_, work_};
  }

 private:
  int ahead_of(const Kernel& move) const { return ahead_[static_cast<size_t>(move.transfer)]; }
  // Whether a kernel is a move that is to be cut in two.
  bool is_cut(const Kernel& kernel) const {
    return is_move(kernel, schedule_.buffers) && ahead_of(kernel) > 0;
  }
  bool is_cut(const Kernel& kernel, const NumberedMoves::Described& described) const {
    return kernel.phase == MovePhase::kWhole && described.stream != StreamKind::kCompute &&
           ahead_of(kernel) > 0;
  }
  Buffer& buffer(BufferId id) { return schedule_.buffers[id.index()]; }
  const Buffer& buffer(BufferId id) const { return schedule_.buffers[id.index()]; }

  // Moves of one stream run one after another: one bounce buffer serves them all.
  void share_scratch() {
    std::map<StreamKind, BufferId> shared;
    const auto uses_scratch = [&](const Kernel& kernel) {
      return kernel.scratch.valid() && is_cut(kernel);
    };
    bool any = false;
    for_each_kernel(std::as_const(schedule_.instructions),
                    [&](const Kernel& kernel) { any = any || uses_scratch(kernel); });
    if (!any) return;
    for_each_kernel(schedule_.instructions, [&](Kernel& kernel) {
      if (!uses_scratch(kernel)) return;
      const auto [it, fresh] =
          shared.try_emplace(stream_of(kernel, schedule_.buffers), kernel.scratch);
      if (!fresh) {
        Buffer& own = buffer(kernel.scratch);
        buffer(it->second).bytes = std::max(buffer(it->second).bytes, own.bytes);
        buffer(it->second).slot_bytes = buffer(it->second).bytes;
        own.bytes = own.slot_bytes = 0;
        kernel.scratch = it->second;
      }
      buffer(it->second).each.clear();
    });
  }

  // ---- lists ----

  void process(Instructions& list, const Loop* loop, Instructions& before, Instructions& after) {
    Items items;
    for (Instruction& instruction : list) {
      if (Loop* nested = instruction.loop()) {
        Instructions pre, post;
        process(nested->body, nested->trip_count == Loop::kOpen ? nullptr : nested, pre, post);
        process_alone(nested->condition);
        for (Instruction& i : pre) add(items, std::move(i));
        add(items, std::move(instruction));
        for (Instruction& i : post) add(items, std::move(i));
        continue;
      }
      if (instruction.branch()) {
        for (Instructions& alternative : branch_of(instruction).alternatives)
          process_alone(alternative);
        add(items, std::move(instruction));
        continue;
      }
      const NumberedMoves::Described& described = *numbered_.in_order[n_seen_++];
      if (is_cut(*instruction.kernel(), described)) {
        const Kernel& whole = *instruction.kernel();
        for (const auto* halves : {&numbered_.starts, &numbered_.dones}) {
          Instruction half = (*halves)[static_cast<size_t>(whole.transfer)];
          half.guard = instruction.guard;
          if (half.kernel()->scratch != whole.scratch) half.edit_kernel()->scratch = whole.scratch;
          add(items, std::move(half));
        }
      } else {
        add(items, std::move(instruction), described);
      }
    }
    loop_ = loop && loop->trip_count > 1 ? loop : nullptr;
    rings_.clear();
    find_ringable(items);
    choose_lanes(items);
    postpone(items);
    settle(items);
    hoist_starts(items);
    sink_dones(items);
    write(items, loop ? loop->trip_count : 1, list, before, after);
  }
  void process_alone(Instructions& list) {
    Instructions before, after;
    process(list, nullptr, before, after);
  }

  static void add(Items& items, Instruction instruction,
                  const NumberedMoves::Described& described) {
    Item item;
    item.instruction = std::move(instruction);
    describe(item, described);
    items.add(std::move(item));
  }
  static void describe(Item& item, const NumberedMoves::Described& described) {
    item.stream = described.stream;
    item.lane = described.lane;
    item.accesses = Accesses(described.accesses);
  }
  void add(Items& items, Instruction instruction) {
    Item item;
    item.instruction = std::move(instruction);
    describe(item);
    items.add(std::move(item));
  }

  // Of an instruction in a loop: what it touches in one of its iterations.
  void describe(Item& item, const Loop* in = nullptr, int64_t iteration = 0) {
    item.moves = {};
    if (const Kernel* kernel = item.instruction.kernel()) {
      if (const auto known = numbered_.described.find(kernel); known != numbered_.described.end() && !in) {
        describe(item, known->second);
        return;
      }
      item.stream = stream_of(*kernel, schedule_.buffers);
      item.lane = lane_of(*kernel, item.stream);
    }
    std::vector<Access> accesses;
    const bool nested = !item.instruction.kernel();
    std::set<LoopId> inside;
    collect_loops(item.instruction, inside);
    std::set<std::pair<size_t, bool>> whole;
    for_each_view(std::as_const(item.instruction), [&](const View& view, bool write) {
      Access a;
      if (NumberedMoves::begins_all(schedule_, view)) {
        a = {view.buffer, write, false, 0, buffer(view.buffer).bytes, {}};
      } else if (in) {
        View window = view;
        fix_iteration(window, in->id, iteration);
        a = access_of(window, write);
      } else {
        a = access_of(view, write);
      }
      a.whole = nested && std::any_of(a.terms.begin(), a.terms.end(),
                                      [&](const LoopTerm& t) { return inside.contains(t.loop); });
      if (a.whole && !whole.emplace(view.buffer.index(), write).second) return;
      accesses.push_back(std::move(a));
    });
    item.accesses = Accesses(std::make_shared<const std::vector<Access>>(std::move(accesses)));
    if (nested)
      for_each_kernel(std::span(&std::as_const(item.instruction), 1), [&](const Kernel& kernel) {
        item.moves[lane_of(kernel, stream_of(kernel, schedule_.buffers))] = true;
      });
  }
  static void collect_loops(Instruction& instruction, std::set<LoopId>& loops) {
    if (Loop* loop = instruction.loop()) {
      loops.insert(loop->id);
      for (Instruction& i : loop->body) collect_loops(i, loops);
      for (Instruction& i : loop->condition) collect_loops(i, loops);
    } else if (instruction.branch()) {
      for (Instructions& alternative : branch_of(instruction).alternatives)
        for (Instruction& i : alternative) collect_loops(i, loops);
    }
  }

  // ---- conflicts ----

  bool meet(const Access& a, const Access& b, int shift) const {
    if (a.buffer != b.buffer && share_a_slot(a.buffer, b.buffer)) return true;
    if (shift != 0 && has_slot_per_iteration(a.buffer)) return false;
    return may_meet(a, b, shift, loop_ ? loop_->id : LoopId());
  }
  // True if two buffers have one slot in common that is written: the first slot of a ring is another
  // buffer.
  bool share_a_slot(BufferId a, BufferId b) const {
    const auto first_of = [&](BufferId id) {
      return buffer(id).first_slot.valid() ? buffer(id).first_slot : id;
    };
    const BufferId first = first_of(a);
    return first == first_of(b) &&
           (buffer(first).role != BufferRole::kInput || numbered_.is_result[first.index()]);
  }
  // Whether each iteration of the loop around has a place of its own for the buffer.
  bool has_slot_per_iteration(BufferId id) const { return loop_ && stow::has_slot_per_iteration(buffer(id), loop_->id); }
  // Staging buffers of this list alone, each iteration's written whole before they are read.
  void find_ringable(Items& items) {
    ringable_.clear();
    if (!loop_) return;
    std::map<size_t, int> here;
    std::map<size_t, bool> begins;
    for (Item& item : items) {
      const bool nested = !item.instruction.kernel();
      for_each_view(std::as_const(item.instruction), [&](const View& view, bool) {
        ++here[view.buffer.index()];
        begins.try_emplace(view.buffer.index(), false);
      });
      if (nested) continue;
      const Kernel& kernel = *item.instruction.kernel();
      for (const View& view : kernel.outputs)
        if (view.begins && first_touch(here, kernel, view)) begins[view.buffer.index()] = true;
    }
    // A done counts as its start does: both hold the windows of one move.
    std::map<size_t, int> dones;
    for (const Item& item : items)
      if (const Kernel* k = item.instruction.kernel(); k && k->phase == MovePhase::kDone)
        for (const auto* views : {&k->inputs, &k->outputs})
          for (const View& view : *views) ++dones[view.buffer.index()];
    for (const auto& [b, n] : here) {
      const Buffer& candidate = schedule_.buffers[b];
      if (candidate.role == BufferRole::kTemporary && !candidate.separate && candidate.slots == 1 &&
          candidate.parts.size() == 1 && !candidate.apart && begins[b] &&
          n - dones[b] == numbered_.n_accesses[b])
        ringable_.insert(b);
    }
  }
  // Whether this output is the only access of its buffer so far.
  static bool first_touch(const std::map<size_t, int>& here, const Kernel& kernel,
                          const View& view) {
    if (here.at(view.buffer.index()) != 1) return false;
    return std::none_of(kernel.inputs.begin(), kernel.inputs.end(),
                        [&](const View& in) { return in.buffer == view.buffer; });
  }

  // Whether a move, its windows `item`'s, must stay behind (or before) another instruction. A
  // meeting with another iteration's use of the staging buffer only asks for a ring; starts of one
  // stream run in order anyway, but a move that is not cut in two runs at once.
  bool bound(const Item& item, const Item& other, RingSlots& needed) const {
    if (runs_in_order(item, other)) return false;
    const BufferId staging = item.accesses[is_inward(item.lane) ? 1 : 0].buffer;
    const bool either = item.stream == StreamKind::kCollective;  // both lie where the plan places them
    return meets(item, other, most_slots(item), [&](BufferId b) { return either || b == staging; },
                 needed);
  }
  // True if their stream keeps their order wherever they stand, which it does not of two starts. Lists
  // hold starts of one lane in order anyway; the collective stream has two lanes.
  static bool runs_in_order(const Item& item, const Item& other) {
    if (other.stream != item.stream || item.stream == StreamKind::kCompute) return false;
    const MovePhase own = item.instruction.kernel()->phase,
                    others = other.instruction.kernel()->phase;
    return others != MovePhase::kWhole && own != MovePhase::kWhole &&
           !(own == MovePhase::kStart && others == MovePhase::kStart);
  }
  // Whether two instructions touch the same bytes, one of them writing, but for what a ring of up to
  // `most` slots keeps apart: uses of a ringable buffer that may_ring() by two iterations.
  template <typename MayRing>
  bool meets(const Item& item, const Item& other, int most, MayRing&& may_ring,
             RingSlots& needed) const {
    const int shift = item.shift - other.shift, apart = std::abs(shift);
    RingSlots rings;
    for (const Access& a : other.accesses) {
      const bool meeting =
          std::any_of(item.accesses.begin(), item.accesses.end(), [&](const Access& own) {
            return (own.write || a.write) && meet(own, a, shift);
          });
      if (!meeting) continue;
      // What is as many iterations away as a ring has slots lies in the same one.
      if (apart == 0 || apart >= most || !may_ring(a.buffer) ||
          !ringable_.contains(a.buffer.index()))
        return true;
      int& slots = rings[a.buffer.index()];
      slots = std::max(slots, apart + 1);
    }
    merge(rings, needed);
    return false;
  }

  int most_slots(const Item& item) const {
    return slots_for(ahead_of(*item.instruction.kernel()));
  }
  static void merge(const RingSlots& rings, RingSlots& into) {
    for (const auto& [b, slots] : rings) into[b] = std::max(into[b], slots);
  }
  void merge(const RingSlots& rings) { merge(rings, rings_); }

  bool has_moves(const Item& item, Lane lane) const { return item.moves[lane]; }

  // Collectives of what the list computes cannot start early: those of activations, as against weights.
  // In the other lane they hold none of those back that can.
  void choose_lanes(Items& items) const {
    for (size_t i = 0; i + 1 < items.size(); ++i) {
      if (!items[i].move(static_cast<Lane>(StreamKind::kCollective), MovePhase::kStart) ||
          !is_computed_here(items, i))
        continue;
      const int transfer = items[i].instruction.kernel()->transfer;
      items[i].lane = kReduced;
      for (size_t j = i + 1; j < items.size(); ++j)
        if (const Kernel* k = items[j].instruction.kernel();
            k && k->phase == MovePhase::kDone && k->transfer == transfer) {
          items[j].lane = kReduced;
          break;
        }
    }
  }
  // Whether what a collective sends is made by more of the list than light kernels and copies.
  bool is_computed_here(const Items& items, size_t i) const {
    std::vector<const Item*> makers = {&items[i]};
    const auto feeds_one = [&](const Item& item) {
      return std::any_of(makers.begin(), makers.end(),
                         [&](const Item* maker) { return feeds(item, *maker); });
    };
    for (size_t p = i; p-- > 0 && i - p < kMostLookBack;) {
      if (!feeds_one(items[p])) continue;
      const bool starts = is_copy(items[p], MovePhase::kStart, true);
      if (!starts && !is_light(items[p]) && !is_copy(items[p], MovePhase::kDone, true)) return true;
      if (makers.size() == kMostRun) return true;
      if (!starts) makers.push_back(&items[p]);
    }
    // What an iteration leaves to the next.
    for (size_t j = i + 1; loop_ && j < items.size() && j - i < kMostLookBack; ++j)
      for (const Access& own : items[j].accesses)
        for (const Item* maker : makers)
          for (const Access& a : maker->accesses)
            if (own.write && !a.write && !ringable_.contains(a.buffer.index()) && meet(a, own, 1))
              return true;
    return false;
  }

  // ---- moving instructions ----

  // What comes back in just before a loop, having left there, and what waits for it, goes behind
  // the loop, where nothing in it waits for that: moves for the loop need not wait for it then.
  void postpone(Items& items) {
    for (size_t l = items.size(); l-- > 0;) {
      if (!items[l].instruction.loop()) continue;
      size_t begin = l;
      while (begin > 0 && items[begin - 1].instruction.kernel()) --begin;
      std::vector<bool> waits(l + 1);
      size_t n = 0;
      // Earlier accesses by buffer: a look at each pair of items would take minutes of a long list.
      std::map<size_t, std::vector<std::pair<size_t, const Access*>>> touched;
      for (size_t i = begin; i <= l; ++i) {
        for (const Access& own : items[i].accesses) {
          std::vector<std::pair<size_t, const Access*>>& others = touched[own.buffer.index()];
          for (size_t k = 0; k < others.size() && !waits[i]; ++k) {
            const auto& [j, other] = others[k];
            waits[i] = j < i && (own.write || other->write) &&
                       (waits[j] || starts_late(items[i], items[j])) && meet(*other, own, 0);
          }
          others.emplace_back(i, &own);
        }
        n += waits[i];
      }
      if (n == 0 || waits[l] || !costs_little(items, begin, waits)) continue;
      items.put_last(begin, l + 1, waits);
    }
  }
  // Of a move that may run far ahead and another that leaves its source.
  bool starts_late(const Item& item, const Item& before) const {
    const Kernel* k = item.instruction.kernel();
    return k && k->phase == MovePhase::kStart && is_inward(item.lane) &&
           item.stream != StreamKind::kCollective && ahead_of(*k) > kFewAhead &&
           before.stream != StreamKind::kCompute;
  }
  // Whether what is postponed keeps no more memory of the device than it brings there itself.
  bool costs_little(const Items& items, size_t begin,
                    const std::vector<bool>& waits) const {
    std::map<size_t, bool> read;  // what was there before; whether it came in here
    std::set<size_t> made, came;
    for (size_t i = begin; i < waits.size(); ++i)
      for (const Access& a : items[i].accesses) {
        const size_t b = a.buffer.index();
        if (a.write && is_inward(items[i].lane)) came.insert(b);
        if (a.write && waits[i]) made.insert(b);
        if (waits[i] && (came.contains(b) || !made.contains(b))) read.emplace(b, came.contains(b));
      }
    int64_t kept = 0;
    for (const auto& [b, is_staging] : read)
      if (const Buffer& other = schedule_.buffers[b];
          other.kind == MemoryKind::kDevice && other.role == BufferRole::kTemporary)
        kept += is_staging ? -other.bytes : other.bytes;
    return kept <= 0;
  }

  // Dones of what comes in go down to the first reader; starts of what goes out up to the writer.
  void settle(Items& items) {
    RingSlots none;
    for (size_t i = items.size(); i-- > 0;) {
      const Item& item = items[i];
      const Kernel* k = item.instruction.kernel();
      if (!k || k->phase != MovePhase::kDone || !is_inward(item.lane)) continue;
      size_t to = i;
      while (to + 1 < items.size() && !bound(item, items[to + 1], none)) ++to;
      if (to + 1 < items.size()) items.relocate(i, to);
    }
    for (size_t i = 0; i < items.size(); ++i) {
      const Item& item = items[i];
      const Kernel* k = item.instruction.kernel();
      if (!k || k->phase != MovePhase::kStart || is_inward(item.lane)) continue;
      size_t to = i;
      while (to > 0 && !bound(item, items[to - 1], none) &&
             !items[to - 1].move(item.lane, MovePhase::kStart) &&
             !has_moves(items[to - 1], item.lane))
        --to;
      if (to > 0) items.relocate(i, to);
    }
  }

  // Whether a start of what comes in must stay behind another instruction, or a done of what goes
  // out before it: moves of a stream keep their order, and at most so many are under way.
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

  // A start of what comes in, or a done of what goes out, of this many iterations' shift.
  static bool is_movable(const Item& item, bool in, int shift) {
    const Kernel* k = item.instruction.kernel();
    return k && k->phase == (in ? MovePhase::kStart : MovePhase::kDone) &&
           is_inward(item.lane) == in && item.shift == shift;
  }

  // The place that a start gets to up a list, or a done down it, from another place.
  size_t reach(Item& item, const Items& items, size_t at, RingSlots& rings) const {
    if (is_inward(item.lane))
      while (at > 0 && !stopped(item, items[at - 1], rings)) --at;
    else
      while (at + 1 < items.size() && !stopped(item, items[at + 1], rings)) ++at;
    return at;
  }

  // The body of a loop as one of its iterations sees it.
  Items& inside(Loop& loop, int64_t iteration) {
    Items& body = inside_[loop.id][iteration];
    if (body.empty())
      for (const Instruction& instruction : loop.body) {
        body.add({instruction});
        describe(body[body.size() - 1], &loop, iteration);
      }
    return body;
  }

  // A place in one of the iterations at an end of a loop.
  struct Entry {
    int64_t iteration = -1;
    size_t at = 0;
    bool overtakes = false;
    bool is_early = false;  // by an iteration or more
  };
  // How far a start gets into the last iterations of a loop that it cannot pass, a done into the
  // first ones.
  std::optional<Entry> entry(Item& item, Item& around, bool overtaking) {
    std::optional<Entry> found;
    Loop* const loop = around.instruction.loop();
    if (!loop || loop->trip_count <= 1) return found;
    const bool up = is_inward(item.lane);
    RingSlots none;
    bool overtakes = false, over_others = false;
    for (int64_t n = 0; n < std::min(loop->trip_count, kMostEntered); ++n) {
      const int64_t iteration = up ? loop->trip_count - 1 - n : n;
      const Items& body = inside(*loop, iteration);
      // Beyond: moves that entered before, and what does not run then.
      size_t passed = 0, beyond = 0;
      for (size_t at = 0; at < body.size(); ++at) {
        const Item& other = body[up ? body.size() - 1 - at : at];
        const bool idle = !other.instruction.guard.holds(iteration);
        const bool entered =
            overtaking && other.instruction.guard.is_only(iteration) && may_overtake(item, other);
        over_others = over_others || entered;
        if (entered || (idle && over_others)) {
          ++beyond;
          continue;
        }
        if (!idle && stopped(item, other, none)) break;
        overtakes = overtakes || over_others;
        passed = at + 1;
        beyond = 0;
        over_others = false;
      }
      if (passed > 0) found = {iteration, up ? body.size() - passed : passed, overtakes, n > 0};
      if (passed + beyond < body.size()) break;
    }
    return found;
  }
  void enter(Item& item, Item& around, const Entry& entry) {
    Loop& loop = *around.instruction.loop();
    item.instruction.guard = {entry.iteration, entry.iteration + 1};
    loop.body.insert(loop.body.begin() + static_cast<std::ptrdiff_t>(entry.at), item.instruction);
    around.accesses.append(item.accesses);
    around.moves[item.lane] = true;
    for (auto& [iteration, body] : inside_[loop.id]) body.insert(entry.at, item);
  }

  // Past starts of the same stream that something holds which does not hold this one: what they
  // wait for would keep the stream idle. Where that leads from `at`, or `at`.
  size_t overtake(Item& item, Items& items, size_t at, RingSlots& rings) {
    size_t above = at;
    while (above > 0 && may_overtake(item, items[above - 1])) --above;
    if (above == at || above == 0) return at;
    if (const size_t to = reach(item, items, above, rings); to < above) return to;
    const int passed = item.passed;
    const bool enters = entry(item, items[above - 1], true).has_value();
    item.passed = passed;
    return enters ? above : at;
  }
  bool may_overtake(const Item& item, const Item& other) const {
    const Kernel& own = *item.instruction.kernel();
    const Kernel* k = other.move(item.lane, own.phase);
    if (!k || k->transfer == own.transfer) return false;
    const Access &from = item.accesses[0], &to = item.accesses[1];
    return std::none_of(other.accesses.begin(), other.accesses.end(), [&](const Access& a) {
      return meet(to, a, 0) || (a.write && meet(from, a, 0));
    });
  }

  // Where a start gets to up the list.
  struct Place {
    size_t at = 0;
    std::optional<Entry> entry;  // into the loop before `at`
    RingSlots rings;
    bool overtakes = false;
    bool is_early = false;  // by a loop, or one of its iterations
  };
  Place place_of(Items& items, size_t i, bool overtaking) {
    Item& item = items[i];
    item.passed = 0;
    Place place;
    const size_t behind = reach(item, items, i, place.rings);
    place.at = behind;
    for (size_t at = items.size(); overtaking && place.at > 0 && place.at != at;) {
      at = place.at;
      place.at = overtake(item, items, at, place.rings);
    }
    if (place.at > 0) place.entry = entry(item, items[place.at - 1], overtaking);
    place.overtakes = place.at < behind || (place.entry && place.entry->overtakes);
    // From the top of a loop's own list it goes on below.
    place.is_early = (place.at == 0 && loop_) || (place.entry && place.entry->is_early);
    for (size_t k = place.at; k < behind; ++k)
      place.is_early = place.is_early || items[k].instruction.loop();
    return place;
  }

  // False where the start is no longer here.
  bool hoist(Items& items, size_t i) {
    Place place = place_of(items, i, true);
    if (place.overtakes) {
      const auto bytes = place.is_early ? &OvertakingBytes::early : &OvertakingBytes::late;
      if (overtook_.*bytes < most_may_.*bytes) {
        overtook_.*bytes += buffer(items[i].accesses[1].buffer).slot_bytes;
        most_overtook_.*bytes = std::max(most_overtook_.*bytes, overtook_.*bytes);
      } else {
        place = place_of(items, i, false);
      }
    }
    merge(place.rings);
    if (place.entry) {
      enter(items[i], items[place.at - 1], *place.entry);
      items.erase(i);
      return false;
    }
    if (place.at == 0 && wrap(items, i, 1)) return false;
    items.relocate(i, place.at);
    return true;
  }

  void hoist_starts(Items& items) {
    inside_.clear();
    overtook_ = {};
    for (size_t i = 0; i < items.size();) {
      const bool movable = is_movable(items[i], true, 0);
      if (movable && items[i].stream == StreamKind::kCollective) {
        if (const size_t n = join_preparation(items, i); n > 1) {
          i = hoist_run(items, i + 1 - n, n);
          continue;
        }
      }
      if (!movable || hoist(items, i)) ++i;
    }
    // Each makes room for the other: a run stands behind the starts of its copies.
    for (int round = 0; loop_ && round < 2; ++round) {
      hoist_runs_again(items);
      restart_copies(items);
    }
    // What stopped there at the start of another goes on where that has gone since, and further
    // iterations ahead. In a ring of two it would take the time of what leaves the same slot.
    for (bool again = true; again;) {
      again = false;
      for (size_t i = 0; i < items.size(); ++i) {
        const int shift = items[i].shift;
        if (shift < 1 || !is_movable(items[i], true, shift) || most_slots(items[i]) == 2) continue;
        const size_t to = reach(items[i], items, i, rings_);
        items.relocate(i, to);
        if (to == 0 && shift + 2 < most_slots(items[0])) again |= wrap(items, 0, shift + 1);
      }
    }
  }
  // On from the top of the list into the iteration before.
  bool wrap(Items& items, size_t i, int shift) {
    Item& item = items[i];
    if (!loop_ || loop_->trip_count <= shift || !shiftable(item)) return false;
    const int before = std::exchange(item.shift, shift);
    RingSlots rings;
    size_t end = items.size();
    while (end > i + 1 && !stopped(item, items[end - 1], rings)) --end;
    if (end == items.size()) {
      item.shift = before;
      return false;
    }
    merge(rings);
    items.relocate(i, end - 1);
    return true;
  }

  void sink_dones(Items& items) {
    inside_.clear();
    for (size_t n = items.size(); n-- > 0;) {
      const size_t i = n;
      Item& item = items[i];
      if (!is_movable(item, false, 0)) continue;
      if (size_t length = 0; item.lane == kReduced && sink_run(items, i, length)) {
        n += length;  // what was before it now stands so much further
        continue;
      }
      RingSlots rings;
      const size_t to = reach(item, items, i, rings);
      merge(rings);
      if (to + 1 < items.size()) {
        if (const std::optional<Entry> found = entry(item, items[to + 1], true)) {
          enter(item, items[to + 1], *found);
          items.erase(i);
          continue;
        }
      }
      if (to + 1 < items.size() || !loop_ || !shiftable(item)) {
        items.relocate(i, to);
        continue;
      }
      item.shift = -1;
      size_t begin = 0;
      while (begin < i && !stopped(item, items[begin], rings)) ++begin;
      if (begin == 0) {
        item.shift = 0;
        items.relocate(i, items.size() - 1);
        continue;
      }
      merge(rings);
      items.relocate(i, begin);
      ++n;  // what was before it now stands here
    }
    std::set<int> started_late;  // transfers whose start is in the iteration after
    for (const Item& item : items)
      if (const Kernel* k = item.instruction.kernel();
          k && k->phase == MovePhase::kStart && item.shift < 0)
        started_late.insert(k->transfer);
    for (size_t i = items.size(); i-- > 0;) {
      if (!is_movable(items[i], false, -1)) continue;
      if (most_slots(items[i]) == 2 &&
          !started_late.contains(items[i].instruction.kernel()->transfer))
        continue;
      items.relocate(i, reach(items[i], items, i, rings_));
    }
  }

  // ---- runs: a collective with what prepares its operand, or with what reads its result ----
  //
  // Items [first, first + n) of a list that change places together. A collective of a shard that comes
  // from the host, or is converted, can start no earlier than that ends; what reads a reduced gradient
  // would wait for it in the same iteration.

  static constexpr size_t kMostRun = 16;       // items of a run
  static constexpr size_t kMostLookBack = 256;  // items between a run and what may join it

  // An elementwise kernel of every iteration.
  static bool is_light(const Item& item) {
    const Kernel* k = item.instruction.kernel();
    return k && item.shift == 0 && item.instruction.guard == Guard{} &&
           k->kind == KernelKind::kRows;
  }
  bool is_copy(const Item& item, MovePhase phase, bool in) const {
    const Kernel* k = item.instruction.kernel();
    return k && k->phase == phase && item.shift == 0 && item.instruction.guard == Guard{} &&
           item.stream != StreamKind::kCollective && is_inward(item.lane) == in;
  }

  static bool is_start_of_sum(const Item& item) {
    return item.move(kReduced, MovePhase::kStart) && item.shift == 0 &&
           item.instruction.guard == Guard{};
  }

  // Whether one of a run must keep its place towards another instruction.
  bool run_is_bound(const Items& items, size_t first, size_t n, const Item& other, int most,
                    RingSlots& needed) const {
    const Kernel* k = other.instruction.kernel();
    for (size_t m = first; m < first + n; ++m) {
      const Item& item = items[m];
      const Kernel& own = *item.instruction.kernel();
      const bool is_pair = k && k->phase != own.phase && own.phase != MovePhase::kWhole &&
                           k->phase != MovePhase::kWhole && k->transfer == own.transfer;
      if (is_pair) {
        const int lead = other.shift - item.shift;  // the other's, in iterations
        if (own.phase == MovePhase::kDone ? lead <= 0 : lead >= 0) return true;
      } else if (!runs_in_order(item, other) &&
                 meets(item, other, most, [](BufferId) { return true; }, needed)) {
        return true;
      }
    }
    return false;
  }
  // As stopped(), of a run whose collective is `main`.
  bool run_is_stopped(Items& items, size_t first, size_t n, size_t main, const Item& other,
                      RingSlots& rings) const {
    return stopped_by(items[main], other, [&] {
      return run_is_bound(items, first, n, other, most_slots(items[main]), rings);
    });
  }
  bool all_shiftable(const Items& items, size_t first, size_t n) const {
    for (size_t m = first; m < first + n; ++m)
      if (!shiftable(items[m])) return false;
    return true;
  }
  static void set_shift(Items& items, size_t first, size_t n, int shift) {
    for (size_t m = first; m < first + n; ++m) items[m].shift = shift;
  }

  // Puts what prepares the operand of a collective's start right before it: light kernels, and dones
  // of copies. Returns the length of the run that ends at `i`.
  size_t join_preparation(Items& items, size_t i) {
    size_t n = 1;
    const int most = most_slots(items[i]);
    for (size_t p = i; p-- > 0 && i - p < kMostLookBack && n < kMostRun;) {
      const size_t first = i + 1 - n;
      if (!feeds(items[p], items, first, n)) continue;
      if (!is_light(items[p]) && !is_copy(items[p], MovePhase::kDone, true)) break;
      RingSlots rings;
      bool can_join = true;
      for (size_t between = p + 1; between < first && can_join; ++between)
        can_join = !run_is_bound(items, p, 1, items[between], most, rings);
      if (!can_join) break;
      merge(rings);
      items.relocate(p, first - 1);
      ++n;
    }
    return n;
  }
  // Whether an item writes what another one, or one of a run, reads.
  bool feeds(const Item& item, const Item& other) const {
    for (const Access& own : item.accesses)
      for (const Access& a : other.accesses)
        if (own.write && !a.write && meet(own, a, item.shift - other.shift)) return true;
    return false;
  }
  bool feeds(const Item& item, const Items& items, size_t first, size_t n) const {
    for (size_t m = first; m < first + n; ++m)
      if (feeds(item, items[m])) return true;
    return false;
  }

  // A run goes up the list, or on into the iteration before. Returns where the list goes on.
  size_t hoist_run(Items& items, size_t first, size_t n) {
    const size_t main = first + n - 1;
    RingSlots rings;
    items[main].passed = 0;
    size_t at = first;
    while (at > 0 && !run_is_stopped(items, first, n, main, items[at - 1], rings)) --at;
    merge(rings);
    if (at == 0 && loop_ && loop_->trip_count > 1 && all_shiftable(items, first, n)) {
      set_shift(items, first, n, 1);
      RingSlots wrapped;
      size_t end = items.size();
      while (end > first + n && !run_is_stopped(items, first, n, main, items[end - 1], wrapped))
        --end;
      if (end < items.size()) {
        merge(wrapped);
        for (size_t m = 0; m < n; ++m) items.relocate(first, end - 1);
        return first;
      }
      set_shift(items, first, n, 0);
    }
    for (size_t m = 0; m < n; ++m) items.relocate(first + m, at + m);
    return first + n;
  }

  // What stopped in the iteration before at the start of another collective goes on where that has gone
  // further up since.
  void hoist_runs_again(Items& items) {
    for (size_t i = 0; i < items.size(); ++i) {
      if (items[i].stream != StreamKind::kCollective || !is_movable(items[i], true, 1)) continue;
      size_t n = 1;
      while (n <= i && n < kMostRun && items[i - n].shift == 1 && feeds(items[i - n], items, i + 1 - n, n))
        ++n;
      const size_t first = i + 1 - n;
      size_t at = first;
      while (at > 0 && !run_is_stopped(items, first, n, i, items[at - 1], rings_)) --at;
      for (size_t m = 0; m < n; ++m) items.relocate(first + m, at + m);
    }
  }

  // Copies whose dones went into the iteration before start an iteration ahead of those again.
  void restart_copies(Items& items) {
    std::map<int, int> awaited;  // shifts of dones, by transfer
    for (const Item& item : items)
      if (const Kernel* k = item.instruction.kernel(); k && k->phase == MovePhase::kDone)
        awaited[k->transfer] = item.shift;
    for (size_t i = 0; i < items.size(); ++i) {
      if (items[i].stream == StreamKind::kCollective || !is_movable(items[i], true, 1)) continue;
      const auto done = awaited.find(items[i].instruction.kernel()->transfer);
      if (done == awaited.end() || done->second != 1) continue;
      items[i].passed = 0;
      const size_t to = reach(items[i], items, i, rings_);
      items.relocate(i, to);
      if (to == 0) wrap(items, 0, 2);
    }
  }

  // A reduced gradient is awaited in the iteration after, with the light kernels that read it and the
  // starts of copies and sums of what they make, as of a norm. False if that cannot be; the list is then as it was. `n` is the length of
  // the run.
  bool sink_run(Items& items, size_t i, size_t& n) {
    if (!loop_) return false;
    Item& main = items[i];
    const int most = most_slots(main);
    // The order that the items behind get: those passed, then the run.
    std::vector<size_t> run = {i};
    RingSlots rings;
    main.passed = 0;
    for (size_t j = i + 1; j < items.size(); ++j) {
      const Item& other = items[j];
      if (other.move(main.lane, MovePhase::kDone) || has_moves(other, main.lane)) return false;
      const bool counts = other.move(main.lane, MovePhase::kStart);
      if (counts && main.passed + 1 >= ahead_of(*main.instruction.kernel())) return false;
      const bool is_bound = std::any_of(run.begin(), run.end(), [&](size_t m) {
        return run_is_bound(items, m, 1, other, most, rings);
      });
      if (!is_bound) {
        main.passed += counts;
      } else if ((is_light(other) || is_start_of_sum(other) ||
                  is_copy(other, MovePhase::kStart, false)) &&
                 run.size() < kMostRun) {
        run.push_back(j);
      } else {
        return false;
      }
    }
    n = run.size();
    const size_t first = items.size() - n;
    std::vector<bool> joins(items.size(), false);
    for (size_t m : run) joins[m] = true;
    if (!std::all_of(run.begin(), run.end(), [&](size_t m) { return shiftable(items[m]); }))
      return false;
    for (size_t m : run) items[m].shift = -1;
    size_t begin = 0;
    const auto is_stopped = [&](const Item& other) {
      return std::any_of(run.begin(), run.end(), [&](size_t m) {
        return m == i ? run_is_stopped(items, m, 1, i, other, rings)
                      : run_is_bound(items, m, 1, other, most, rings);
      });
    };
    while (begin < i && !is_stopped(items[begin])) ++begin;
    if (begin == 0) {
      for (size_t m : run) items[m].shift = 0;
      return false;
    }
    merge(rings);
    items.put_last(i, items.size(), joins);
    for (size_t m = 0; m < n; ++m) items.relocate(first + m, begin + m);
    return true;
  }

  // Windows of which the next iteration's can be told: those with one term of the loop at most.
  bool shiftable(const Item& item) const {
    for (const Access& a : item.accesses) {
      const auto n = std::count_if(a.terms.begin(), a.terms.end(),
                                   [&](const LoopTerm& t) { return t.loop == loop_->id; });
      if (n > 1) return false;
    }
    return true;
  }

  // ---- the list as it will run ----

  // A slot that the loop fills bit by bit begins with the first bit, which is written ahead of it.
  void begin_no_bits(View& view) const {
    for (const LoopTerm& term : view.terms)
      if (term.loop == loop_->id && std::abs(term.step * term.stride_bytes) <
                                        schedule_.buffers[view.buffer.index()].slot_bytes)
        view.begins = false;
  }

  void write(Items& items, int64_t trips, Instructions& list, Instructions& before,
             Instructions& after) {
    if (loop_) {
      for (const Item& item : items)
        if (item.shift != 0)
          for (const Access& a : item.accesses)
            if (has_slot_per_iteration(a.buffer)) rings_.try_emplace(a.buffer.index(), 2);
      std::vector<Instruction*> list;
      for (Item& item : items) list.push_back(&item.instruction);
      for (const auto& [b, slots] : rings_) make_ring(schedule_, list, *loop_, BufferId(b), slots);
    }
    // What is started ahead of the first iterations, as in iterations before them, and what is
    // awaited behind the last. Starts for one iteration stand before those for the next: a stream
    // keeps the order that it is given them in.
    const auto put = [&](Instructions& to, int64_t iteration, int shift) {
      for (const Item& item : items) {
        if (item.shift != shift) continue;
        to.push_back(item.instruction);
        for_each_view(to.back(), [&](View& view, bool) {
          if (iteration > 0) begin_no_bits(view);
          fix_iteration(view, loop_->id, iteration);
        });
      }
    };
    int most = 0;
    for (const Item& item : items) most = std::max(most, item.shift);
    for (int64_t iteration = 0; iteration < std::min<int64_t>(most, trips); ++iteration)
      for (int shift = most; shift > iteration; --shift) put(before, iteration, shift);
    put(after, trips - 1, -1);
    list.clear();
    for (Item& item : items) {
      Instruction& instruction = item.instruction;
      if (item.shift != 0) {
        for_each_view(instruction, [&](View& view, bool) {
          if (item.shift > 0) begin_no_bits(view);
          for (LoopTerm& term : view.terms)
            if (term.loop == loop_->id) term.start += term.step * item.shift;
        });
        if (item.shift > 0)
          instruction.guard.end = trips - item.shift;
        else
          instruction.guard.begin = -item.shift;
      }
      list.push_back(std::move(instruction));
    }
  }

  const NumberedMoves& numbered_;
  Schedule schedule_;
  const std::vector<int>& ahead_;
  const OvertakingBytes most_may_;
  OvertakingBytes overtook_, most_overtook_;  // in this list, and in any
  mutable int64_t work_ = 0;
  size_t n_seen_ = 0;               // kernels of the schedule, in order
  const Loop* loop_ = nullptr;      // around the list being worked on, where it can be wrapped
  std::set<size_t> ringable_;
  RingSlots rings_;
  // Iterations of loops that moves may enter.
  std::map<LoopId, std::map<int64_t, Items>> inside_;
};

}  // namespace

size_t count_moves(const Schedule& schedule) {
  size_t n = 0;
  for_each_kernel(schedule.instructions,
                  [&](const Kernel& kernel) { n += is_move(kernel, schedule.buffers); });
  return n;
}

Overlapped overlap_transfers(const Schedule& schedule, const std::vector<int>& ahead,
                             const OvertakingBytes& may_overtake) {
  return TransferTrials(schedule).run(ahead, may_overtake);
}

TransferTrials::TransferTrials(const Schedule& schedule)
    : numbered_(std::make_unique<const NumberedMoves>(schedule)) {}
TransferTrials::TransferTrials(TransferTrials&&) noexcept = default;
TransferTrials::~TransferTrials() = default;
Overlapped TransferTrials::run(const std::vector<int>& ahead, const OvertakingBytes& may_overtake,
                               Schedule memory) const {
  return Overlapper(*numbered_, ahead, may_overtake, std::move(memory)).run();
}

}  // namespace stow
