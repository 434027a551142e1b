#include "stowage/passes/overlapper.h"

#include <algorithm>

namespace stow {

bool Overlapper::share_a_slot(BufferId a, BufferId b) const {
  const auto first_of = [&](BufferId id) {
    return buffer(id).first_slot.valid() ? buffer(id).first_slot : id;
  };
  const BufferId first = first_of(a);
  return first == first_of(b) &&
         (buffer(first).role != BufferRole::kInput || numbered_.is_result[first.index()]);
}

void Overlapper::find_ringable(Items& items) {
  const size_t n_buffers = schedule_.buffers.size();
  ringable_.assign(n_buffers, false);
  if (!loop_) return;
  std::vector<int> here(n_buffers);
  std::vector<bool> begins(n_buffers);
  for (const Item& item : items) {
    for_each_view(item.instruction, [&](const View& view, bool) { ++here[view.buffer.index()]; });
    const Kernel* kernel = item.instruction.kernel();
    if (!kernel) continue;
    for (const View& view : kernel->outputs)
      if (view.begins_lifetime && first_touch(here, *kernel, view))
        begins[view.buffer.index()] = true;
  }
  // A done counts as its start does: both hold the windows of one move.
  std::vector<int> dones(n_buffers);
  for (const Item& item : items)
    if (const Kernel* k = item.instruction.kernel(); k && k->phase == MovePhase::kDone)
      for (const auto* views : {&k->inputs, &k->outputs})
        for (const View& view : *views) ++dones[view.buffer.index()];
  for (size_t b = 0; b < n_buffers; ++b) {
    const Buffer& candidate = schedule_.buffers[b];
    ringable_[b] = candidate.role == BufferRole::kTemporary && !candidate.outside_arena &&
                   candidate.slots == 1 && candidate.parts.size() == 1 &&
                   !candidate.independent_slots && begins[b] &&
                   here[b] - dones[b] == numbered_.n_accesses[b];
  }
}

bool Overlapper::first_touch(const std::vector<int>& here, const Kernel& kernel, const View& view) {
  if (here[view.buffer.index()] != 1) return false;
  return std::none_of(kernel.inputs.begin(), kernel.inputs.end(),
                      [&](const View& in) { return in.buffer == view.buffer; });
}

bool Overlapper::must_keep_order(const Item& item, const Item& other, RingSlots& needed) const {
  if (runs_in_order(item, other)) return false;
  const BufferId staging = item.accesses[is_inward(item.lane) ? 1 : 0].buffer;
  const bool either =
      item.stream == StreamKind::kCollective;  // both lie where the plan places them
  return conflicts(
      item, other, most_slots(item), [&](BufferId b) { return either || b == staging; }, needed);
}

bool Overlapper::runs_in_order(const Item& item, const Item& other) {
  if (other.stream != item.stream || item.stream == StreamKind::kCompute) return false;
  const MovePhase own = item.instruction.kernel()->phase,
                  others = other.instruction.kernel()->phase;
  return others != MovePhase::kWhole && own != MovePhase::kWhole &&
         !(own == MovePhase::kStart && others == MovePhase::kStart);
}

void Overlapper::choose_lanes(Items& items) const {
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

bool Overlapper::is_computed_here(const Items& items, size_t i) const {
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
  // The iteration before may also make an operand.
  for (size_t j = i + 1; loop_ && j < items.size() && j - i < kMostLookBack; ++j)
    for (const Access& own : items[j].accesses)
      for (const Item* maker : makers)
        for (const Access& a : maker->accesses)
          if (own.write && !a.write && !ringable_[a.buffer.index()] && aliases(a, own, 1))
            return true;
  return false;
}

}  // namespace stow
