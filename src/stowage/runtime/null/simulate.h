// The null runtime: a schedule run against a device description instead of hardware.
// Not a run: no memory, no values; nothing but time.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/schedule.h"
#include "stowage/runtime/null/device_description.h"
#include "stowage/runtime/run_observer.h"

namespace stow {

struct StreamUse {
  double busy_s = 0;
  int64_t runs = 0;  ///< Kernels, moves or collectives.
  double bytes = 0;  ///< Moved, of kCollective sent; of kCompute 0.
};

struct Simulation {
  double step_s = 0;
  /// The compute stream waited for transfers and collectives; step less its busy time.
  double exposed_s = 0;
  /// The busiest stream, each as if alone on the device: no order of the same work is faster.
  double bound_s = 0;
  std::array<StreamUse, kNumStreams> streams;
  /// False where the schedule leaves open what runs: of a branch the longest alternative was taken,
  /// of an open loop so many iterations as the options say.
  bool every_run = true;
  /// False where a loop found no steady state within the work allowed and was carried on as it had
  /// last gone.
  bool exact = true;
  int64_t walked = 0;  ///< Instructions that were gone through one by one.
  std::vector<RunEvent> events;  ///< The first ones, where asked for, in order of issue.

  const StreamUse& stream(StreamKind s) const { return streams[static_cast<size_t>(s)]; }
  double compute_busy_s() const { return stream(StreamKind::kCompute).busy_s; }
};

struct SimulateOptions {
  int64_t max_events = 0;       ///< Events to keep; loops are walked iteration by iteration for them.
  int64_t open_iterations = 1;  ///< Of a loop whose trip count is known at run time alone.
  bool skips = true;  ///< True if a loop's steady state is multiplied out instead of walked.
  int64_t max_walked = 20'000'000;
  /// Seconds of a kernel's run, the first being 0, where known better than from the description;
  /// below 0: not known. Loops are walked iteration by iteration for them.
  std::function<double(const Kernel&, int64_t run)> measured_s;
};

/// Goes through the schedule as the program runner does. The compute stream takes its kernels in
/// order. A whole move or collective (MovePhase::kWhole) runs on its stream while compute waits.
/// A start waits for compute to have come by it, the link's latency, and for what its stream was
/// given before; compute goes on, and waits at the done for the oldest start of that number. Starts that nothing waits for
/// end before the step does. While transfers run, kernels are as much slower as the description
/// says. Time is counted in whole ticks of a picosecond (longer where a step takes weeks), so that
/// the steady state of a loop is found exactly: with and without `skips` the result is the same.
Simulation simulate(const Schedule& schedule, const DeviceDescription& description,
                    const SimulateOptions& options = {});

/// Bytes that a step moves or sends on each stream, and how often; no times.
std::array<StreamUse, kNumStreams> moved_bytes(const Schedule& schedule);

/// "compute", "copy in", "copy out", "disk read", "disk write", "collective".
std::string_view stream_name(StreamKind stream);

}  // namespace stow
