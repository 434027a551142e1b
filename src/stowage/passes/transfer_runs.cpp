#include "stowage/passes/overlapper.h"

#include <algorithm>

namespace stow {

bool Overlapper::is_light(const Item& item) {
  const Kernel* k = item.instruction.kernel();
  return k && item.shift == 0 && item.instruction.guard == Guard{} && k->kind == KernelKind::kRows;
}

bool Overlapper::is_copy(const Item& item, MovePhase phase, bool in) const {
  const Kernel* k = item.instruction.kernel();
  return k && k->phase == phase && item.shift == 0 && item.instruction.guard == Guard{} &&
         item.stream != StreamKind::kCollective && is_inward(item.lane) == in;
}

bool Overlapper::is_start_of_sum(const Item& item) {
  return item.move(kReduced, MovePhase::kStart) && item.shift == 0 &&
         item.instruction.guard == Guard{};
}

bool Overlapper::run_must_keep_order(const Items& items, size_t first, size_t n, const Item& other,
                                     int most, RingSlots& needed) const {
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
               conflicts(
                   item, other, most, [](BufferId) { return true; }, needed)) {
      return true;
    }
  }
  return false;
}

bool Overlapper::run_is_blocked(Items& items, size_t first, size_t n, size_t main,
                                const Item& other, RingSlots& rings) const {
  return is_blocked_by(items[main], other, [&] {
    return run_must_keep_order(items, first, n, other, most_slots(items[main]), rings);
  });
}

bool Overlapper::all_shiftable(const Items& items, size_t first, size_t n) const {
  for (size_t m = first; m < first + n; ++m)
    if (!shiftable(items[m])) return false;
  return true;
}

size_t Overlapper::join_preparation(Items& items, size_t i) {
  size_t n = 1;
  const int most = most_slots(items[i]);
  for (size_t p = i; p-- > 0 && i - p < kMostLookBack && n < kMostRun;) {
    const size_t first = i + 1 - n;
    if (!feeds(items[p], items, first, n)) continue;
    if (!is_light(items[p]) && !is_copy(items[p], MovePhase::kDone, true)) break;
    RingSlots rings;
    bool can_join = true;
    for (size_t between = p + 1; between < first && can_join; ++between)
      can_join = !run_must_keep_order(items, p, 1, items[between], most, rings);
    if (!can_join) break;
    merge(rings);
    items.relocate(p, first - 1);
    ++n;
  }
  return n;
}

bool Overlapper::feeds(const Item& item, const Item& other) const {
  for (const Access& own : item.accesses)
    for (const Access& a : other.accesses)
      if (own.write && !a.write && aliases(own, a, item.shift - other.shift)) return true;
  return false;
}

bool Overlapper::feeds(const Item& item, const Items& items, size_t first, size_t n) const {
  for (size_t m = first; m < first + n; ++m)
    if (feeds(item, items[m])) return true;
  return false;
}

size_t Overlapper::hoist_run(Items& items, size_t first, size_t n) {
  const size_t main = first + n - 1;
  RingSlots rings;
  items[main].n_in_flight = 0;
  size_t at = first;
  while (at > 0 && !run_is_blocked(items, first, n, main, items[at - 1], rings)) --at;
  merge(rings);
  if (at == 0 && loop_ && loop_->trip_count > 1 && all_shiftable(items, first, n)) {
    set_shift(items, first, n, 1);
    RingSlots wrapped;
    size_t end = items.size();
    while (end > first + n && !run_is_blocked(items, first, n, main, items[end - 1], wrapped))
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

void Overlapper::hoist_runs_again(Items& items) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (items[i].stream != StreamKind::kCollective || !is_movable(items[i], true, 1)) continue;
    size_t n = 1;
    while (n <= i && n < kMostRun && items[i - n].shift == 1 &&
           feeds(items[i - n], items, i + 1 - n, n))
      ++n;
    const size_t first = i + 1 - n;
    size_t at = first;
    while (at > 0 && !run_is_blocked(items, first, n, i, items[at - 1], rings_)) --at;
    for (size_t m = 0; m < n; ++m) items.relocate(first + m, at + m);
  }
}

void Overlapper::restart_copies(Items& items) {
  std::map<int, int> awaited;  // shifts of dones, by transfer
  for (const Item& item : items)
    if (const Kernel* k = item.instruction.kernel(); k && k->phase == MovePhase::kDone)
      awaited[k->transfer] = item.shift;
  for (size_t i = 0; i < items.size(); ++i) {
    if (items[i].stream == StreamKind::kCollective || !is_movable(items[i], true, 1)) continue;
    const auto done = awaited.find(items[i].instruction.kernel()->transfer);
    if (done == awaited.end() || done->second != 1) continue;
    items[i].n_in_flight = 0;
    const size_t to = reach(items[i], items, i, rings_);
    items.relocate(i, to);
    if (to == 0) wrap(items, 0, 2);
  }
}

bool Overlapper::sink_run(Items& items, size_t i, size_t& n) {
  if (!loop_) return false;
  Item& main = items[i];
  const int most = most_slots(main);
  // The final order of the items from i on: first those that are passed, then the run.
  std::vector<size_t> run = {i};
  RingSlots rings;
  main.n_in_flight = 0;
  for (size_t j = i + 1; j < items.size(); ++j) {
    const Item& other = items[j];
    if (other.move(main.lane, MovePhase::kDone) || has_moves(other, main.lane)) return false;
    const bool counts = other.move(main.lane, MovePhase::kStart);
    if (counts && main.n_in_flight + 1 >= ahead_of(*main.instruction.kernel())) return false;
    const bool keeps_order = std::any_of(run.begin(), run.end(), [&](size_t m) {
      return run_must_keep_order(items, m, 1, other, most, rings);
    });
    if (!keeps_order) {
      main.n_in_flight += counts;
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
  const auto any_is_blocked = [&](const Item& other) {
    return std::any_of(run.begin(), run.end(), [&](size_t m) {
      return m == i ? run_is_blocked(items, m, 1, i, other, rings)
                    : run_must_keep_order(items, m, 1, other, most, rings);
    });
  };
  while (begin < i && !any_is_blocked(items[begin])) ++begin;
  if (begin == 0) {
    for (size_t m : run) items[m].shift = 0;
    return false;
  }
  merge(rings);
  items.move_to_end(i, items.size(), joins);
  for (size_t m = 0; m < n; ++m) items.relocate(first + m, begin + m);
  return true;
}

bool Overlapper::shiftable(const Item& item) const {
  for (const Access& a : item.accesses) {
    const auto n = std::count_if(a.terms.begin(), a.terms.end(),
                                 [&](const LoopTerm& t) { return t.loop == loop_->id; });
    if (n > 1) return false;
  }
  return true;
}

}  // namespace stow
