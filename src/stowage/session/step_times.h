// Simulated step times by which a plan search compares schedules, on one device or several.
// Not the simulation; runtime/null/simulate.h has it.
#pragma once

#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/schedule.h"
#include "stowage/runtime/null/device_description.h"

namespace stow {

/// Returns the devices on which steps of a schedule are simulated: `known`, if it is not null. Else
/// an H200 (devices/h200.toml), and three variants of it whose links and networks take 0.5, 1 and 2
/// times the schedule's compute time. Without compute, or without moves and collectives, only the
/// H200.
std::vector<DeviceDescription> devices_for(const Schedule& schedule, const DeviceDescriptionPtr& known);

/// Returns the step time divided by Simulation::bound_s, the mean over the devices; at least 1.
double slowness(const Schedule& schedule, const std::vector<DeviceDescription>& devices);

/// A slowness() up to which a schedule counts as hiding its moves.
inline constexpr double kWellHidden = 1.03;

/// True if slowness() on devices_for(schedule, device) is at most kWellHidden.
bool hides_well(const Schedule& schedule, const DeviceDescriptionPtr& device = nullptr);

/// Returns the step time of `schedule` divided by that of `other`, the mean over
/// devices_for(other, nullptr).
double relative_step_time(const Schedule& schedule, const Schedule& other);

/// Step times of schedules of the same program, comparable with each other: all are simulated on
/// the devices_for() one reference schedule and divided by the reference's bound_s.
class StepTimes {
 public:
  explicit StepTimes(const Schedule& reference, const DeviceDescriptionPtr& device = nullptr);
  double step(const Schedule& schedule) const;   ///< Relative step time, the mean over the devices.
  double bound(const Schedule& schedule) const;  ///< Relative bound_s: no order of moves is faster.

 private:
  std::vector<DeviceDescription> devices_;
  std::vector<double> bounds_s_;  // the reference's bound_s, by device
};

}  // namespace stow
