// Runs of a schedule, real and simulated, as traces and as tables of what its streams did.
// Not how they were run; that is runtime/program.h and runtime/null/simulate.h.
#pragma once

#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/io/trace.h"
#include "stowage/runtime/null/simulate.h"

namespace stow {

/// Keeps what a program ran, from any threads.
class RunRecorder final : public RunObserver {
 public:
  void ran(const RunEvent& event) override;
  /// The events since the last call, in order of issue, times from the first one's begin.
  std::vector<RunEvent> take();

 private:
  std::mutex mutex_;
  std::vector<RunEvent> events_;
};

/// A trace of one run: a track for each stream with instructions by op and source, waits among
/// them; and, where every run of the schedule is alike, a counter for each memory kind with the bytes
/// in use, arguments included.
TraceFile trace_run(const Schedule& schedule, std::span<const RunEvent> events, std::string name);

/// The work of the streams in a real run, in the terms of a simulated one. Exposed is what compute
/// waited: at dones, and while whole moves ran.
Simulation summarize_run(const Schedule& schedule, std::span<const RunEvent> events);

/// "  copy in    12.0 MiB  3.1 ms busy, 12 % of the step": a line for each stream that did something.
std::string streams_table(const Simulation& simulation);

/// The longest waits of compute, at most `n_most` lines: "  1.20 ms  10 times  copy in, 4.00 MiB at
/// layers/mlp (decoder.cpp:60)". Empty where it never waited.
std::string waits_table(const Schedule& schedule, std::span<const RunEvent> events, size_t n_most);

/// "12.3 ms", with three digits, from nanoseconds to hours.
std::string format_seconds(double seconds);

}  // namespace stow
