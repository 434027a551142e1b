#include "stowage/passes/overlapper.h"

#include <algorithm>
#include <limits>

namespace stow {

namespace {

// Most iterations of a loop that moves from after it, or from before it, may enter.
constexpr int64_t kMostEntered = 12;

}  // namespace

void Overlapper::postpone(Items& items) {
  for (size_t l = items.size(); l-- > 0;) {
    if (!items[l].instruction.loop()) continue;
    size_t begin = l;
    while (begin > 0 && items[begin - 1].instruction.kernel()) --begin;
    std::vector<bool> waits(l + 1);
    size_t n = 0;
    // Earlier accesses by buffer: comparing each pair of items would take minutes for a long list.
    std::map<size_t, std::vector<std::pair<size_t, const Access*>>> touched;
    for (size_t i = begin; i <= l; ++i) {
      for (const Access& own : items[i].accesses) {
        std::vector<std::pair<size_t, const Access*>>& others = touched[own.buffer.index()];
        for (size_t k = 0; k < others.size() && !waits[i]; ++k) {
          const auto& [j, other] = others[k];
          waits[i] = j < i && (own.write || other->write) &&
                     (waits[j] || starts_late(items[i], items[j])) && aliases(*other, own, 0);
        }
        others.emplace_back(i, &own);
      }
      n += waits[i];
    }
    if (n == 0 || waits[l] || !costs_little(items, begin, waits)) continue;
    items.move_to_end(begin, l + 1, waits);
  }
}

bool Overlapper::starts_late(const Item& item, const Item& before) const {
  const Kernel* k = item.instruction.kernel();
  return k && k->phase == MovePhase::kStart && is_inward(item.lane) &&
         item.stream != StreamKind::kCollective && ahead_of(*k) > kFewAhead &&
         before.stream != StreamKind::kCompute;
}

bool Overlapper::costs_little(const Items& items, size_t begin,
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

void Overlapper::tighten_moves(Items& items) {
  RingSlots none;
  for (size_t i = items.size(); i-- > 0;) {
    const Item& item = items[i];
    const Kernel* k = item.instruction.kernel();
    if (!k || k->phase != MovePhase::kDone || !is_inward(item.lane)) continue;
    size_t to = i;
    while (to + 1 < items.size() && !must_keep_order(item, items[to + 1], none)) ++to;
    if (to + 1 < items.size()) items.relocate(i, to);
  }
  for (size_t i = 0; i < items.size(); ++i) {
    const Item& item = items[i];
    const Kernel* k = item.instruction.kernel();
    if (!k || k->phase != MovePhase::kStart || is_inward(item.lane)) continue;
    size_t to = i;
    while (to > 0 && !must_keep_order(item, items[to - 1], none) &&
           !items[to - 1].move(item.lane, MovePhase::kStart) &&
           !has_moves(items[to - 1], item.lane))
      --to;
    if (to > 0) items.relocate(i, to);
  }
}

bool Overlapper::is_movable(const Item& item, bool in, int shift) {
  const Kernel* k = item.instruction.kernel();
  return k && k->phase == (in ? MovePhase::kStart : MovePhase::kDone) &&
         is_inward(item.lane) == in && item.shift == shift;
}

size_t Overlapper::reach(Item& item, const Items& items, size_t at, RingSlots& rings) const {
  if (is_inward(item.lane))
    while (at > 0 && !is_blocked(item, items[at - 1], rings)) --at;
  else
    while (at + 1 < items.size() && !is_blocked(item, items[at + 1], rings)) ++at;
  return at;
}

Items& Overlapper::inside(Loop& loop, int64_t iteration) {
  Items& body = inside_[loop.id][iteration];
  if (body.empty())
    for (const Instruction& instruction : loop.body) {
      body.add({instruction});
      describe(body[body.size() - 1], &loop, iteration);
    }
  return body;
}

std::optional<Overlapper::Entry> Overlapper::entry(Item& item, Item& around, bool overtaking) {
  std::optional<Entry> found;
  Loop* const loop = around.instruction.loop();
  if (!loop || loop->trip_count <= 1) return found;
  const bool up = is_inward(item.lane);
  RingSlots none;
  bool overtakes = false, over_others = false;
  for (int64_t n = 0; n < std::min(loop->trip_count, kMostEntered); ++n) {
    const int64_t iteration = up ? loop->trip_count - 1 - n : n;
    const Items& body = inside(*loop, iteration);
    // `beyond` counts moves that entered before, and items that do not run in the iteration.
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
      if (!idle && is_blocked(item, other, none)) break;
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

void Overlapper::enter(Item& item, Item& around, const Entry& entry) {
  Loop& loop = *around.instruction.loop();
  item.instruction.guard = {entry.iteration, entry.iteration + 1};
  loop.body.insert(loop.body.begin() + static_cast<std::ptrdiff_t>(entry.at), item.instruction);
  around.accesses.append(item.accesses);
  around.moves[item.lane] = true;
  for (auto& [iteration, body] : inside_[loop.id]) body.insert(entry.at, item);
}

size_t Overlapper::overtake(Item& item, Items& items, size_t at, RingSlots& rings) {
  size_t above = at;
  while (above > 0 && may_overtake(item, items[above - 1])) --above;
  if (above == at || above == 0) return at;
  if (const size_t to = reach(item, items, above, rings); to < above) return to;
  const int n_in_flight = item.n_in_flight;
  const bool enters = entry(item, items[above - 1], true).has_value();
  item.n_in_flight = n_in_flight;
  return enters ? above : at;
}

bool Overlapper::may_overtake(const Item& item, const Item& other) const {
  const Kernel& own = *item.instruction.kernel();
  const Kernel* k = other.move(item.lane, own.phase);
  if (!k || k->transfer == own.transfer) return false;
  const Access &from = item.accesses[0], &to = item.accesses[1];
  return std::none_of(other.accesses.begin(), other.accesses.end(), [&](const Access& a) {
    return aliases(to, a, 0) || (a.write && aliases(from, a, 0));
  });
}

Overlapper::Place Overlapper::place_of(Items& items, size_t i, bool overtaking) {
  Item& item = items[i];
  item.n_in_flight = 0;
  Place place;
  const size_t behind = reach(item, items, i, place.rings);
  place.at = behind;
  for (size_t at = items.size(); overtaking && place.at > 0 && place.at != at;) {
    at = place.at;
    place.at = overtake(item, items, at, place.rings);
  }
  if (place.at > 0) place.entry = entry(item, items[place.at - 1], overtaking);
  place.overtakes = place.at < behind || (place.entry && place.entry->overtakes);
  // From the top of a loop's own list, the move continues below.
  place.is_early = (place.at == 0 && loop_) || (place.entry && place.entry->is_early);
  for (size_t k = place.at; k < behind; ++k)
    place.is_early = place.is_early || items[k].instruction.loop();
  return place;
}

bool Overlapper::hoist(Items& items, size_t i) {
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

void Overlapper::hoist_starts(Items& items) {
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
  // Each of the two makes room for the other: a run stands behind the starts of its copies.
  for (int round = 0; loop_ && round < 2; ++round) {
    hoist_runs_again(items);
    restart_copies(items);
  }
  // A start that stopped at another start moves on if that one has moved since, and further
  // iterations ahead. In a ring of two slots it would delay the move that leaves the same slot.
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

bool Overlapper::wrap(Items& items, size_t i, int shift) {
  Item& item = items[i];
  if (!loop_ || loop_->trip_count <= shift || !shiftable(item)) return false;
  const int before = std::exchange(item.shift, shift);
  RingSlots rings;
  size_t end = items.size();
  while (end > i + 1 && !is_blocked(item, items[end - 1], rings)) --end;
  if (end == items.size()) {
    item.shift = before;
    return false;
  }
  merge(rings);
  items.relocate(i, end - 1);
  return true;
}

void Overlapper::sink_dones(Items& items) {
  inside_.clear();
  for (size_t n = items.size(); n-- > 0;) {
    const size_t i = n;
    Item& item = items[i];
    if (!is_movable(item, false, 0)) continue;
    if (size_t length = 0; item.lane == kReduced && sink_run(items, i, length)) {
      n += length;  // the items before it now stand `length` further
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
    while (begin < i && !is_blocked(item, items[begin], rings)) ++begin;
    if (begin == 0) {
      item.shift = 0;
      items.relocate(i, items.size() - 1);
      continue;
    }
    merge(rings);
    items.relocate(i, begin);
    ++n;  // the item before it now stands here
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

}  // namespace stow
