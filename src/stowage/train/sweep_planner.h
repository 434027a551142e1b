// JobPlanner: plans the points of a sweep as `plan` would plan them.
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

/// The configuration of a point: that of `sources` with the point's mesh, batch and policy.
/// Errors: as load_train_config; sizes that the mesh does not divide are among them.
Result<TrainConfig> config_of(const ConfigSources& sources, const SweepPoint& point);

class JobPlanner : public SweepPlanner {
 public:
  /// `threads_of(n)`: threads of each of n devices. `device`: what steps are simulated on; none: without times, as where its
  /// network does not connect the mesh. `budget_bytes`: what `sources` say of the device's memory. `is_named`:
  /// whether somebody named the device (device_to_plan_for).
  JobPlanner(ConfigSources sources, std::optional<DeviceDescription> device,
             std::optional<int64_t> budget_bytes, std::function<int(int64_t)> threads_of,
             bool is_named = true)
      : sources_(std::move(sources)),
        device_(std::move(device)),
        budget_bytes_(budget_bytes),
        threads_of_(std::move(threads_of)),
        is_named_(is_named) {}

  Result<SweepPlan> plan(const SweepPoint& point) const override;
  /// The first call of a search finds the leanest placement of its mesh and policy; later ones, of other
  /// batches, plan that one alone.
  Result<LeastNeed> least_need(const SweepPoint& point) const override;
  std::optional<int64_t> budget_bytes() const override { return budget_bytes_; }

 private:
  // use() of the job of a point. Errors are those of the configuration and of the trace.
  template <typename Use>
  auto with_job(const SweepPoint& point, const Use& use) const
      -> decltype(use(std::declval<const Job&>()));

  ConfigSources sources_;
  std::optional<DeviceDescription> device_;
  std::optional<int64_t> budget_bytes_;
  std::function<int(int64_t)> threads_of_;
  bool is_named_;
  mutable std::mutex mutex_;  // guards what follows
  // By mesh, policy and the batch that the search began with.
  mutable std::map<std::tuple<int64_t, int64_t, int64_t, std::string, int64_t>, Placement> leanest_;
};

}  // namespace stow
