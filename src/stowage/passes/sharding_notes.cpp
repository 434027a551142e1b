#include "stowage/passes/sharding_notes.h"

#include <algorithm>

#include "stowage/base/bytes.h"

namespace stow {

void ShardingNotes::through_larger(const ArrayType& type, const ReshardPlan& plan,
                                   const AxisSharding& from, const AxisSharding& to,
                                   std::string source) {
  if (!plan.grows || plan.most_bytes < options_.least_noted_bytes) return;
  const int64_t ends =
      std::max(local_type(type, from, mesh_).bytes(), local_type(type, to, mesh_).bytes());
  add({ShardingNoteKind::kThroughLarger, type, plan.most_bytes, ends, std::move(source)});
}

void ShardingNotes::value(const ArrayType& type, const AxisSharding& sharding, std::string source) {
  const int64_t bytes = local_type(type, sharding, mesh_).bytes();
  if (bytes < options_.least_noted_bytes) return;
  int64_t best = bytes;
  for (int axis = 0; axis < mesh_.rank(); ++axis) {
    if (sharding.cuts_with(axis)) continue;
    for (size_t i = 0; i < sharding.axes.size(); ++i) {
      AxisSharding cut = sharding;
      cut.axes[i].push_back(axis);
      if (!sharding_fault(type, cut, mesh_))
        best = std::min(best, local_type(type, cut, mesh_).bytes());
    }
  }
  if (best < bytes) add({ShardingNoteKind::kStaysWhole, type, bytes, best, std::move(source)});
}

std::vector<ShardingNote> ShardingNotes::take() {
  std::stable_sort(notes_.begin(), notes_.end(),
                   [](const ShardingNote& a, const ShardingNote& b) { return a.bytes > b.bytes; });
  return std::move(notes_);
}

void ShardingNotes::add(ShardingNote note) {
  if (seen_.insert(to_string(note)).second) notes_.push_back(std::move(note));
}

void refuse_notes(const std::vector<ShardingNote>& notes) {
  constexpr size_t kMostShown = 5;
  std::string text;
  for (size_t i = 0; i < std::min(notes.size(), kMostShown); ++i)
    text += "\n  " + to_string(notes[i]);
  trace_error(
      "[partition] expected every value to be cut as far as it can be (strict), got {} that "
      "{} not:{}\nadd with_sharding_constraint, or leave strict out",
      notes.size(), notes.size() == 1 ? "is" : "are", text);
}

std::string to_string(const ShardingNote& note) {
  const std::string type = to_string(note.type);
  if (note.kind == ShardingNoteKind::kThroughLarger)
    return fmt::format(
        "{} takes {} a position while it is resharded, between forms of at most {}, at {}", type,
        format_bytes(note.bytes), format_bytes(note.achievable_bytes), note.source);
  return fmt::format("{} takes {} a position at {}; one more mesh axis would make that {}", type,
                     format_bytes(note.bytes), note.source, format_bytes(note.achievable_bytes));
}

}  // namespace stow
