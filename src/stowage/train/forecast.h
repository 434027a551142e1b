// Forecast: what a planned step moves between memories and how long it takes on a described device.
// Not a measurement; `profile` and `train` say what it really took.
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
  /// The step if memory had no end; none where that was too much to go through.
  std::optional<double> order_bound_s;
  std::string waits;                     ///< Lines for people: where compute waits longest.
};

/// The device that is asked for by name or file; where none is, this machine as calibration measured
/// it, if it did.
/// Errors: as load_device_description and calibrated_description.
Result<std::optional<DeviceDescription>> forecast_device(const std::string& asked, int threads);

Forecast forecast_step(const Executable& step, std::optional<DeviceDescription> device);

/// For people: a few lines.
std::string to_string(const Forecast& forecast);

/// {"moved_bytes": {"copy in": …}, "kept_bytes": …, "simulated": {"device": …, "step_s": …, …} or null}.
Json to_json(const Forecast& forecast);

/// Writes the simulated step as a trace. Errors: as write_trace; no device.
Result<void> write_simulated_trace(const std::string& path, const Executable& step,
                                   const Forecast& forecast);

}  // namespace stow
