#include "stowage/passes/transfers.h"

#include <algorithm>
#include <memory>

#include "stowage/base/error.h"
#include "stowage/passes/overlapper.h"

namespace stow {

Overlapped Overlapper::run() {
  STOW_CHECK(numbered_.starts.size() == ahead_.size(), "one number a move");
  std::map<StreamKind, BufferId> shared;
  for (Instruction& instruction : schedule_.instructions)
    own_bodies(instruction, [&](Instruction& kernel) { share_scratch(kernel, shared); });
  Instructions before, after;
  process(schedule_.instructions, nullptr, before, after);
  return {std::move(schedule_), most_overtook_, work_};
}

bool Overlapper::is_cut(const Kernel& kernel, const NumberedMoves::Described& described) const {
  return kernel.phase == MovePhase::kWhole && described.stream != StreamKind::kCompute &&
         ahead_of(kernel) > 0;
}

void Overlapper::share_scratch(Instruction& move, std::map<StreamKind, BufferId>& shared) {
  const Kernel& kernel = *move.kernel();
  if (!kernel.scratch.valid() || !is_cut(kernel)) return;
  const auto [it, fresh] = shared.try_emplace(stream_of(kernel, schedule_.buffers), kernel.scratch);
  Buffer& bounce = buffer(it->second);
  bounce.loop_dims.clear();
  if (fresh || kernel.scratch == it->second) return;
  Buffer& own = buffer(kernel.scratch);
  bounce.bytes = bounce.slot_bytes = std::max(bounce.bytes, own.bytes);
  own.bytes = own.slot_bytes = 0;
  move.edit_kernel()->scratch = it->second;
}

void Overlapper::process(Instructions& list, const Loop* loop, Instructions& before,
                         Instructions& after) {
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
        const NumberedMoves::Described& known = numbered_.described.at(half.kernel());
        half.guard = instruction.guard;
        if (half.kernel()->scratch != whole.scratch) half.edit_kernel()->scratch = whole.scratch;
        add(items, std::move(half), known);
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
  tighten_moves(items);
  hoist_starts(items);
  sink_dones(items);
  write(items, loop ? loop->trip_count : 1, list, before, after);
}

void Overlapper::add(Items& items, Instruction instruction,
                     const NumberedMoves::Described& described) {
  Item item;
  item.instruction = std::move(instruction);
  describe(item, described);
  items.add(std::move(item));
}

void Overlapper::describe(Item& item, const NumberedMoves::Described& described) {
  item.stream = described.stream;
  item.lane = described.lane;
  item.accesses = Accesses(described.accesses);
}

void Overlapper::add(Items& items, Instruction instruction) {
  Item item;
  item.instruction = std::move(instruction);
  describe(item);
  items.add(std::move(item));
}

void Overlapper::describe(Item& item, const Loop* in, int64_t iteration) {
  item.moves = {};
  if (const Kernel* kernel = item.instruction.kernel()) {
    if (const auto known = numbered_.described.find(kernel);
        known != numbered_.described.end() && !in) {
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

void Overlapper::collect_loops(Instruction& instruction, std::set<LoopId>& loops) {
  if (Loop* loop = instruction.loop()) {
    loops.insert(loop->id);
    for (Instruction& i : loop->body) collect_loops(i, loops);
    for (Instruction& i : loop->condition) collect_loops(i, loops);
  } else if (instruction.branch()) {
    for (Instructions& alternative : branch_of(instruction).alternatives)
      for (Instruction& i : alternative) collect_loops(i, loops);
  }
}

void Overlapper::clear_partial_begins(View& view) const {
  for (const LoopTerm& term : view.terms)
    if (term.loop == loop_->id &&
        std::abs(term.step * term.stride_bytes) < schedule_.buffers[view.buffer.index()].slot_bytes)
      view.begins_lifetime = false;
}

void Overlapper::write(Items& items, int64_t trips, Instructions& list, Instructions& before,
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
  // Puts starts before the first iterations, as in iterations before them, and dones behind the
  // last. Starts for one iteration stand before those for the next, since a stream keeps their
  // order.
  const auto put = [&](Instructions& to, int64_t iteration, int shift) {
    for (const Item& item : items) {
      if (item.shift != shift) continue;
      to.push_back(item.instruction);
      for_each_view(to.back(), [&](View& view, bool) {
        if (iteration > 0) clear_partial_begins(view);
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
        if (item.shift > 0) clear_partial_begins(view);
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
