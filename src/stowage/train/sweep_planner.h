// JobPlanner: plans the points of a sweep in the same way as the command `plan`.
// Not the sweep; sweep.h has the points and the table.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>

#include "stowage/base/inside.h"
#include "stowage/runtime/null/device_description.h"
#include "stowage/train/config.h"
#include "stowage/train/job.h"
#include "stowage/train/sweep.h"

namespace stow {

/// Returns the configuration of `sources` with the point's mesh, batch and policy.
/// Errors: those of load_train_config(), such as sizes that the mesh does not divide.
Result<TrainConfig> config_of(const ConfigSources& sources, const SweepPoint& point);

class JobPlanner : public SweepPlanner {
 public:
  /// `device`: the device on which steps are simulated; none, or one whose network does not connect
  /// a mesh: no step times. `budget_bytes`: the device memory that `sources` set. `threads_of(n)`:
  /// returns the threads of each of n devices. `is_named`: true if a person named the device
  /// (device_to_plan_for()).
  JobPlanner(ConfigSources sources, std::optional<DeviceDescription> device,
             std::optional<int64_t> budget_bytes, std::function<int(int64_t)> threads_of,
             bool is_named = true)
      : sources_(std::move(sources)),
        device_(std::move(device)),
        budget_bytes_(budget_bytes),
        threads_of_(std::move(threads_of)),
        is_named_(is_named) {}

  Result<SweepPlan> plan(const SweepPoint& point) const override;
  /// The first call of a search finds the leanest placement of its mesh and policy; later calls,
  /// for other batches, plan only that placement.
  Result<LeanestPlan> plan_leanest(const SweepPoint& point) const override;
  std::optional<int64_t> budget_bytes() const override { return budget_bytes_; }

 private:
  // Returns use(job) for the job of a point. Errors: those of the configuration and of the trace.
  template <typename Use>
  auto with_job(const SweepPoint& point, const Use& use) const
      -> decltype(use(std::declval<const Job&>()));

  ConfigSources sources_;
  std::optional<DeviceDescription> device_;
  std::optional<int64_t> budget_bytes_;
  std::function<int(int64_t)> threads_of_;
  bool is_named_;
  mutable std::mutex mutex_;  // guards leanest_
  // By mesh, policy and the batch with which the search began.
  mutable std::map<std::tuple<int64_t, int64_t, int64_t, std::string, int64_t>, Placement> leanest_;
};

}  // namespace stow
