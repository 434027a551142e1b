// Traces and tables of real and simulated runs of a schedule.
// Not the execution; that is runtime/program.h and runtime/null/simulate.h.
#pragma once

#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/io/trace.h"
#include "stowage/runtime/null/simulate.h"

namespace stow {

/// Records the events of a program's runs; thread-safe.
class RunRecorder final : public RunObserver {
 public:
  void ran(const RunEvent& event) override;
  /// Returns and removes the recorded events, in the order of their instants. Times count from the
  /// begin of the earliest event.
  std::vector<RunEvent> take();

 private:
  std::mutex mutex_;
  std::vector<RunEvent> events_;
};

/// Returns a trace of one run: a track for each stream, with its instructions and waits by op and
/// source. If all runs of the schedule have the same lifetimes, it also has a counter for each
/// memory kind, with the bytes in use, arguments included.
TraceFile trace_run(const Schedule& schedule, std::span<const RunEvent> events, std::string name);

/// Summarizes a real run in the form of a simulated one. Its exposed time is the time that compute
/// waited: at dones of moves, and during whole moves.
Simulation summarize_run(const Schedule& schedule, std::span<const RunEvent> events);

/// Returns a line for each stream that was used:
/// "  copy in    12.0 MiB  3.1 ms busy, 12 % of the step".
std::string streams_table(const Simulation& simulation);

/// Returns the longest waits of compute, at most `n_most` lines; empty if it never waited:
/// "  1.20 ms  10 times  copy in, 4.00 MiB at layers/mlp (decoder.cpp:60)".
std::string waits_table(const Schedule& schedule, std::span<const RunEvent> events, size_t n_most);

/// Returns a time with three digits and a unit from ns to h: "12.3 ms".
std::string format_seconds(double seconds);

}  // namespace stow
