// linked_device: a device description with a chosen ratio of copy time to compute time.
// Not a device.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/runtime/null/simulate.h"

namespace stow::testing {

/// Returns `device` with a link speed at which the schedule's copies to the device take `times`
/// times its compute time.
inline DeviceDescription linked_device(DeviceDescription device, const Schedule& schedule,
                                       double times) {
  const Simulation first = simulate(schedule, device);
  const double in = first.stream(StreamKind::kCopyIn).bytes;
  device.link.to_device = device.link.to_host = in / (times * first.compute_busy_s());
  return device;
}

}  // namespace stow::testing
