// Comparison of plans with budgets, shared by choice.cpp and remedies.cpp.
// Not for users of a job; they need job.h only.
#pragma once

#include <compare>
#include <map>
#include <optional>
#include <string>

#include "stowage/train/job.h"

namespace stow {

/// Remembers placements that exceed a virtual device's budget, to skip placements that need as
/// much. Placements that differ only in the off-device memory (pinned host or disk) of an array
/// need the same bytes of a virtual device.
class OverBudgetPlacements {
 public:
  OverBudgetPlacements(const TrainConfig& config, const Budgets& budgets)
      : config_(config), budgets_(budgets) {}

  /// True if a placement that needs as much of the device was noted as too large.
  bool is_known(const Placement& p) const {
    return config_.is_virtual() && device_bytes_.contains(need_of(p));
  }
  /// Notes a placement whose plan has these peaks, if the peak exceeds the device's budget.
  void note(const Placement& p, const BytesByKind& peak_bytes) {
    if (budgets_[0] && peak_bytes[0] > *budgets_[0])
      device_bytes_.emplace(need_of(p), peak_bytes[0]);
  }
  /// Device bytes of the first noted placement that needs as much as `p`; 0 if none was noted.
  int64_t noted_bytes(const Placement& p) const {
    const auto at = device_bytes_.find(need_of(p));
    return at == device_bytes_.end() ? 0 : at->second;
  }

 private:
  // The properties of a placement on which the bytes of a virtual device depend.
  struct DeviceNeed {
    StepPolicy policy = StepPolicy::kSaveAll;
    bool optimizer_is_away = false, parameters_are_away = false, gradients_are_away = false;
    bool frozen_is_away = false;
    bool chunked = false, chunked_loss = false;
    friend auto operator<=>(const DeviceNeed&, const DeviceNeed&) = default;
  };
  static DeviceNeed need_of(const Placement& p) {
    const auto is_away = [](MemoryKind kind) { return kind != MemoryKind::kDevice; };
    return {.policy = p.policy,
            .optimizer_is_away = is_away(p.optimizer),
            .parameters_are_away = is_away(p.parameters),
            .gradients_are_away = is_away(p.gradients),
            .frozen_is_away = is_away(p.frozen),
            .chunked = p.chunked,
            .chunked_loss = p.chunked_loss};
  }

  const TrainConfig& config_;
  const Budgets& budgets_;
  std::map<DeviceNeed, int64_t> device_bytes_;  // of noted placements
};

/// Returns the first memory kind, from number `first` on, whose budget a plan with these peaks
/// exceeds; none if all budgets suffice.
std::optional<MemoryKind> first_over(const TrainConfig& config, const BytesByKind& peak_bytes,
                                     const Budgets& budgets, size_t first = 0);
/// Returns a text that names the budgets that a plan exceeds; "" if it fits.
std::string over_budgets(const TrainConfig& config, const JobPlan& plan, const Budgets& budgets);
/// Returns the bytes of the training state, without scalars, and of the frozen weights, in the
/// memory kinds of a placement. Every plan of the placement needs at least these.
BytesByKind state_bytes(const Job& job, const Placement& p);
/// True if the budgets of pinned host memory and disk have room for state_bytes().
bool has_room_for_state(const Job& job, const Placement& p, const Budgets& budgets);
/// Returns the plan of the same placement with moves ahead, if anything moves and that plan fits;
/// else `plan`.
JobPlan with_moves_ahead(const Job& job, JobPlan plan, const Budgets& budgets);

}  // namespace stow
