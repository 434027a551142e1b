// Forecast: the bytes that a planned step moves, and its simulated time on a described device.
// Not a measurement; `profile` and `train` measure steps.
#pragma once

#include <optional>
#include <string>

#include "stowage/base/inside.h"
#include "stowage/io/json.h"
#include "stowage/runtime/null/simulate.h"
#include "stowage/session/compile.h"

namespace stow {

struct Forecast {
  std::array<StreamUse, kNumStreams> moved;  ///< Bytes and moves; of kCompute 0 bytes.
  int64_t kept_resident_bytes = 0;  ///< MemoryAnalysis::kept_resident_bytes.
  std::optional<DeviceDescription> device;
  std::optional<Simulation> simulation;  ///< None without a device.
  /// Result of order_bound(); none if the schedule is too long for it.
  std::optional<double> order_bound_s;
  std::string waits;  ///< Lines for people: where compute waits longest.
  /// Failure of check_network() for the first collective; "" if the network joins all devices.
  std::string network_fault;
};

/// Returns the device `asked`, a name or a file. If `asked` is empty: this machine as `calibrate`
/// measured it; none if it was not calibrated.
/// Errors: those of load_device_description and calibrated_description.
Result<std::optional<DeviceDescription>> forecast_device(const std::string& asked, int threads);

/// Returns the forecast of a step; without a device it has no times.
Forecast forecast_step(const Executable& step, std::optional<DeviceDescription> device);

/// Returns a few lines for people.
std::string to_string(const Forecast& forecast);

/// {"moved_bytes": {"copy in": …}, "kept_bytes": …, "simulated": {"device": …, "step_s": …, …} or
/// null}.
Json to_json(const Forecast& forecast);

/// Writes the simulated step as a trace. Errors: those of write_trace; the forecast has no device.
Result<void> write_simulated_trace(const std::string& path, const Executable& step,
                                   const Forecast& forecast);

}  // namespace stow
