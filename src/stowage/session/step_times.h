// The time of a step as a search for a plan believes it: simulated, on the device that is known or on several.
// Not the simulation; runtime/null/simulate.h has it.
#pragma once

#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/schedule.h"
#include "stowage/runtime/null/device_description.h"

namespace stow {

/// The devices that steps of a schedule are judged by: the one that is known. Where that is null, an H200
/// (devices/h200.toml), and the same with links and networks that take half, as much as and twice the time of
/// the schedule's computation; the first alone where nothing is computed or moved.
std::vector<DeviceDescription> devices_for(const Schedule& schedule, const DeviceDescriptionPtr& known);

/// How much longer than its busiest stream a step takes, the mean over these devices.
double slowness(const Schedule& schedule, const std::vector<DeviceDescription>& devices);

/// By slowness(): at this there is little left to hide.
inline constexpr double kWellHidden = 1.03;

/// True if a step hardly takes longer than its busiest stream on the devices_for() that device.
bool hides_well(const Schedule& schedule, const DeviceDescriptionPtr& device = nullptr);

/// How much longer a step takes than one of another schedule, where no device is known.
double time_beside(const Schedule& schedule, const Schedule& other);

/// How long steps take, on the devices of `hides_well` for one reference schedule: figures of
/// schedules of the same program that can be compared.
class StepTimes {
 public:
  explicit StepTimes(const Schedule& reference, const DeviceDescriptionPtr& device = nullptr);
  double step(const Schedule& schedule) const;   ///< Over the reference's busiest stream, the mean.
  double bound(const Schedule& schedule) const;  ///< No less, whatever its moves run beside.

 private:
  std::vector<DeviceDescription> devices_;
  std::vector<double> bounds_s_;  // the reference's bound_s, by device
};

}  // namespace stow
