#include "stowage/tune/run_trace.h"

#include <algorithm>
#include <map>

#include "stowage/base/bytes.h"
#include "stowage/ir/schedule_walk.h"
#include "stowage/plan/memory_plan.h"
#include "stowage/runtime/null/kernel_cost.h"

namespace stow {
namespace {

// The stream of what a kernel does; of a wait, compute's.
StreamKind stream_of_event(const Schedule& schedule, const RunEvent& event) {
  const Kernel& kernel = *event.kernel;
  if (kernel.phase == MovePhase::kDone) return event.stream;
  const StreamKind stream = stream_of(kernel, schedule.buffers);
  return stream == StreamKind::kCompute ? event.stream : stream;
}

// Bytes that a move moves, and that a collective sends.
int64_t moved(const Kernel& kernel, const Schedule& schedule) {
  return static_cast<int64_t>(kernel_cost(kernel, schedule).bytes);
}

// Bytes of a kind that the timeline does not place: arguments, and results apart from the arena.
int64_t standing_bytes(const Schedule& schedule, MemoryKind kind) {
  int64_t bytes = 0;
  for (const Buffer& buffer : schedule.buffers)
    if (buffer.kind == kind && (buffer.role == BufferRole::kInput || buffer.outside_arena))
      bytes += buffer.bytes;
  return bytes;
}

// The bytes in use while each instruction runs, at the time when compute comes by it.
void add_counters(const Schedule& schedule, std::span<const RunEvent> events, TraceFile& trace) {
  const Lifetimes lifetimes = compute_lifetimes(schedule);
  if (!lifetimes.same_in_every_run) return;
  for (int k = 0; k < kNumMemoryKinds; ++k) {
    const auto kind = static_cast<MemoryKind>(k);
    const std::vector<int64_t> live = live_bytes(schedule, lifetimes, kind);
    const int64_t standing = standing_bytes(schedule, kind);
    if (standing == 0 && *std::max_element(live.begin(), live.end()) == 0) continue;
    const size_t counter = trace.counters.size();
    trace.counters.push_back(fmt::format("{} bytes", memory_kind_name(kind)));
    double at_s = 0, last = -1;
    for (const RunEvent& event : events) {
      // A start is come by when compute has ended what stood before it.
      const bool elsewhere = event.kernel->phase == MovePhase::kStart;
      if (!elsewhere) at_s = event.begin_s;
      const auto instant = static_cast<size_t>(event.instant);
      if (instant >= live.size()) break;
      const auto bytes = static_cast<double>(standing + live[instant]);
      if (bytes != last) trace.samples.push_back({counter, at_s, bytes});
      last = bytes;
      if (!elsewhere) at_s = event.end_s;
    }
  }
}

}  // namespace

void RunRecorder::ran(const RunEvent& event) {
  const std::lock_guard lock(mutex_);
  events_.push_back(event);
}

std::vector<RunEvent> RunRecorder::take() {
  const std::lock_guard lock(mutex_);
  std::vector<RunEvent> events = std::move(events_);
  events_.clear();
  std::stable_sort(events.begin(), events.end(), [](const RunEvent& a, const RunEvent& b) {
    return a.instant < b.instant;
  });
  double first_s = events.empty() ? 0 : events[0].begin_s;
  for (const RunEvent& event : events) first_s = std::min(first_s, event.begin_s);
  for (RunEvent& event : events) {
    event.begin_s -= first_s;
    event.end_s -= first_s;
  }
  return events;
}

TraceFile trace_run(const Schedule& schedule, std::span<const RunEvent> events, std::string name) {
  TraceFile trace;
  trace.name = std::move(name);
  for (int s = 0; s < kNumStreams; ++s)
    trace.tracks.emplace_back(stream_name(static_cast<StreamKind>(s)));
  for (const RunEvent& event : events) {
    const Kernel& kernel = *event.kernel;
    const bool waits = kernel.phase == MovePhase::kDone;
    if (waits && event.end_s <= event.begin_s) continue;
    TraceSlice slice;
    slice.track = static_cast<size_t>(stream_of_event(schedule, event));
    slice.name = fmt::format("{}{}", waits ? "wait for " : "", op_name(kernel.op));
    slice.begin_s = event.begin_s;
    slice.end_s = event.end_s;
    slice.details.emplace_back("source", to_string(kernel.provenance));
    slice.details.emplace_back("instant", fmt::format("{}", event.instant));
    if (kernel.op == OpKind::kDevicePut || exchanges_data(kernel))
      slice.details.emplace_back("size", format_bytes(moved(kernel, schedule)));
    if (kernel.transfer >= 0)
      slice.details.emplace_back("transfer", fmt::format("{}", kernel.transfer));
    trace.slices.push_back(std::move(slice));
  }
  add_counters(schedule, events, trace);
  return trace;
}

Simulation summarize_run(const Schedule& schedule, std::span<const RunEvent> events) {
  Simulation result;
  for (const RunEvent& event : events) {
    const double seconds = event.end_s - event.begin_s;
    const StreamKind stream = stream_of_event(schedule, event);
    result.step_s = std::max(result.step_s, event.end_s);
    if (event.kernel->phase == MovePhase::kDone ||
        (event.kernel->phase == MovePhase::kWhole && stream != StreamKind::kCompute))
      result.exposed_s += seconds;
    if (event.kernel->phase == MovePhase::kDone) continue;
    StreamUse& use = result.streams[static_cast<size_t>(stream)];
    use.busy_s += seconds;
    use.runs += 1;
    if (stream != StreamKind::kCompute)
      use.bytes += static_cast<double>(moved(*event.kernel, schedule));
    result.bound_s = std::max(result.bound_s, use.busy_s);
  }
  result.walked = static_cast<int64_t>(events.size());
  return result;
}

std::string streams_table(const Simulation& simulation) {
  std::string text;
  for (int s = 0; s < kNumStreams; ++s) {
    const auto stream = static_cast<StreamKind>(s);
    const StreamUse& use = simulation.stream(stream);
    if (use.runs == 0) continue;
    const std::string moves = stream == StreamKind::kCompute
                                  ? std::string()
                                  : format_bytes(static_cast<int64_t>(use.bytes));
    text += fmt::format("  {:<10} {:>11}  {:>9} busy, {:3.0f} % of the step\n", stream_name(stream),
                        moves, format_seconds(use.busy_s),
                        simulation.step_s > 0 ? 100 * use.busy_s / simulation.step_s : 0);
  }
  return text;
}

std::string waits_table(const Schedule& schedule, std::span<const RunEvent> events, size_t n_most) {
  struct Wait {
    double seconds = 0;
    int64_t times = 0;
  };
  std::map<std::string, Wait> waits;
  for (const RunEvent& event : events) {
    const Kernel& kernel = *event.kernel;
    const StreamKind stream = stream_of(kernel, schedule.buffers);
    if (stream == StreamKind::kCompute || kernel.phase == MovePhase::kStart ||
        event.end_s <= event.begin_s)
      continue;
    Wait& wait = waits[fmt::format(
        "{}, {} at {}",
        stream == StreamKind::kCollective ? op_name(kernel.op) : stream_name(stream),
        format_bytes(moved(kernel, schedule)), to_string(kernel.provenance))];
    wait.seconds += event.end_s - event.begin_s;
    ++wait.times;
  }
  std::vector<std::pair<std::string, Wait>> rows(waits.begin(), waits.end());
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    return a.second.seconds > b.second.seconds;
  });
  rows.resize(std::min(rows.size(), n_most));
  std::string text;
  for (const auto& [where, wait] : rows)
    text += fmt::format("  {:>9}  {:>5} time{}  {}\n", format_seconds(wait.seconds), wait.times,
                        wait.times == 1 ? " " : "s", where);
  return text;
}

std::string format_seconds(double seconds) {
  const auto digits = [](double x, const char* unit) {
    return fmt::format("{:.{}f} {}", x, x < 9.995 ? 2 : x < 99.95 ? 1 : 0, unit);
  };
  if (seconds < 0.9995e-6) return digits(1e9 * seconds, "ns");
  if (seconds < 0.9995e-3) return digits(1e6 * seconds, "us");
  if (seconds < 0.9995) return digits(1e3 * seconds, "ms");
  if (seconds < 1000) return digits(seconds, "s");
  return digits(seconds / 3600, "h");
}

}  // namespace stow
