// Device descriptions whose link is as slow as a test wants it.
#pragma once

#include "stowage/base/inside.h"
#include "stowage/runtime/null/simulate.h"

namespace stow::testing {

/// The device with a link that brings in what a step moves in so many times the seconds that it
/// computes.
inline DeviceDescription linked_device(DeviceDescription device, const Schedule& schedule,
                                       double times) {
  const Simulation first = simulate(schedule, device);
  const double in = first.stream(StreamKind::kCopyIn).bytes;
  device.link.to_device = device.link.to_host = in / (times * first.compute_busy_s());
  return device;
}

}  // namespace stow::testing
