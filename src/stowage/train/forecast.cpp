#include "stowage/train/forecast.h"

#include <fmt/ranges.h>

#include "stowage/base/bytes.h"
#include "stowage/runtime/null/kernel_cost.h"
#include "stowage/runtime/null/order_bound.h"
#include "stowage/tune/devices.h"
#include "stowage/tune/run_trace.h"

namespace stow {
namespace {

// Largest number of events of a trace: more than a person reads, and few enough for a browser.
constexpr int64_t kMaxTraceEvents = 400'000;
constexpr size_t kShownWaits = 5;

}  // namespace

Result<std::optional<DeviceDescription>> forecast_device(const std::string& asked, int threads) {
  if (asked.empty()) return calibrated_description(threads);
  Result<DeviceDescription> description = load_device_description(asked);
  if (!description) return fail("--device-description: {}", description.error());
  return std::optional<DeviceDescription>(std::move(*description));
}

Forecast forecast_step(const Executable& step, std::optional<DeviceDescription> device) {
  Forecast forecast;
  forecast.moved = moved_bytes(step.schedule());
  forecast.kept_resident_bytes = step.memory_analysis().kept_resident_bytes;
  if (device) {
    SimulateOptions options;
    options.max_events = kMaxTraceEvents;
    forecast.simulation = simulate(step.schedule(), *device, options);
    std::vector<RunEvent> events = std::move(forecast.simulation->events);
    forecast.simulation->events.clear();
    forecast.order_bound_s = order_bound(step.schedule(), *device, options);
    if (const Result<void> joined = check_network(*device, step.schedule()); !joined)
      forecast.network_fault = joined.error();
    forecast.waits = waits_table(step.schedule(), events, kShownWaits);
  }
  forecast.device = std::move(device);
  return forecast;
}

std::string to_string(const Forecast& forecast) {
  std::vector<std::string> moves;
  bool waits = false;  // for moves or for collectives, whose bytes the plan has named
  for (int s = 0; s < kNumStreams; ++s)
    if (const auto bytes = static_cast<int64_t>(forecast.moved[static_cast<size_t>(s)].bytes)) {
      waits = true;
      if (static_cast<StreamKind>(s) == StreamKind::kCollective) continue;
      moves.push_back(
          fmt::format("{} {}", stream_name(static_cast<StreamKind>(s)), format_bytes(bytes)));
    }
  std::string text;
  if (!moves.empty()) text = fmt::format("a step moves: {}\n", fmt::join(moves, ", "));
  if (forecast.kept_resident_bytes > 0)
    text += fmt::format("{} that were to leave and come back stay: there is room, and moving them "
                        "would take longer\n",
                        format_bytes(forecast.kept_resident_bytes));
  if (!forecast.simulation)
    return text + fmt::format(
                      "no step time: ./stowage calibrate measures this machine, and "
                      "--device-description names another ({})\n",
                      fmt::join(device_names(), ", "));
  const Simulation& s = *forecast.simulation;
  const bool sends = forecast.moved[static_cast<size_t>(StreamKind::kCollective)].bytes > 0;
  if (!forecast.network_fault.empty())
    text += fmt::format("collectives are simulated at the rate of the device's memory: {}\n",
                        forecast.network_fault);
  text +=
      fmt::format("step on {}: {} simulated, {} at least{}{}", forecast.device->name,
                  format_seconds(s.step_s), format_seconds(s.bound_s),
                  forecast.order_bound_s && waits
                      ? fmt::format(" ({} in this order)", format_seconds(*forecast.order_bound_s))
                      : "",
                  forecast.device->compute.f32_as == "tf32" ? ", f32 products as TF32" : "");
  if (waits)
    text += fmt::format("; compute waits {} for {}{}\n{}{}", format_seconds(s.exposed_s),
                        sends ? "transfers and collectives" : "transfers",
                        forecast.waits.empty() ? "" : ", longest for", forecast.waits,
                        streams_table(s));
  else
    text += "\n";
  if (!s.every_run)
    text += "(of each branch its longest side, of each open loop one iteration)\n";
  return text;
}

Json to_json(const Forecast& forecast) {
  Json moved = Json::object();
  for (int s = 0; s < kNumStreams; ++s)
    if (static_cast<StreamKind>(s) != StreamKind::kCompute)
      moved.set(stream_name(static_cast<StreamKind>(s)),
                static_cast<int64_t>(forecast.moved[static_cast<size_t>(s)].bytes));
  Json simulated;
  if (forecast.simulation) {
    const Simulation& s = *forecast.simulation;
    Json streams = Json::object();
    for (int i = 0; i < kNumStreams; ++i)
      streams.set(stream_name(static_cast<StreamKind>(i)),
                  s.streams[static_cast<size_t>(i)].busy_s);
    simulated = Json::object({{"device", forecast.device->name},
                              {"step_s", s.step_s},
                              {"bound_s", s.bound_s},
                              {"order_bound_s", forecast.order_bound_s
                                                    ? Json(*forecast.order_bound_s)
                                                    : Json(nullptr)},
                              {"exposed_s", s.exposed_s},
                              {"busy_s", streams},
                              {"every_run", s.every_run}});
  }
  return Json::object({{"moved_bytes", moved},
                       {"kept_bytes", forecast.kept_resident_bytes},
                       {"simulated", simulated}});
}

Result<void> write_simulated_trace(const std::string& path, const Executable& step,
                                   const Forecast& forecast) {
  if (!forecast.device)
    return fail("--trace: there is no device to simulate: name one with --device-description ({}), "
                "or measure this machine with ./stowage calibrate",
                fmt::join(device_names(), ", "));
  SimulateOptions options;
  options.max_events = kMaxTraceEvents;
  const Simulation simulation = simulate(step.schedule(), *forecast.device, options);
  return write_trace(path, trace_run(step.schedule(), simulation.events,
                                     fmt::format("step, simulated on {}", forecast.device->name)));
}

}  // namespace stow
