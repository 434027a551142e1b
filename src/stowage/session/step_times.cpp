#include "stowage/session/step_times.h"

#include <algorithm>

#include "stowage/base/error.h"
#include "stowage/runtime/null/built_in_devices.h"
#include "stowage/runtime/null/simulate.h"

namespace stow {
namespace {

// Times of the moves over that of the compute, on variants of the usual device: moves that are easily
// hidden, that are just hidden, and that are longer than the compute. A plan for a device that nobody
// named should be good on all of them.
constexpr double kMoveShares[] = {0.5, 1.0, 2.0};

// The device that is assumed if none is described: a current accelerator.
const DeviceDescription& usual_device() {
  static const DeviceDescription device = [] {
    for (const BuiltInDevice& d : built_in_devices())
      if (d.name == "h200") return *parse_device_description(d.toml, "h200.toml");
    STOW_CHECK(false, "devices/h200.toml is part of the program");
  }();
  return device;
}

}  // namespace

std::vector<DeviceDescription> devices_for(const Schedule& schedule, const DeviceDescriptionPtr& known) {
  if (known) return {*known};
  std::vector<DeviceDescription> devices = {usual_device()};
  const Simulation s = simulate(schedule, devices[0]);
  const double link =
      std::max(s.stream(StreamKind::kCopyIn).busy_s, s.stream(StreamKind::kCopyOut).busy_s);
  const double network = s.stream(StreamKind::kCollective).busy_s;
  if (s.compute_busy_s() == 0 || (link == 0 && network == 0)) return devices;
  for (const double share : kMoveShares) {
    DeviceDescription d = devices[0];
    const double wanted_s = share * s.compute_busy_s();
    if (link > 0) d.link.to_device = d.link.to_host *= link / wanted_s;
    for (DeviceDescription::Network& level : d.network)
      if (network > 0) {
        level.bandwidth *= network / wanted_s;
        level.latency_s *= wanted_s / network;
      }
    devices.push_back(std::move(d));
  }
  return devices;
}

double slowness(const Schedule& schedule, const std::vector<DeviceDescription>& devices) {
  double sum = 0;
  for (const DeviceDescription& d : devices) {
    const Simulation s = simulate(schedule, d);
    sum += s.bound_s > 0 ? s.step_s / s.bound_s : 1;
  }
  return sum / static_cast<double>(devices.size());
}

bool hides_well(const Schedule& schedule, const DeviceDescriptionPtr& device) {
  return slowness(schedule, devices_for(schedule, device)) <= kWellHidden;
}

double relative_step_time(const Schedule& schedule, const Schedule& other) {
  const std::vector<DeviceDescription> devices = devices_for(other, nullptr);
  double sum = 0;
  for (const DeviceDescription& d : devices) {
    const double step_s = simulate(other, d).step_s;
    sum += step_s > 0 ? simulate(schedule, d).step_s / step_s : 1;
  }
  return sum / static_cast<double>(devices.size());
}

StepTimes::StepTimes(const Schedule& reference, const DeviceDescriptionPtr& device)
    : devices_(devices_for(reference, device)) {
  for (const DeviceDescription& d : devices_) bounds_s_.push_back(simulate(reference, d).bound_s);
}

double StepTimes::step(const Schedule& schedule) const {
  double sum = 0;
  for (size_t d = 0; d < devices_.size(); ++d)
    sum += bounds_s_[d] > 0 ? simulate(schedule, devices_[d]).step_s / bounds_s_[d] : 1;
  return sum / static_cast<double>(devices_.size());
}

double StepTimes::bound(const Schedule& schedule) const {
  double sum = 0;
  for (size_t d = 0; d < devices_.size(); ++d)
    sum += bounds_s_[d] > 0 ? simulate(schedule, devices_[d]).bound_s / bounds_s_[d] : 1;
  return sum / static_cast<double>(devices_.size());
}

}  // namespace stow
