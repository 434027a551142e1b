// The null runtime: simulates the time of a schedule on a described device.
// Not a run: it allocates no memory and computes no values.
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

/// The use of one stream in a step.
struct StreamUse {
  double busy_s = 0;
  int64_t runs = 0;  ///< Number of kernels, moves or collectives.
  double bytes = 0;  ///< Bytes moved; for kCollective, bytes sent; for kCompute 0.
};

/// A simulated step.
struct Simulation {
  double step_s = 0;  ///< Time of the step.
  /// Time that the compute stream waited for transfers and collectives: step_s minus its busy time.
  double exposed_s = 0;
  /// Result of step_bound_s(): no order of the same work is faster.
  double bound_s = 0;
  std::array<StreamUse, kNumStreams> streams;
  /// True if the schedule alone decides what runs. False: the longest alternative of a branch, and
  /// SimulateOptions::open_iterations of a loop with a dynamic trip count, were simulated.
  bool every_run = true;
  /// False if a loop reached no steady state within max_walked; its last iterations were
  /// extrapolated.
  bool exact = true;
  int64_t walked = 0;  ///< Instructions that were simulated one by one.
  std::vector<RunEvent> events;  ///< The first max_events events, in order of issue.

  const StreamUse& stream(StreamKind s) const { return streams[static_cast<size_t>(s)]; }
  double compute_busy_s() const { return stream(StreamKind::kCompute).busy_s; }
};

/// Returns a lower bound of the seconds of a step whose streams have this much work each: the
/// busiest stream. The compute stream also loses the time by which busy copies slow it
/// (DeviceDescription::Link::slows_compute).
double step_bound_s(const std::array<double, kNumStreams>& work_s,
                    const DeviceDescription& description);

struct SimulateOptions {
  int64_t max_events = 0;       ///< Events to keep; > 0: loops are walked iteration by iteration.
  int64_t open_iterations = 1;  ///< Iterations of a loop with a dynamic trip count.
  bool skips = true;  ///< True if a loop's steady state is multiplied out instead of walked.
  int64_t max_walked = 20'000'000;  ///< Instructions after which loops are extrapolated.
  /// Returns the measured seconds of a kernel's run number `run`, counted from 0; below 0: not
  /// known, use the description. Null: no measurements. With it, loops are walked iteration by
  /// iteration.
  std::function<double(const Kernel&, int64_t run)> measured_s;
};

/// Simulates the schedule as the program runner runs it. The compute stream runs its kernels in
/// order. A whole move or collective (MovePhase::kWhole) runs on its stream while compute waits. A
/// start begins after compute has reached it, the link's latency has passed and its stream has
/// finished earlier work. Compute goes on; at the done it waits for the oldest start of the same
/// transfer. Starts without a done end before the step does. While transfers run, kernels are
/// slower by the description's `slows_compute`. Time is counted in whole ticks of a picosecond
/// (longer if a step takes weeks), so that the steady state of a loop is found exactly: the result
/// is the same with and without `skips`.
Simulation simulate(const Schedule& schedule, const DeviceDescription& description,
                    const SimulateOptions& options = {});

/// Returns the bytes and runs of a step on each stream; busy_s is 0.
std::array<StreamUse, kNumStreams> moved_bytes(const Schedule& schedule);

/// Returns "compute", "copy in", "copy out", "disk read", "disk write" or "collective".
std::string_view stream_name(StreamKind stream);

}  // namespace stow
