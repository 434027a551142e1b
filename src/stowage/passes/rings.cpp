#include "stowage/passes/rings.h"

#include <algorithm>

#include "stowage/base/bytes.h"
#include "stowage/passes/access.h"

namespace stow {
namespace {

template <typename Visit>
void for_each_view_of(BufferId id, std::span<Instruction* const> list, Visit&& visit) {
  for (Instruction* instruction : list)
    for_each_view(*instruction, [&](View& view, bool) {
      if (view.buffer == id) visit(view);
    });
}

bool in_one_slot(const View& view, int64_t slot_bytes) {
  const Access a = access_of(view, true);
  return a.low % slot_bytes + (a.high - a.low) <= slot_bytes &&
         std::all_of(a.terms.begin(), a.terms.end(), [&](const LoopTerm& t) {
           return t.stride_bytes % slot_bytes == 0;
         });
}

// Makes the slots of a stack the parts of a new one, with the same lifetimes. If one write begins
// several slots, or slots have parts, all parts of an iteration live from its first use on.
void make_parts(Buffer& b, BufferId id, std::span<Instruction* const> list) {
  bool by_slot = b.parts.size() == 1;
  for_each_view_of(id, list, [&](const View& view) {
    by_slot = by_slot && (!view.begins_lifetime || in_one_slot(view, b.slot_bytes));
  });
  if (!by_slot) {
    b.parts = {0};
    b.part_provenance.clear();
    for_each_view_of(id, list, [](View& view) { view.begins_lifetime = false; });
    return;
  }
  b.parts.clear();
  for (int64_t slot = 0; slot < b.slots; ++slot) b.parts.push_back(slot * b.slot_bytes);
  if (!b.part_provenance.empty()) b.part_provenance.resize(b.parts.size(), b.part_provenance[0]);
}

}  // namespace

bool has_slot_per_iteration(const Buffer& buffer, LoopId loop) {
  return std::any_of(buffer.loop_dims.begin(), buffer.loop_dims.end(),
                     [&](const LoopDim& e) { return e.loop == loop; });
}

void make_ring(Schedule& schedule, std::span<Instruction* const> list, const Loop& loop,
               BufferId id, int64_t slots) {
  Buffer& b = schedule.buffers[id.index()];
  const bool each = has_slot_per_iteration(b, loop.id);
  if (b.slots > 1) make_parts(b, id, list);
  if (each) slots = loop.trip_count;
  b.slot_bytes = align_up(b.bytes, schedule.alignment_bytes);
  b.bytes = b.slot_bytes * slots;
  b.slots = slots;
  b.independent_slots = true;
  std::erase_if(b.loop_dims, [&](const LoopDim& e) { return e.loop == loop.id; });
  LoopTerm term;
  term.loop = loop.id;
  term.modulo = each ? 0 : slots;
  term.stride_bytes = b.slot_bytes;
  for_each_view_of(id, list, [&](View& view) { view.terms.push_back(term); });
}

}  // namespace stow
