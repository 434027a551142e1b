// Tests of plans against budgets, shared by choice.cpp and remedies.cpp.
// Not for users of a job; job.h has what they need.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "stowage/train/job.h"

namespace stow {

/// Placements that differ only in which other memory things are in take as much of a virtual device:
/// once one is too much for it, so are those like it.
class TooMuch {
 public:
  TooMuch(const TrainConfig& config, const Budgets& budgets) : config_(config), budgets_(budgets) {}

  bool is_known(const Placement& p) const { return config_.is_virtual() && forms_.contains(form(p)); }
  void note(const Placement& p, const BytesByKind& peak_bytes) {
    if (budgets_[0] && peak_bytes[0] > *budgets_[0]) forms_.emplace(form(p), peak_bytes[0]);
  }
  // Bytes of the device that the first of those like it took; 0 where none was noted.
  int64_t noted_bytes(const Placement& p) const {
    const auto at = forms_.find(form(p));
    return at == forms_.end() ? 0 : at->second;
  }

 private:
  using Form = std::tuple<StepPolicy, bool, bool, bool, bool, bool, bool>;
  static Form form(const Placement& p) {
    const auto is_away = [](MemoryKind kind) { return kind != MemoryKind::kDevice; };
    return {p.policy,  is_away(p.optimizer), is_away(p.parameters), is_away(p.gradients),
            is_away(p.frozen), p.chunked, p.chunked_loss};
  }

  const TrainConfig& config_;
  const Budgets& budgets_;
  std::map<Form, int64_t> forms_;
};

/// The first memory, from kind `first` on, of which a plan needs more than its budget; none where it
/// fits.
std::optional<MemoryKind> first_over(const TrainConfig& config, const BytesByKind& peak_bytes,
                                     const Budgets& budgets, size_t first = 0);
/// Names in words the budgets that a plan exceeds; empty if it fits.
std::string over_budgets(const TrainConfig& config, const JobPlan& plan, const Budgets& budgets);
/// The state and the frozen weights by where a placement has them, but scalars: no plan takes less.
BytesByKind state_bytes(const Job& job, const Placement& p);
/// True if the budgets beside the device's have room for the state, which no plan does without.
bool has_room_for_state(const Job& job, const Placement& p, const Budgets& budgets);
/// The plan of the same placement with moves ahead, where anything moves and that fits as well; else
/// `plan`.
JobPlan with_moves_ahead(const Job& job, JobPlan plan, const Budgets& budgets);

}  // namespace stow
